// help: the help of a command, the man page, and completions for shells.
#include "cli/command.h"
#include "cli/self_description.h"
#include "cli/streams.h"
#include "cli/version.h"
#include "job/config/keys.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace pw {

namespace {

struct Shell {
    const char* name;
    std::string (*completion)(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys);
};
constexpr Shell kShells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};

struct HelpArguments {
    std::string command, shell;
    bool man = false, markdown = false;
};

std::string completion(const CLI::App& program, const std::string& shell) {
    std::vector<std::string> keys;
    for (const KeyFacts& key : config_keys())
        keys.push_back(fmt::format("{}.{}", key.block, key.name));
    const auto found = std::ranges::find(kShells, shell, &Shell::name);
    return found->completion(facts_of(program), keys);
}

void print_help(const CLI::App& program, const HelpArguments& arguments) {
    if (arguments.man)
        return write_result(man_page(program, version_text()));
    if (arguments.markdown)
        return write_result(markdown_page(program));
    if (!arguments.shell.empty())
        return write_result(completion(program, arguments.shell));
    if (arguments.command.empty())
        return write_result(
            program.get_formatter()->make_help(&program, program.get_name(), CLI::AppFormatMode::Normal));
    std::vector<std::string> names;
    for (const CLI::App* command : program.get_subcommands({})) {
        if (command->get_name() == arguments.command)
            return write_result(command->help("pipewright"));
        names.push_back(command->get_name());
    }
    const auto near = nearest(arguments.command, std::vector<std::string_view>(names.begin(), names.end()));
    fail("unknown command '{}'\n  help: {}", arguments.command,
         near ? fmt::format("did you mean '{}'?", *near) : "pipewright --help lists the commands");
}

}  // namespace

Action add_help(CLI::App& command) {
    auto arguments = std::make_shared<HelpArguments>();
    CLI::Option* const name = command.add_option("COMMAND", arguments->command, "the command to explain; default: all");
    std::vector<std::string> names;
    for (const CLI::App* each : command.get_parent()->get_subcommands({}))
        names.push_back(each->get_name());
    name->type_name(fmt::format(":{{{}}}", fmt::join(names, ",")))->option_text(" ");
    CLI::Option* const man = command.add_flag("--man", arguments->man, "print the man page, for man(1)");
    command.add_flag("--markdown", arguments->markdown, "print the page docs/commands.md")
        ->excludes(man)
        ->excludes(name);
    std::vector<std::string> shells;
    for (const Shell& shell : kShells)
        shells.emplace_back(shell.name);
    command.add_option("--completion", arguments->shell, "print a script that completes command lines in a shell")
        ->type_name("SHELL")
        ->check(CLI::IsMember(shells))
        ->excludes(man)
        ->excludes(name);
    man->excludes(name);
    return [program = command.get_parent(), arguments] { print_help(*program, *arguments); };
}

}  // namespace pw
