#include "cli/picture_options.h"

#include "cli/option_numbers.h"
#include "cli/streams.h"
#include "workloads/units.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <optional>
#include <string>

namespace pw {

namespace {

// "1.2ms..3ms", "..3ms" or "1.2ms.."; absent if it is none of these.
struct TimeRange {
    std::optional<Ns> from, to;
};
std::optional<TimeRange> parse_range(const std::string& text) {
    constexpr std::string_view kDots = "..";
    const std::size_t dots = text.find(kDots);
    if (dots == std::string::npos || text == kDots)
        return std::nullopt;
    const std::string first = text.substr(0, dots), last = text.substr(dots + kDots.size());
    const TimeRange range{parse_time(first), parse_time(last)};
    const bool malformed = (!first.empty() && !range.from) || (!last.empty() && !range.to) ||
                           (range.from && range.to && *range.from >= *range.to);
    return malformed ? std::nullopt : std::optional(range);
}

std::string refuse_width(std::string& text) {
    constexpr int kLeast = 300, kMost = 20'000;
    int pixels = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pixels);
    const bool right = error == std::errc{} && end == text.data() + text.size() && pixels >= kLeast && pixels <= kMost;
    return right ? "" : fmt::format("'{}' is not a width from {} to {} pixels, such as 1600", text, kLeast, kMost);
}

std::string refuse_range(std::string& text) {
    return parse_range(text)
               ? ""
               : fmt::format(
                     "'{}' is not a range of time: an earlier and a later time, as in 1.2ms..3ms, or one of them "
                     "alone, as in 1.2ms..",
                     text);
}

struct PictureOption {
    const char *name, *type, *help;
    bool of_charts;
    std::string (*refuse)(std::string& text);  // returns what is wrong; empty if nothing is
    void (*set)(View& view, const std::string& text);
};
constexpr PictureOption kPictureOptions[] = {
    {"--title", "TEXT", "title of the picture", true, [](std::string&) { return std::string(); },
     [](View& view, const std::string& text) { view.title = text; }},
    {"--width", "PIXELS", "width of the picture; pages (.html) fill their window", true, refuse_width,
     [](View& view, const std::string& text) { view.width = std::stoi(text); }},
    {"--range", "A..B", "the part of the timelines that is drawn, as in 1.2ms..3ms; pages show it first", false,
     refuse_range,
     [](View& view, const std::string& text) {
         const TimeRange range = *parse_range(text);
         view.from = range.from;
         view.to = range.to;
     }},
};

}  // namespace

void add_picture_options(CLI::App& command, CLI::Option* picture, View& view, bool has_timelines) {
    for (const PictureOption& option : kPictureOptions)
        if (has_timelines || option.of_charts)
            command
                .add_option_function<std::string>(
                    option.name, [&view, &option](const std::string& text) { option.set(view, text); }, option.help)
                ->type_name(option.type)
                ->check(CLI::Validator(option.refuse, ""))
                ->needs(picture);
}

void note_large_picture(const std::string& file) {
    if (const std::string note = note_on_size(file); !note.empty())
        print_note(note);
}

}  // namespace pw
