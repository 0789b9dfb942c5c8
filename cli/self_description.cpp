#include "cli/self_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

namespace pw {

namespace {

// Splits CLI11's type name, "FORMAT:{text,csv}", into the name and the accepted values.
void read_type(const std::string& type, OptionFacts& facts) {
    const std::size_t open = type.find('{');
    if (open == std::string::npos || !type.ends_with('}')) {
        facts.value = type;
        return;
    }
    facts.value = type.substr(0, type.find(':'));
    for (std::string rest = type.substr(open + 1, type.size() - open - 2); !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        facts.values.push_back(rest.substr(0, comma));
        rest.erase(0, comma + 1);
    }
}

OptionFacts facts_of(const CLI::Option& option) {
    OptionFacts facts;
    for (const std::string& name : option.get_snames())
        facts.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames())
        facts.names.push_back("--" + name);
    if (option.get_positional())
        facts.names = {option.get_name(true)};
    if (option.get_items_expected_max() > 0)
        read_type(option.get_type_name(), facts);
    facts.help = option.get_description();
    return facts;
}

// Text of a man page: no line begins a request, and hyphens are ASCII hyphens, which a shell takes.
std::string roff(std::string_view text) {
    std::string made;
    for (const char letter : text) {
        if ((letter == '.' || letter == '\'') && (made.empty() || made.back() == '\n'))
            made += "\\&";
        made += letter == '\\' ? "\\e" : letter == '-' ? "\\-" : std::string(1, letter);
    }
    return made;
}

std::string capital(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
        text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

std::string roff_option(const OptionFacts& option) {
    std::string line = "\\fB" + roff(fmt::format("{}", fmt::join(option.names, ", "))) + "\\fR";
    if (!option.value.empty())
        line += " \\fI" +
                roff(option.values.empty() ? option.value : fmt::format("{}", fmt::join(option.values, "|"))) + "\\fR";
    return fmt::format(".TP\n{}\n{}\n", line, roff(option.help));
}

// A word for a shell, in single quotes.
std::string shell_word(std::string_view text) {
    std::string made = "'";
    for (const char letter : text)
        made += letter == '\'' ? "'\\''" : std::string(1, letter);
    return made + "'";
}

std::vector<std::string> names_of(const std::vector<CommandFacts>& commands) {
    std::vector<std::string> names;
    for (const CommandFacts& command : commands)
        names.push_back(command.name);
    return names;
}

// What completes a word that begins with a dash, and any other word. Without words, a shell completes files.
struct Completions {
    std::vector<std::string> options, others;
};

Completions words_of(const CommandFacts& command) {
    Completions words;
    for (const OptionFacts& option : command.options)
        words.options.push_back(option.names.back());
    for (const OptionFacts& positional : command.positionals)
        words.others.insert(words.others.end(), positional.values.begin(), positional.values.end());
    return words;
}

std::string assignments(const std::vector<std::string>& keys) { return fmt::format("{}=", fmt::join(keys, "= ")); }

// The body of a completion function of bash: `cur` is the word to complete, `prev` the word before, `command` the
// chosen command.
std::string bash_cases(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys) {
    std::string text = "    case \"$command $prev\" in\n";
    for (const CommandFacts& command : commands)
        for (const OptionFacts& option : command.options)
            if (!option.values.empty())
                for (const std::string& name : option.names)
                    text += fmt::format("        '{} {}') words='{}';;\n", command.name, name,
                                        fmt::join(option.values, " "));
    text += fmt::format("        *' --set') words='{}';;\n", assignments(keys));
    text += "        *) case \"$command $cur\" in\n";
    const auto add = [&](std::string_view pattern, const std::vector<std::string>& words) {
        if (!words.empty())
            text += fmt::format("            {}) words='{}';;\n", pattern, fmt::join(words, " "));
    };
    add("' -'*", {"--help", "--version"});
    add("' '*", names_of(commands));
    for (const CommandFacts& command : commands) {
        const Completions words = words_of(command);
        add(fmt::format("'{} -'*", command.name), words.options);
        add(fmt::format("'{} '*", command.name), words.others);
    }
    return text + "        esac;;\n    esac\n";
}

}  // namespace

namespace {

// An option without a group is for the program itself, and in no help.
bool is_shown(const CLI::Option* option) { return !option->get_group().empty(); }

}  // namespace

std::vector<CommandFacts> facts_of(const CLI::App& program) {
    std::vector<CommandFacts> commands;
    for (const CLI::App* command : program.get_subcommands({})) {
        CommandFacts facts{command->get_name(), command->get_description(), command->get_footer(), {}, {}};
        for (const CLI::Option* option : command->get_options(is_shown))
            (option->get_positional() ? facts.positionals : facts.options).push_back(facts_of(*option));
        commands.push_back(std::move(facts));
    }
    return commands;
}

std::string man_page(const CLI::App& program, std::string_view version) {
    std::string text = fmt::format(".TH PIPEWRIGHT 1 \"\" \"{}\" \"User Commands\"\n", roff(version));
    std::string what = program.get_description();
    while (what.ends_with('.'))
        what.pop_back();
    text += fmt::format(".SH NAME\npipewright \\- {}\n", roff(what));
    text += ".SH SYNOPSIS\n\\fBpipewright\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] \\fIFILE\\fR...\n.SH COMMANDS\n";
    for (const CommandFacts& command : facts_of(program)) {
        std::string usage = "pipewright " + command.name + " [OPTIONS]";
        for (const OptionFacts& positional : command.positionals)
            usage += " " + positional.names.front();
        text += fmt::format(".SS {}\n{}.\n", roff(usage), roff(capital(command.summary)));
        for (const auto& options : {command.positionals, command.options})
            for (const OptionFacts& option : options)
                if (option.names.back() != "--help")
                    text += roff_option(option);
        if (!command.examples.empty())
            text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command.examples));
    }
    return text + fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(program.get_footer()));
}

namespace {

std::string markdown_cell(std::string text) {
    for (std::size_t at = 0; (at = text.find_first_of("|<", at)) != std::string::npos; at += 2)
        text.insert(at, "\\");
    return text;
}

std::string markdown_rows(const std::vector<OptionFacts>& options, const std::vector<std::string>& left_out) {
    std::string rows;
    for (const OptionFacts& option : options) {
        if (std::ranges::count(left_out, option.names.back()) > 0)
            continue;
        const std::string value =
            option.values.empty() ? option.value : fmt::format("{}", fmt::join(option.values, " \\| "));
        rows += fmt::format("| `{}{}` | {} |\n", fmt::join(option.names, "`, `"), value.empty() ? "" : " " + value,
                            markdown_cell(option.help));
    }
    return rows;
}

}  // namespace

std::string markdown_page(const CLI::App& program) {
    std::string text =
        "# Commands\n\nThe commands and their options, as `pipewright COMMAND --help` prints them. This page is the "
        "output of "
        "`pipewright help\n--markdown`.\n";
    const std::vector<CommandFacts> commands = facts_of(program);
    std::vector<OptionFacts> common;
    for (const OptionFacts& option : commands.front().options)
        if (std::ranges::all_of(commands, [&](const CommandFacts& command) {
                return std::ranges::any_of(command.options, [&](const OptionFacts& other) {
                    return other.names == option.names && other.help == option.help;
                });
            }))
            common.push_back(option);
    std::vector<std::string> names_of_common;
    for (const OptionFacts& option : common)
        names_of_common.push_back(option.names.back());
    constexpr const char* kHead = "| option | meaning |\n|---|---|\n";
    for (const CommandFacts& command : commands) {
        std::string usage = "pipewright " + command.name + " [OPTIONS]";
        for (const OptionFacts& positional : command.positionals)
            usage += " " + positional.names.front();
        text += fmt::format("\n## {}\n\n`{}`: {}.\n\n", command.name, usage, command.summary);
        if (const std::string rows =
                markdown_rows(command.positionals, {}) + markdown_rows(command.options, names_of_common);
            !rows.empty())
            text += kHead + rows;
    }
    return text + "\n## Every command\n\n" + kHead + markdown_rows(common, {});
}

std::string bash_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys) {
    return fmt::format(R"(# Completion of pipewright for bash, printed by: pipewright help --completion bash
_pipewright() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command='' words='' k
    for ((k = 1; k < COMP_CWORD; ++k)); do
        case " {} " in
            *" ${{COMP_WORDS[k]}} "*) command=${{COMP_WORDS[k]}}; break;;
        esac
    done
{}    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [[ ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace 2>/dev/null
}}
complete -o default -F _pipewright pipewright
)",
                       fmt::join(names_of(commands), " "), bash_cases(commands, keys));
}

// zsh has an emulation of bash's completion, which takes the same function. The first completion loads the script,
// which then also does this completion.
std::string zsh_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys) {
    const std::string for_bash = bash_completion(commands, keys);
    return "#compdef pipewright\n# Completion of pipewright for zsh, printed by: pipewright help --completion zsh\n"
           "autoload -U bashcompinit && bashcompinit\n" +
           for_bash.substr(for_bash.find('\n') + 1) +
           "[[ -z $compstate ]] || _bash_complete -o default -F _pipewright\n";
}

std::string fish_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys) {
    std::string text = "# Completion of pipewright for fish, printed by: pipewright help --completion fish\n";
    for (const CommandFacts& command : commands)
        text += fmt::format("complete -c pipewright -f -n __fish_use_subcommand -a {} -d {}\n", command.name,
                            shell_word(command.summary));
    for (const CommandFacts& command : commands) {
        const std::string when =
            fmt::format("complete -c pipewright -n '__fish_seen_subcommand_from {}'", command.name);
        for (const OptionFacts& option : command.options) {
            std::string line = when;
            for (const std::string& name : option.names)
                line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            const bool sets = option.names.back() == "--set";
            if (!option.value.empty())
                line += option.values.empty() && !sets
                            ? " -r"
                            : " -x -a " + shell_word(sets ? assignments(keys)
                                                          : fmt::format("{}", fmt::join(option.values, " ")));
            text += fmt::format("{} -d {}\n", line, shell_word(option.help));
        }
        for (const OptionFacts& positional : command.positionals)
            if (!positional.values.empty())
                text += fmt::format("{} -f -a {}\n", when,
                                    shell_word(fmt::format("{}", fmt::join(positional.values, " "))));
    }
    return text;
}

}  // namespace pw
