#include "cli/picture_options.h"

#include "cli/option_numbers.h"
#include "cli/streams.h"
#include "workloads/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

namespace {

// "1.2ms..3ms", "..3ms" or "1.2ms..". Absent if the text is none of these.
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
    constexpr int kLeast = 200, kMost = 20'000;
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

// The parts of pictures of timelines, and what hides each.
struct PicturePart {
    std::string_view name;
    bool View::*shown;
};
constexpr PicturePart kParts[] = {
    {"memory", &View::memory}, {"transfers", &View::transfers}, {"legend", &View::legend}, {"titles", &View::titles}};

std::vector<std::string> words_in(const std::string& list) {
    std::vector<std::string> words(1);
    for (const char c : list)
        if (c == ',')
            words.emplace_back();
        else
            words.back() += c;
    return words;
}

std::string refuse_parts(std::string& text) {
    std::vector<std::string_view> names;
    for (const PicturePart& part : kParts)
        names.push_back(part.name);
    for (const std::string& word : words_in(text))
        if (std::ranges::count(names, word) == 0)
            return fmt::format("'{}' is no part of a picture: {}; several are written as in memory,legend", word,
                               fmt::join(names, ", "));
    return "";
}

std::string refuse_font(std::string& text) {
    constexpr double kLeast = 4, kMost = 100;
    double size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const bool right = error == std::errc{} && end == text.data() + text.size() && size >= kLeast && size <= kMost;
    return right ? "" : fmt::format("'{}' is not a size of text from {} to {} pixels, such as 11", text, kLeast, kMost);
}

struct PictureOption {
    const char *name, *type, *help;
    bool of_charts;
    std::string (*refuse)(std::string& text);  // returns what is wrong, empty if nothing is
    void (*set)(View& view, const std::string& text);
};
constexpr PictureOption kPictureOptions[] = {
    {"--title", "TEXT", "title of the picture", true, [](std::string&) { return std::string(); },
     [](View& view, const std::string& text) { view.title = text; }},
    {"--width", "PIXELS", "width of the picture; pages (.html) fill their window", true, refuse_width,
     [](View& view, const std::string& text) { view.width = std::stoi(text); }},
    {"--font-size", "PIXELS", "size of the text; default 11; timelines in svg, png, pdf and gp", false, refuse_font,
     [](View& view, const std::string& text) { view.font = std::stod(text); }},
    {"--without", "PART,...",
     "leave out parts of a timeline: memory, transfers, legend, titles; in svg, png, pdf and gp", false, refuse_parts,
     [](View& view, const std::string& text) {
         for (const std::string& word : words_in(text))
             for (const PicturePart& part : kParts)
                 if (part.name == word)
                     view.*part.shown = false;
     }},
    {"--device-names", "NAME,...", "names of the rows of a timeline, from device 0 on; in svg, png, pdf and gp", false,
     [](std::string&) { return std::string(); },
     [](View& view, const std::string& text) { view.names = words_in(text); }},
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
