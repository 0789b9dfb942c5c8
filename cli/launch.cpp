// launch: runs a config on ranks and, if that fails, runs it again from the latest checkpoint.
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/option_numbers.h"
#include "cli/streams.h"
#include "cli/whole_program.h"
#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/checkpoint/folder_lock.h"
#include "exec/ranks/ranks.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace {

struct LaunchArguments {
    RunArguments run;
    std::string launcher = "mpirun";
    int ranks = 0, most_restarts = 3;
};

using Words = std::vector<std::string>;

// A path as a word that is no option.
std::string path_word(const std::string& path) { return path.starts_with('-') ? "./" + path : path; }

// Returns the given options, as words of a command line.
Words words_of(const std::vector<CLI::Option*>& options) {
    Words words;
    for (const CLI::Option* option : options)
        for (const std::string& value : option->results())
            words.push_back(option->get_lnames().empty() ? path_word(value)
                                                         : fmt::format("--{}={}", option->get_lnames().front(), value));
    return words;
}

// Returns the launcher's words, such as "mpirun --host a,b -n 4", without the program that it runs. A word in double
// quotes may have spaces.
Words launcher_of(const LaunchArguments& arguments) {
    std::istringstream text(arguments.launcher);
    Words words;
    for (std::string word; text >> std::quoted(word);)
        words.push_back(word);
    if (words.empty())
        fail("--launcher names no program\n  help: leave it out to use mpirun, or write --launcher srun");
    words.insert(words.end(), {"-n", std::to_string(arguments.ranks),
                               std::filesystem::read_symlink("/proc/self/exe").string(), "run", kSayStarted});
    return words;
}

// Open MPI's launcher refuses to run as root, the user of most containers, unless both variables are set.
void allow_root(const std::string& launcher) {
    constexpr const char *kAllow = "OMPI_ALLOW_RUN_AS_ROOT", *kConfirm = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM";
    constexpr std::string_view kOpenMpi[] = {"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi"};
    const std::string name = std::filesystem::path(launcher).filename().string();
    if (geteuid() != 0 || std::ranges::find(kOpenMpi, name) == std::end(kOpenMpi) || std::getenv(kAllow) != nullptr)
        return;
    setenv(kAllow, "1", 1);
    setenv(kConfirm, "1", 1);
    print_note(fmt::format("Open MPI refuses to run as root, so launch sets {}=1 and {}=1 for '{}'", kAllow, kConfirm,
                           launcher));
}

// A restart continues from the latest checkpoint in the folder, so all of them must belong to this training.
void check_checkpoints_are_own(const RunArguments& run) {
    if (run.checkpoints.empty() || run.checkpoint_every == 0)
        print_note("without --checkpoint DIR --checkpoint-every N every restart starts from the beginning");
    if (run.checkpoints.empty() || !std::filesystem::exists(run.checkpoints))
        return;
    if (run.resume.empty() || place_of(run.resume) != place_of(run.checkpoints))
        check_own_folder(run.checkpoints, nullptr, 0);
    const FolderLock lock(run.checkpoints);  // no other process writes to it
}

// Returns where the next attempt starts. Empty: from the beginning. If a run failed after its last step, that step is
// repeated for its results.
std::string start_of(const RunArguments& run, int steps) {
    Words left_out;
    std::string start = run.resume;
    try {
        start = find_checkpoint(run.checkpoints, left_out, steps).folder;
    } catch (const Error&) {  // there is no checkpoint
    }
    for (const std::string& line : left_out)
        print_warning(line);
    return start;
}

bool another_attempt_may_succeed(int code) {
    for (const ExitCode same_again : {ExitCode::BadInput, ExitCode::Infeasible, ExitCode::CheckFailed})
        if (code == static_cast<int>(same_again))
            return false;
    return true;
}

// Describes the end of a run. Launchers pass on the exit code of a rank, or report the signal that killed it as 137 or
// as 9.
std::string describe(const ProgramEnd& end) {
    constexpr int kSilent = static_cast<int>(ExitCode::PeerSilent);
    const char* what = end.stopped           ? "the run was stopped by a signal"
                       : end.code == kSilent ? "a rank became silent"
                       : end.code > kSilent  ? "a rank or the launcher was killed"
                                             : "the run failed";
    return fmt::format("{} (exit code {})", what, end.code);
}

// Removes rank 0's first line from the results. Returns whether it is there.
bool take_started_line(std::string& results) {
    const std::size_t at = results.find(kStartedLine);
    if (at == std::string::npos)
        return false;
    const std::size_t line = results.rfind('\n', at) + 1, end = results.find('\n', at);
    results.erase(line, end == std::string::npos ? end : end + 1 - line);
    return true;
}

// An obstacle at the first attempt, such as a missing host or permission, would stop every attempt.
[[noreturn]] void fail_unstarted(const LaunchArguments& arguments, const ProgramEnd& end) {
    fail_with(
        static_cast<ExitCode>(end.code),
        "'{0}' ended with exit code {1} before rank 0 had started\n  help: its message above says why; try `{0} -n {2} "
        "hostname` until that works",
        arguments.launcher, end.code, arguments.ranks);
}

[[noreturn]] void fail_for_good(const ProgramEnd& end, int restarts, const std::string& checkpoints) {
    const bool wrong = !end.stopped && !another_attempt_may_succeed(end.code);
    const std::string after = wrong          ? " and would fail again"
                              : restarts > 0 ? fmt::format(" after {} restarts", restarts)
                                             : "";
    fail_with(static_cast<ExitCode>(end.code), "{}{}{}", describe(end), after, wrong ? "" : resume_help(checkpoints));
}

// A word as a shell takes it.
std::string shell_quoted(const std::string& word) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos)
        return word;
    std::string quoted = "'";
    for (const char letter : word)
        quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
    return quoted + "'";
}

// Prints the command line of the first attempt, and how a restart differs from it.
void print_command_lines(const LaunchArguments& arguments, Words words) {
    std::erase(words, kSayStarted);
    std::vector<std::string> quoted;
    for (const std::string& word : words)
        quoted.push_back(shell_quoted(word));
    const std::string line = fmt::format("{}", fmt::join(quoted, " "));
    const RunArguments& run = arguments.run;
    const std::string first = run.resume.empty() ? "" : " --resume=" + shell_quoted(run.resume);
    print_result("{}{}\n", line, first);
    if (arguments.most_restarts > 0 && !run.checkpoints.empty())
        print_note(fmt::format("after a failure, up to {} times, the same with --resume of the latest checkpoint in {}",
                               arguments.most_restarts, run.checkpoints));
}

void launch(const LaunchArguments& arguments, const Words& of_run) {
    const RunArguments& run = arguments.run;
    const Config config = run.load();
    Words words = launcher_of(arguments);
    words.insert(words.end(), of_run.begin(), of_run.end());
    if (verbosity() != Verbosity::Normal)
        words.emplace_back(verbosity() == Verbosity::Quiet ? "--quiet" : "--verbose");
    check_targets(run, config);
    check_checkpoints_are_own(run);
    if (ranks_status() != "ready")
        print_note(
            "this program has no MPI, such as that of a wheel: ranks need the Debian package or a build with MPI");
    allow_root(words.front());
    if (run.dry)
        return print_command_lines(arguments, std::move(words));
    std::string start = run.resume;
    bool has_started = false;  // in any attempt
    for (int restart = 0;; ++restart) {
        Words from = words;
        if (!start.empty())
            from.push_back("--resume=" + start);
        ProgramEnd end = run_whole_program(from);
        has_started |= take_started_line(end.results);
        if (!has_started && end.code != 0 && !end.stopped)
            fail_unstarted(arguments, end);
        const bool last = end.stopped || !another_attempt_may_succeed(end.code) || restart == arguments.most_restarts;
        if (end.code == 0 || last)
            write_result(end.results);
        if (end.code == 0)
            return;
        if (last)
            fail_for_good(end, restart, run.checkpoints);
        start = start_of(run, config.training.steps);
        print_warning(fmt::format("{}: restart {} of {}, from {}", describe(end), restart + 1, arguments.most_restarts,
                                  start.empty() ? "the beginning" : start));
    }
}

}  // namespace

Action add_launch(CLI::App& command) {
    auto arguments = std::make_shared<LaunchArguments>();
    add_run_options(command, arguments->run);
    std::vector<CLI::Option*> of_run = command.get_options();
    std::erase(of_run, command.get_option("--resume"));  // each attempt has its own
    std::erase(of_run, command.get_option("--dry-run"));
    command.get_option("--dry-run")->description("print the command line that starts the ranks; run and write nothing");
    command.add_option("-n", arguments->ranks, "number of ranks")
        ->required()
        ->type_name("N")
        ->check(whole_number(1, 1'000'000));
    command.add_option("--max-restarts", arguments->most_restarts, "restart at most N times; default 3")
        ->type_name("N")
        ->check(whole_number(0, 1'000'000));
    command
        .add_option(
            "--launcher", arguments->launcher,
            "the command that starts ranks, with its options: 'mpirun --host a,b', mpiexec.mpich, srun; default mpirun")
        ->type_name("COMMAND");
    return [arguments, of_run] { launch(*arguments, words_of(of_run)); };
}

}  // namespace pw
