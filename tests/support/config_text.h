// A config from a text, read as from a file.
#pragma once

#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/temporary_folder.h"

#include <string>
#include <vector>

namespace pw {

inline Config load(const std::string& text, const std::vector<std::string>& set = {}) {
    const TemporaryFolder folder;
    return load_config(folder.write("cfg.yaml", text), set);
}

}  // namespace pw
