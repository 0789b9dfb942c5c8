#include "viz/view_options.h"

#include "workloads/error.h"
#include "workloads/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

namespace pw {

namespace {

using Words = std::vector<std::string>;

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

std::string refuse_width(const Words& words) {
    const std::string& text = words.front();
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

std::string refuse_figure(const Words& words) {
    const std::string& text = words.front();
    return figure_of(text) != nullptr ? "" : fmt::format("'{}' is not column or page", text);
}

std::string refuse_range(const Words& words) {
    const std::string& text = words.front();
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

std::string refuse_parts(const Words& words) {
    std::vector<std::string_view> names;
    for (const PicturePart& part : kParts)
        names.push_back(part.name);
    for (const std::string& word : words)
        if (std::ranges::count(names, word) == 0)
            return fmt::format("'{}' is no part of a picture: {}; several are written as in memory,legend", word,
                               fmt::join(names, ", "));
    return "";
}

std::string refuse_font(const Words& words) {
    const std::string& text = words.front();
    constexpr double kLeast = 4, kMost = 100;
    double size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const bool right = error == std::errc{} && end == text.data() + text.size() && size >= kLeast && size <= kMost;
    return right ? "" : fmt::format("'{}' is not a size of text from {} to {} pixels, such as 11", text, kLeast, kMost);
}

std::string refuse_nothing(const Words&) { return ""; }

constexpr ViewOption kViewOptions[] = {
    {"title", "TEXT", "title of the picture", true, false, refuse_nothing,
     [](View& view, const Words& words) { view.title = words.front(); }},
    {"figure", "PART", "draw for a paper: as wide as a column (240 points, text of 7) or a page (504, 8)", true, false,
     refuse_figure,
     [](View& view, const Words& words) {
         view.width = figure_of(words.front())->width;
         view.font = figure_of(words.front())->font;
     }},
    {"width", "WIDTH", "width of the picture in pixels, or in cm, mm, in, pt; pages (.html) fill their window", true,
     false, refuse_width, [](View& view, const Words& words) { view.width = *parse_width(words.front()); }},
    {"font-size", "PIXELS", "size of the text; default 11; in svg, png, pdf, tex and gp", true, false, refuse_font,
     [](View& view, const Words& words) { view.font = std::stod(words.front()); }},
    {"without", "PART,...",
     "leave out parts: memory, transfers, legend, titles; of a chart titles; in svg, png, pdf, tex and gp", true, true,
     refuse_parts,
     [](View& view, const Words& words) {
         for (const PicturePart& part : kParts)
             if (std::ranges::count(words, part.name) > 0)
                 view.*part.shown = false;
     }},
    {"device-names", "NAME,...", "names of the rows of a timeline, from device 0 on; in svg, png, pdf, tex and gp",
     false, true, refuse_nothing, [](View& view, const Words& words) { view.names = words; }},
    {"range", "A..B", "the part of the timelines that is drawn, as in 1.2ms..3ms; pages show it first", false, false,
     refuse_range,
     [](View& view, const Words& words) {
         const TimeRange range = *parse_range(words.front());
         view.from = range.from;
         view.to = range.to;
     }},
};

std::string name_in_python(std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
}

}  // namespace

std::span<const ViewOption> view_options() { return kViewOptions; }

View view_of(const std::map<std::string, std::vector<std::string>>& options) {
    View view;
    for (const ViewOption& option : kViewOptions) {
        const std::string name = name_in_python(std::string(option.name));
        const auto given = options.find(name);
        if (given == options.end())
            continue;
        if (const std::string refusal = option.refuse(given->second); !refusal.empty())
            fail("{}: {}", name, refusal);
        option.set(view, given->second);
    }
    return view;
}

}  // namespace pw
