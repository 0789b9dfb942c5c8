// The common parts of tests of pictures: a folder, two traces, and the text of a file.
#pragma once

#include "tests/support/sample_traces.h"
#include "tests/support/temporary_folder.h"
#include "viz/gnuplot.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace pw {

namespace fs = std::filesystem;

inline std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

#define NEED_GNUPLOT()  \
    if (!has_gnuplot()) \
    GTEST_SKIP() << "gnuplot not found; apt-get install gnuplot-nox to run this test"

// Every test draws into a folder of its own.
class Plot : public testing::Test {
protected:
    std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

    std::vector<Panel> both() const {
        return {{&predicted_, "predicted, 1f1b: step 25.7 ms"}, {&measured_, "measured, 1f1b: step 27.0 ms"}};
    }

    TemporaryFolder folder_;
    const Trace predicted_ = sample_trace({.devices = 2});
    const Trace measured_ = sample_trace({.devices = 2, .label = "measured", .jitter = 0.1});
};

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "'";
}

template <class Action>
void expect_error(ExitCode code, const std::vector<std::string>& message, Action&& action) {
    try {
        action();
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        expect_parts(error.what(), message);
    }
}

}  // namespace pw
