#include "cli/picture_options.h"

#include "cli/option_numbers.h"
#include "cli/streams.h"
#include "workloads/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
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

// Pixels, which are points in PDF, or a length on paper.
struct WidthUnit {
    std::string_view name;
    double pixels;
};
constexpr WidthUnit kWidthUnits[] = {{"", 1}, {"pt", 1}, {"cm", 72 / 2.54}, {"mm", 72 / 25.4}, {"in", 72}};
constexpr int kLeastPixels = 200, kMostPixels = 20'000;

std::optional<int> parse_width(const std::string& text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    for (const WidthUnit& unit : kWidthUnits)
        if (error == std::errc{} && unit.name == std::string_view(rest, end)) {
            const double pixels = number * unit.pixels;
            const bool is_whole = !unit.name.empty() || number == std::floor(number);
            if (is_whole && pixels >= kLeastPixels && pixels <= kMostPixels)
                return static_cast<int>(std::lround(pixels));
        }
    return std::nullopt;
}

std::string refuse_width(std::string& text) {
    return parse_width(text) ? ""
                             : fmt::format(
                                   "'{}' is not a width from {} to {} pixels, such as 1600, or a length on paper from "
                                   "{:.1f} cm, such as 8.5cm, 3.3in or 252pt",
                                   text, kLeastPixels, kMostPixels, kLeastPixels / kWidthUnits[2].pixels);
}

// Figures that two columns of a paper take: a column of ACM has 241 points and of IEEE 252, a page 506 and 516.
struct PaperFigure {
    std::string_view name;
    int width;
    double font;
};
constexpr PaperFigure kFigures[] = {{"column", 240, 7}, {"page", 504, 8}};

const PaperFigure* figure_of(std::string_view name) {
    const auto* const found = std::ranges::find(kFigures, name, &PaperFigure::name);
    return found == std::end(kFigures) ? nullptr : found;
}

std::string refuse_figure(std::string& text) {
    return figure_of(text) != nullptr ? "" : fmt::format("'{}' is not column or page", text);
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
    {"--figure", "PART", "draw for a paper: as wide as a column (240 points, text of 7) or a page (504, 8)", true,
     refuse_figure,
     [](View& view, const std::string& text) {
         view.width = figure_of(text)->width;
         view.font = figure_of(text)->font;
     }},
    {"--width", "WIDTH", "width of the picture in pixels, or in cm, mm, in, pt; pages (.html) fill their window", true,
     refuse_width, [](View& view, const std::string& text) { view.width = *parse_width(text); }},
    {"--font-size", "PIXELS", "size of the text; default 11; in svg, png, pdf, tex and gp", true, refuse_font,
     [](View& view, const std::string& text) { view.font = std::stod(text); }},
    {"--without", "PART,...",
     "leave out parts of a timeline: memory, transfers, legend, titles; in svg, png, pdf, tex and gp", false,
     refuse_parts,
     [](View& view, const std::string& text) {
         for (const std::string& word : words_in(text))
             for (const PicturePart& part : kParts)
                 if (part.name == word)
                     view.*part.shown = false;
     }},
    {"--device-names", "NAME,...", "names of the rows of a timeline, from device 0 on; in svg, png, pdf, tex and gp",
     false, [](std::string&) { return std::string(); },
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
