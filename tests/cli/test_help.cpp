// What the program says of itself: help of commands, the man page, completions, the version; and configs from standard
// input.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace pw {

namespace {

const std::vector<std::string> kCommandNames = {"simulate", "profile",   "run",   "launch", "compare",
                                                "search",   "calibrate", "plot",  "plan",   "validate",
                                                "list",     "help",      "import"};

class Help : public Cli {
protected:
    // Runs a script of bash in the folder and returns what it prints.
    std::string bash(const std::string& script) const {
        write("script.sh", script);
        const std::string command = "cd '" + file("").string() + "' && bash script.sh >printed.txt 2>&1 </dev/null";
        EXPECT_EQ(std::system(command.c_str()), 0) << script << read("printed.txt");
        return read("printed.txt");
    }

    // What bash offers for the last of these words.
    std::vector<std::string> offered(const std::string& words) const {
        write("completion", run_well("help --completion bash").out);
        std::istringstream text(
            bash("source ./completion\n"
                 "COMP_WORDS=(pipewright " +
                 words +
                 ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                 "_pipewright 2>/dev/null\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"));
        std::vector<std::string> all;
        for (std::string line; std::getline(text, line);)
            if (!line.empty())
                all.push_back(line);
        return all;
    }

    static bool is_installed(const std::string& program) {
        return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
    }
};

using Strings = std::vector<std::string>;

TEST_F(Help, OfACommandIsItsOwn) {
    for (const std::string& command : kCommandNames)
        EXPECT_EQ(run_well("help " + command).out, run_well(command + " --help").out);
    EXPECT_EQ(run_well("help").out, run_well("--help").out);
    expect_says(error_of("help simulat", 2), {"unknown command 'simulat'", "did you mean 'simulate'?"});
    expect_says(error_of("help --completion tcsh", 2), {"tcsh", "bash,zsh,fish"});
}

// docs/commands.md is what the program prints; PIPEWRIGHT_RECORD=1 writes it again.
TEST_F(Help, PageOfCommandsIsThatOfTheProgram) {
    const std::filesystem::path page = std::filesystem::path(PIPEWRIGHT_SOURCE_DIR) / "docs" / "commands.md";
    const std::string printed = run_well("help --markdown").out;
    EXPECT_FALSE(contains(printed + run_well("help --man").out, "started"));  // an option between programs
    if (std::getenv("PIPEWRIGHT_RECORD") != nullptr)
        std::ofstream(page) << printed;
    std::ifstream file(page);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), printed)
        << "PIPEWRIGHT_RECORD=1 writes the page anew";
}

TEST_F(Help, ManPageHasEveryCommandAndOption) {
    const std::string page = run_well("help --man").out;
    for (const std::string& command : kCommandNames) {
        EXPECT_TRUE(contains(page, ".SS pipewright " + command)) << command;
        const std::string help = run_well(command + " --help").out;
        const std::regex option("--[a-z-]+");
        for (std::sregex_iterator found(help.begin(), help.end(), option), end; found != end; ++found) {
            const std::string escaped = std::regex_replace(found->str(), std::regex("-"), "\\-");
            EXPECT_TRUE(found->str() == "--help" || contains(page, escaped)) << command << ' ' << found->str();
        }
    }
    if (!is_installed("groff"))
        GTEST_SKIP() << "no groff";
    write("page.1", page);
    EXPECT_EQ(bash("groff -man -Tutf8 -ww page.1 >/dev/null\n"), "");
}

TEST_F(Help, CompletesInBash) {
    EXPECT_EQ(offered("si"), Strings{"simulate"});
    EXPECT_EQ(offered("simulate --wh"), Strings{"--what-if"});
    EXPECT_EQ(offered("simulate --arguments m"), Strings{"megatron-lm"});
    EXPECT_EQ(offered("plan cfg.yaml --format c"), (Strings{"csv", "csv-comms"}));
    EXPECT_EQ(offered("list s"), (Strings{"schedules", "schema"}));
    EXPECT_EQ(offered("help ru"), Strings{"run"});
    EXPECT_EQ(offered("run cfg.yaml --set pipeline.micro_batches"), Strings{"pipeline.micro_batches="});
    EXPECT_EQ(offered("simulate cfg"), Strings{}) << "bash completes files then";
    EXPECT_EQ(offered("--v"), Strings{"--version"});
}

TEST_F(Help, CompletesInOtherShells) {
    write("_pipewright", run_well("help --completion zsh").out);
    write("pipewright.fish", run_well("help --completion fish").out);
    EXPECT_TRUE(read("_pipewright").starts_with("#compdef pipewright\n"));
    if (is_installed("zsh")) {
        EXPECT_EQ(bash("zsh -n _pipewright\n"), "");
    }
    if (!is_installed("fish"))
        GTEST_SKIP() << "no fish";
    EXPECT_EQ(bash("fish -c 'source pipewright.fish; complete -C \"pipewright list sched\"'\n"), "schedules\n");
    EXPECT_TRUE(
        contains(bash("fish -c 'source pipewright.fish; complete -C \"pipewright simulate --what\"'\n"), "--what-if"));
}

TEST_F(Help, VersionMayHaveACommit) {
    const std::regex form("pipewright \\d+\\.\\d+\\.\\d+ \\(([0-9a-f]{8,}(-modified)?, )?backends: [a-z, ]+\\)\n");
    EXPECT_TRUE(std::regex_match(run_well("--version").out, form)) << run_well("--version").out;
}

TEST_F(Help, ADashIsStandardInput) {
    const std::string from_file = run_well("simulate uniform.yaml --json").out;
    for (const char* way : {"cat uniform.yaml | ", ""}) {
        const std::string redirect = *way == '\0' ? " <uniform.yaml" : "";
        EXPECT_EQ(bash(std::string(way) + PIPEWRIGHT_BINARY + " simulate - --json 2>/dev/null" + redirect + "\n"),
                  from_file);
    }
    expect_says(error_of("simulate -", 2), {"/dev/stdin"});
}

}  // namespace

}  // namespace pw
