// Tests of whole folders of the public data: the files of a folder are copied to where the commands run.
#pragma once

#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"

#include <filesystem>
#include <string>

namespace pw {

class PublicFolder : public Cli {
protected:
    // Copies the files of `name`, a folder of the public data. Returns false if the folder is absent.
    bool take(const std::string& name) const {
        const std::string from = public_data(name);
        if (from.empty())
            return false;
        for (const auto& entry : std::filesystem::directory_iterator(from))
            std::filesystem::copy(entry.path(), file(entry.path().filename()),
                                  std::filesystem::copy_options::overwrite_existing);
        return true;
    }
    double ms_of_step(const std::string& arguments) const {
        return run_well("simulate --json " + arguments).json().at("step_time_ns").get<double>() / 1e6;
    }
};

}  // namespace pw

#define PIPEWRIGHT_NEED_FOLDER(name) \
    if (!take(name))                 \
    GTEST_SKIP() << name << " is not here: set PIPEWRIGHT_DATA to the folder of the public data"
