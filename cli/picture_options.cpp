#include "cli/picture_options.h"

#include "cli/streams.h"
#include "viz/view_options.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace pw {

namespace {

// Returns the words between commas if the option takes several.
std::vector<std::string> words_of(const ViewOption& option, const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text)
        if (c == ',' && option.is_list)
            words.emplace_back();
        else
            words.back() += c;
    return words;
}

}  // namespace

void add_picture_options(CLI::App& command, CLI::Option* picture, View& view, bool has_timelines) {
    for (const ViewOption& option : view_options())
        if (has_timelines || option.of_charts)
            command
                .add_option_function<std::string>(
                    "--" + std::string(option.name),
                    [&view, &option](const std::string& text) { option.set(view, words_of(option, text)); },
                    option.help)
                ->type_name(option.type)
                ->check(
                    CLI::Validator([&option](std::string& text) { return option.refuse(words_of(option, text)); }, ""))
                ->needs(picture);
}

void note_large_picture(const std::string& file) {
    if (const std::string note = note_on_size(file); !note.empty())
        print_note(note);
}

}  // namespace pw
