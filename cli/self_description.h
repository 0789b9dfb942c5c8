// What the program says of itself: its commands and options as a man page, and as completions for shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace pw {

// An option, or a positional argument, whose name then has no dashes.
struct OptionFacts {
    std::vector<std::string> names;   // "-o", "--output"
    std::string value;                // "FILE", empty for a flag
    std::vector<std::string> values;  // if only these are accepted
    std::string help;
};

struct CommandFacts {
    std::string name, summary, examples;
    std::vector<OptionFacts> options, positionals;
};

// Returns the commands of the program, in the order of its help.
std::vector<CommandFacts> facts_of(const CLI::App& program);

// A page in the language of man(7).
std::string man_page(const CLI::App& program, std::string_view version);
std::string markdown_page(const CLI::App& program);  // docs/commands.md

// A script that completes commands, options, their values, config keys after --set, and files.
std::string bash_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys);
std::string zsh_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys);
std::string fish_completion(const std::vector<CommandFacts>& commands, const std::vector<std::string>& keys);

}  // namespace pw
