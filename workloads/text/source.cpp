// The mistakes of a file, printed with their places.
#include "workloads/text/printable.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kMostMistakes = 20;
constexpr std::size_t kExcerpt = 120;  // longest piece of a line that is shown

std::string_view line_of(std::string_view text, int line) {
    for (int i = 1; i < line; ++i) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos)
            return {};
        text.remove_prefix(end + 1);
    }
    const std::string_view found = text.substr(0, text.find('\n'));
    return found.ends_with('\r') ? found.substr(0, found.size() - 1) : found;
}

// Returns one byte or more per character. Characters that a terminal would act on become question marks.
std::string printable(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
            c = c == '\t' ? ' ' : '?';
    return result;
}

}  // namespace

int Source::add_override(std::string text) {
    overrides_.push_back(std::move(text));
    return static_cast<int>(overrides_.size());
}

void Source::complain(Place place, const std::string& fact, const std::string& help, const std::string& key) {
    mistakes_.push_back({place, fact, help, key});
}

std::string Source::excerpt(Place place) const {
    std::string_view line = place.set > 0 ? std::string_view(overrides_.at(static_cast<std::size_t>(place.set) - 1))
                                          : line_of(text_, place.line);
    const std::size_t at = std::min(line.size(), static_cast<std::size_t>(std::max(place.column - 1, 0)));
    std::size_t begin = at > kExcerpt / 2 && line.size() > kExcerpt ? at - kExcerpt / 2 : 0;
    while (begin > 0 && continues_character(line[begin]))
        --begin;
    std::size_t end = std::min(line.size(), begin + kExcerpt);
    while (end < line.size() && continues_character(line[end]))
        ++end;
    const std::string number = place.set > 0 ? " " : std::to_string(place.line);
    const std::string gutter(number.size(), ' ');
    const auto width =
        std::count_if(line.begin() + static_cast<std::ptrdiff_t>(begin), line.begin() + static_cast<std::ptrdiff_t>(at),
                      [](char c) { return !continues_character(c); });
    std::string text = fmt::format("{} |\n{} | {}\n", gutter, number, printable(line.substr(begin, end - begin)));
    if (place.column > 0)
        text += fmt::format("{} | {}^\n", gutter, std::string(static_cast<std::size_t>(width), ' '));
    return text;
}

std::string Source::print(Place place) const {
    if (place.set > 0) {
        const std::string_view override = overrides_.at(static_cast<std::size_t>(place.set) - 1);
        return printable(override.substr(0, std::min(override.find('='), kExcerpt)));
    }
    return place.line > 0 ? fmt::format("{}:{}:{}", name_, place.line, place.column) : name_;
}

std::string Source::print(const Mistake& mistake) const {
    const Place place = mistake.place;
    return fmt::format("error: {}\n --> {}\n{}  help: {}", mistake.fact, print(place),
                       place.set > 0 || place.line > 0 ? excerpt(place) : "", mistake.help);
}

void Source::throw_if_mistaken() const {
    if (clean())
        return;
    std::vector<Mistake> sorted = mistakes_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
        return std::tie(a.place.set, a.place.line, a.place.column) <
               std::tie(b.place.set, b.place.line, b.place.column);
    });
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), kMostMistakes); ++i)
        text += (i == 0 ? "" : "\n") + print(sorted[i]);
    if (sorted.size() > kMostMistakes)
        text += fmt::format("\nand {} more mistakes", sorted.size() - kMostMistakes);
    const Mistake& first = sorted.front();
    throw Error(ExitCode::BadInput, first.fact, first.help, first.key, print(first.place), text);
}

bool Source::is_mistaken(const std::string& block) const {
    return std::any_of(mistakes_.begin(), mistakes_.end(),
                       [&](const Mistake& mistake) { return mistake.key.starts_with(block + '.'); });
}

}  // namespace pw
