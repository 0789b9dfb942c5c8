// Parses the command line, runs a command and maps exceptions to the exit code.
#include "cli/command.h"
#include "cli/streams.h"
#include "cli/version.h"
#include "exec/ranks/control_connection.h"
#include "exec/system/threads.h"
#include "job/config/other_names.h"
#include "job/launched_ranks.h"
#include "job/load.h"
#include "report/error_of_rank.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pw {

namespace {

struct Command {
    const char* name;
    const char* summary;
    Action (*add)(CLI::App& command);
    const char* examples;
    bool by_all_ranks = false;  // otherwise only the first rank runs it
};

constexpr Command kCommands[] = {
    {"simulate", "predict time, bubbles and memory of a plan", add_simulate,
     "  pipewright simulate cfg.yaml --plot timeline.svg\n"
     "  pipewright simulate cfg.yaml --set 'sweep={pipeline.micro_batches: [4, 8, 16]}' --plot sweep.html\n"
     "  pipewright simulate cfg.yaml --schedules all --plot schedules.html\n"
     "  pipewright simulate cfg.yaml --explain --what-if pipeline.schedule=zb-h1"},
    {"profile", "measure the costs of layers, transfers and updates on this machine", add_profile,
     "  pipewright profile cfg.yaml -o profile.yaml\n"
     "  pipewright simulate cfg.yaml --set cluster.profile=profile.yaml\n"
     "  mpirun -n 2 pipewright profile cfg.yaml -o profile.yaml\n"
     "  pipewright profile cfg.yaml --gemm -o products.yaml",
     true},
    {"run", "execute the plan and measure it", add_run,
     "  pipewright run cfg.yaml --steps 10 --trace measured.json\n"
     "  pipewright run cfg.yaml --set run.backend=emulated\n"
     "  mpirun -n 2 pipewright run cfg.yaml",
     true},
    {"launch", "run on ranks, and continue from the latest checkpoint when one fails", add_launch,
     "  pipewright launch -n 4 cfg.yaml --checkpoint kept --checkpoint-every 100\n"
     "  pipewright launch -n 4 --launcher 'mpirun --host a:2,b:2' cfg.yaml --checkpoint kept --checkpoint-every 100"},
    {"compare", "compare predicted with measured times and memory, or two plans", add_compare,
     "  pipewright compare cfg.yaml --plot both.html\n"
     "  pipewright compare gpipe.yaml 1f1b.yaml\n"
     "  pipewright compare predicted.json measured.json --max-error 5%\n"
     "  pipewright compare cfg.yaml --schedules gpipe,1f1b -o study\n"
     "  mpirun -n 2 pipewright compare cfg.yaml",
     true},
    {"search", "find the best stage split, schedule and micro-batches", add_search,
     "  pipewright search cfg.yaml --set search.schedules=all -o best.yaml\n"
     "  mpirun -n 4 pipewright search cluster.yaml",
     true},
    {"calibrate", "set factors of a transformer's costs from measured steps", add_calibrate,
     "  pipewright calibrate cluster.yaml --run '53.7 s' -o mine.yaml\n"
     "  pipewright calibrate cluster.yaml --run '53.7 s' --run 'parallel.tensor=4=49.1 s' -o mine.yaml\n"
     "  pipewright search mine.yaml"},
    {"import", "read a trace of another program and write one that the other commands read", add_import,
     "  pipewright import rank*.pt.trace.json.gz -o trace.json\n"
     "  pipewright compare trace.json --replay --explain"},
    {"plot", "draw traces", add_plot, "  pipewright plot gpipe.json 1f1b.json -o both.svg"},
    {"validate", "check a config, a plan, a profile, a trace, a checkpoint or a folder of results", add_validate,
     "  pipewright validate cfg.yaml\n  pipewright validate plan.csv"},
    {"plan", "print or export the task lists of a plan", add_plan,
     "  pipewright plan cfg.yaml --format csv -o plan.csv"},
    {"list",
     "list models, transformers, schedules, backends, transports or config keys, or print the schema of configs",
     add_list, "  pipewright list schedules\n  pipewright list schema >pipewright.schema.json"},
    {"help", "explain a command, print the man page or completions for a shell", add_help,
     "  pipewright help simulate\n"
     "  pipewright help --man | man -l -\n"
     "  pipewright help --completion bash >/etc/bash_completion.d/pipewright"},
};

// The options of all commands.
struct CommonOption {
    const char* names;
    const char* help;
    Verbosity verbosity;
};

constexpr CommonOption kCommonOptions[] = {
    {kQuiet, "print no notes and no progress; warnings, errors and results stay", Verbosity::Quiet},
    {kVerbose, "also print where costs come from, how long the command took, and progress without a terminal",
     Verbosity::Verbose},
};

void add_common_options(CLI::App& command) {
    CLI::Option* previous = nullptr;
    for (const CommonOption& option : kCommonOptions) {
        CLI::Option* const added = command.add_flag_callback(
            option.names, [chosen = option.verbosity] { set_verbosity(chosen); }, option.help);
        if (previous != nullptr)
            added->excludes(previous);
        previous = added;
    }
}

std::vector<std::string_view> command_names() {
    std::vector<std::string_view> names;
    for (const Command& command : kCommands)
        names.push_back(command.name);
    return names;
}

[[noreturn]] void fail_usage(std::string fact, std::string_view help) {
    std::replace(fact.begin(), fact.end(), '\n', ' ');
    fail("{}\n  help: {}", fact, help);
}

// Words that people type out of habit, and what does it here.
struct Habit {
    const char* command;
    const char* option;
    const char* help;
};
constexpr Habit kHabits[] = {
    {"simulate", "-o", "--plot FILE draws, --trace FILE writes the trace, --csv FILE the table"},
    {"run", "-o", "--trace FILE writes the trace, --checkpoint DIR and --save DIR the weights, --log FILE the losses"},
    {"validate", "-o", "it writes nothing; `pipewright simulate` and `run` write what they find"},
    {"plot", "--plot", "plot writes to -o FILE"},
    {"search", "--schedules", "--set search.schedules=[gpipe, 1f1b], or all"},
};

// Returns how a key of the config is set, where an option has its name: "--micro-batches 8". Empty: there is no such
// key.
std::string help_for_key(std::string option, const std::vector<std::string>& words) {
    std::string value = words.size() > 1 && !words[1].starts_with('-') ? words[1] : "VALUE";
    if (const std::size_t equals = option.find('='); equals != std::string::npos) {
        value = option.substr(equals + 1);
        option.erase(equals);
    }
    option.erase(0, option.find_first_not_of('-'));
    std::replace(option.begin(), option.end(), '-', '_');
    const auto known = other_names();
    const auto found = std::ranges::find(known, option, &OtherName::name);
    return found == known.end() ? "" : fmt::format("--set {}={}", found->key, value);
}

// Returns what an unknown option may mean.
std::string help_for_option(const CLI::App& command, const std::vector<std::string>& words) {
    const std::string& word = words.front();
    for (const Habit& habit : kHabits)
        if (command.get_name() == habit.command && word == habit.option)
            return habit.help;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames())
            names.push_back("--" + name);
    const auto near = nearest(word, std::vector<std::string_view>(names.begin(), names.end()));
    const bool sets = std::ranges::count(names, "--set") > 0;
    const std::string key = sets && word.starts_with("--") ? help_for_key(word, words) : "";
    const std::string meant = near && !key.empty() ? fmt::format("'{}', or '{}'", key, *near)
                              : near               ? fmt::format("'{}'", *near)
                              : !key.empty()       ? fmt::format("'{}'", key)
                                                   : "";
    const std::string help = fmt::format("pipewright {} --help", command.get_name());
    return meant.empty() ? help : fmt::format("did you mean {}? See {}", meant, help);
}

// Reports the word that neither an option nor a command takes.
[[noreturn]] void fail_leftover(const CLI::App& app, const std::vector<std::string>& words) {
    // A sub-command has its own leftovers. `app` has the leftovers of the whole line.
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    const std::string word = words.empty() ? "?" : words.front();
    if (chosen.empty()) {
        const auto near = nearest(word, command_names());
        fail_usage(fmt::format("unknown {} '{}'", word.starts_with('-') ? "option" : "command", word),
                   near ? fmt::format("did you mean '{}'?", *near) : "pipewright --help lists the commands");
    }
    if (!word.starts_with('-'))
        fail_usage(fmt::format("one argument too many: '{}'", word),
                   fmt::format("pipewright {} --help", chosen.front()->get_name()));
    fail_usage(fmt::format("unknown option '{}'", word), help_for_option(*chosen.front(), words));
}

[[noreturn]] void fail_parse(const CLI::App& app, const CLI::ParseError& error) {
    const std::vector<std::string> leftover = app.remaining(true);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
        (app.get_subcommands().empty() && !leftover.empty()))
        fail_leftover(app, leftover);
    if (app.get_subcommands().empty())
        fail_usage("no command given", "pipewright --help lists the commands");
    fail_usage(error.what(), fmt::format("pipewright {} --help", app.get_subcommands().front()->get_name()));
}

void run_command_line(int argc, char** argv) {
    CLI::App app("Pipeline-parallel training, predicted and executed from one plan.", "pipewright");
    app.set_help_flag("-h,--help", "print this help");
    app.set_version_flag("-V,--version", version_text, "print the version and the backends compiled in");
    app.require_subcommand(1);
    app.footer(
        "Results go to stdout, everything else to stderr.\nExit codes: 0 ok, 1 failed while running, 2 bad input, "
        "3 infeasible or deadlock, 4 check failed, 5 a peer became silent.");
    std::vector<std::pair<CLI::App*, Action>> actions;
    for (const Command& command : kCommands) {
        CLI::App* added = app.add_subcommand(command.name, command.summary);
        added->footer(std::string("Examples:\n") + command.examples);
        Action action = command.add(*added);
        add_common_options(*added);
        if (!is_first_rank() && !command.by_all_ranks)
            action = [kept = std::move(action)] {};  // frees the memory of its options after it has run
        actions.emplace_back(added, std::move(action));
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {  // help and version
        std::ostringstream text;
        app.exit(success, text, text);
        write_result(text.str());
        return finish_results();
    } catch (const CLI::ParseError& error) {
        fail_parse(app, error);
    }
    const auto start = std::chrono::steady_clock::now();
    for (const auto& [command, action] : actions)
        if (command->parsed())
            action();
    finish_results();
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - start;
    print_details({fmt::format("the command took {:.3f} s", lasted.count())});
}

constexpr const char* kOutOfMemory =
    "out of memory\n  help: raise its limits (ulimit -v, ulimit -d, the control group), or use fewer "
    "devices or "
    "smaller micro-batches";

// If all ranks find the same mistake, only rank 0 prints the help.
int report_error(std::string_view text, ExitCode code, const std::string& stages = {}) {
    constexpr Ns kTimeForRank0 = 300'000'000;
    const auto [rank, ranks] = launched_ranks();
    const bool rank_0_prints_help = rank > 0 && (code == ExitCode::BadInput || code == ExitCode::Infeasible);
    if (rank_0_prints_help)
        text = text.substr(0, text.find('\n'));
    std::fflush(stdout);
    const std::string prefix =
        ranks > 1 ? fmt::format("[rank {}/{}{}{}] ", rank, ranks, stages.empty() ? "" : " ", stages) : "";
    write_message(fmt::format("{}{}{}", prefix, text.starts_with("error: ") ? "" : "error: ", text));
    if (rank_0_prints_help)  // a launcher may end all ranks as soon as this rank has ended
        sleep_for(kTimeForRank0);
    return static_cast<int>(code);
}

}  // namespace

}  // namespace pw

int main(int argc, char** argv) {
    try {
        // Large blocks go back to the system when they are freed. By default, glibc raises the bound with the first
        // large block, and then the heap of every thread keeps some of them.
        mallopt(M_MMAP_THRESHOLD, 4 << 20);
        pw::keep_standard_streams();
        pw::fit_tables_to_terminal();
        pw::keep_words(argc, argv);
        pw::run_command_line(argc, argv);
        return 0;
    } catch (const pw::StoppedByOthers& error) {  // another rank reports the cause
        std::_Exit(static_cast<int>(error.code()));
    } catch (const pw::Error& error) {
        const auto* const of_rank = dynamic_cast<const pw::ErrorOfRank*>(&error);
        const int code = pw::report_error(error.what(), error.code(), of_rank == nullptr ? "" : of_rank->stages());
        if (error.code() == pw::ExitCode::PeerSilent || pw::launched_ranks().size > 1)
            std::_Exit(code);  // a silent thread may still exist, and other ranks may not end with this rank
        return code;
    } catch (const std::bad_alloc&) {
        return pw::report_error(pw::kOutOfMemory, pw::ExitCode::RunFailed);
    } catch (const std::length_error&) {  // more than any container can hold
        return pw::report_error(pw::kOutOfMemory, pw::ExitCode::RunFailed);
    } catch (const std::filesystem::filesystem_error& error) {
        return pw::report_error(fmt::format("'{}': {}", error.path1().string(), error.code().message()),
                                pw::ExitCode::RunFailed);
    } catch (const nlohmann::json::exception&) {  // its text is for programmers
        return pw::report_error(
            "a JSON file has a value of an unexpected type\n  help: pipewright validate FILE says "
            "what "
            "is wrong with a file",
            pw::ExitCode::BadInput);
    } catch (const std::exception& error) {
        return pw::report_error(error.what(), pw::ExitCode::RunFailed);
    }
}
