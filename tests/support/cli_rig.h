// Runs the built binary in a folder of its own and keeps its output.
#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace pw {

using Json = nlohmann::json;

struct Said {
    int code;
    std::string out, err;
    Json json() const { return Json::parse(out); }
};

// Returns the text of a profile without its remarks about other programs that ran during the measurement.
inline std::string of_a_quiet_machine(std::string profile) {
    if (const std::size_t at = profile.find("  cpu_share:"); at != std::string::npos)
        profile.erase(at, profile.find('\n', at) + 1 - at);
    return profile;
}

class Cli : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "pipewright-cli-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        write("uniform.yaml", R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB}
cluster: {devices: 4}
pipeline: {schedule: gpipe, micro_batches: 8}
)");
        write("mlp.yaml", R"(
workload: {model: mlp, dataset: synthetic}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 3}
)");
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path file(const std::string& name) const { return folder_ / name; }

    void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }

    std::string read(const std::string& name) const {
        std::ostringstream text;
        text << std::ifstream(file(name)).rdbuf();
        return text.str();
    }

    // Runs the binary; `arguments` are as in a shell.
    Said run(const std::string& arguments) const {
        const std::string command =
            "cd '" + folder_.string() + "' && '" + binary_ + "' " + arguments + " >said.out 2>said.err </dev/null";
        const int status = std::system(command.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("said.out"), read("said.err")};
    }

    // Runs a command that must succeed and keep stderr to itself.
    Said run_well(const std::string& arguments) const {
        Said said = run(arguments);
        EXPECT_EQ(said.code, 0) << arguments << '\n' << said.err;
        EXPECT_EQ(said.err.find("error"), std::string::npos) << arguments << '\n' << said.err;
        return said;
    }

    // Runs a command that must fail with one message and no results; returns the message.
    std::string error_of(const std::string& arguments, int code) const {
        const Said said = run(arguments);
        EXPECT_EQ(said.code, code) << arguments << '\n' << said.err;
        EXPECT_EQ(said.out, "") << arguments;
        EXPECT_TRUE(said.err.starts_with("error: ")) << arguments << '\n' << said.err;
        EXPECT_FALSE(said.err.starts_with("error: error")) << said.err;
        return said.err;
    }

    std::string binary_ = PIPEWRIGHT_BINARY;

private:
    std::filesystem::path folder_;
};

}  // namespace pw
