#include "workloads/text/yaml.h"

#include "workloads/text/files.h"
#include "workloads/text/yaml_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kLongestWord = 64;  // no key or number is longer

std::string joined(const std::vector<std::string_view>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

// A sign only at the front, no leading zeros, which some readers take for octal.
bool leading_zero(std::string_view digits) {
    if (digits.starts_with('-'))
        digits.remove_prefix(1);
    return digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
}

std::string without_zeros(std::string_view digits) {
    const std::string sign = digits.starts_with('-') ? "-" : "";
    digits.remove_prefix(std::min(digits.find_first_not_of("-0"), digits.size() - 1));
    return sign + std::string(digits);
}

template <class T>
bool parse_all(const std::string& text, T& value) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc{} && stop == end;
}

// Returns the help for a text that is no whole number in digits: "1e9", or more digits than 64 bits hold.
std::string help_for_integer(const std::string& text, std::int64_t least, std::int64_t most) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (stop != text.data() + text.size() || (error == std::errc{} && value != std::floor(value)))
        return fmt::format("write digits only, from {} to {}", least, most);
    constexpr double kEnd = 0x1p63;  // no double below it is above a number of 64 bits
    if (error != std::errc{} || std::abs(value) >= kEnd || std::abs(value) > static_cast<double>(most))
        return text.starts_with('-') ? fmt::format("it must be at least {}", least)
                                     : fmt::format("it is too large: at most {}", most);
    return fmt::format("write {}", static_cast<std::int64_t>(value));
}

std::string in_range(double value, double least, double most) {
    if (value < least)
        return fmt::format("at least {}", least);
    return fmt::format("at most {}", most);
}

}  // namespace

Yaml Yaml::parse(std::shared_ptr<Source> source, const std::vector<std::string>& set) {
    auto root = std::make_shared<YamlNode>(parse_tree(*source));
    if (root->place.line == 0)
        root->place = {1, 1};
    apply_overrides(*source, *root, set);
    const Place place = root->place;
    return Yaml(std::move(source), std::move(root), "", place);
}

Yaml Yaml::load(const std::string& path, const std::vector<std::string>& set) {
    return parse(std::make_shared<Source>(path, read_text(path, "name a YAML file that can be read")), set);
}

Yaml Yaml::of(std::shared_ptr<Source> source, YamlNode root) {
    const Place place = root.place;
    return Yaml(std::move(source), std::make_shared<const YamlNode>(std::move(root)), "", place);
}

// Shares the ownership of the whole tree.
Yaml Yaml::child(const YamlNode& node, std::string path) const {
    return Yaml(source_, std::shared_ptr<const YamlNode>(node_, &node), std::move(path), place());
}

Yaml Yaml::operator[](std::string_view key) const {
    std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
    if (is_map())
        for (std::size_t i = 0; i < node_->keys.size(); ++i)
            if (node_->keys[i].name == key)
                return child(node_->items[i], std::move(path));
    return Yaml(source_, nullptr, std::move(path), place());
}

std::vector<Yaml> Yaml::items() const {
    std::vector<Yaml> result;
    if (!is_list()) {
        if (node_)
            complain(fmt::format("'{}' must be a list", path_),
                     is_text() && !node_->text.empty() && node_->text.size() <= kLongestWord
                         ? fmt::format("write [{}]", node_->text)
                         : "write it as [first, second]");
        return result;
    }
    for (std::size_t i = 0; i < node_->items.size(); ++i)
        result.push_back(child(node_->items[i], fmt::format("{}[{}]", path_, i)));
    return result;
}

std::vector<std::pair<std::string, Yaml>> Yaml::entries() const {
    std::vector<std::pair<std::string, Yaml>> result;
    if (!is_map()) {
        if (present())
            complain(path_.empty() ? "the file must hold keys with values" : fmt::format("'{}' must be a map", path_),
                     "write it as {key: value}, or as indented lines");
        return result;
    }
    for (std::size_t i = 0; i < node_->keys.size(); ++i) {
        const std::string& key = node_->keys[i].name;
        result.emplace_back(key, child(node_->items[i], path_.empty() ? key : fmt::format("{}.{}", path_, key)));
    }
    return result;
}

namespace {

// Returns the key for a foreign name in the block `path`, with its block if the block differs from `path`.
std::string name_here(std::string_view name, const std::string& path, std::span<const OtherName> others) {
    const auto other = std::find_if(others.begin(), others.end(), [&](const OtherName& one) {
        return one.name == name && (one.follows.empty() || one.key == path);
    });
    if (other == others.end())
        return {};
    if (!other->follows.empty())
        return std::string(other->follows);
    const std::string block = path + '.';
    const bool same = other->key.starts_with(block) && !path.empty();
    const std::string_view key = same ? other->key.substr(block.size()) : other->key;
    return key == name ? "" : fmt::format("here it is '{}'", key);
}

}  // namespace

void Yaml::allow(const std::vector<std::string_view>& known, std::span<const OtherName> others) const {
    entries();  // complains unless this is a map
    if (!is_map())
        return;
    for (const YamlNode::Key& key : node_->keys) {
        if (std::find(known.begin(), known.end(), key.name) != known.end())
            continue;
        std::optional<std::string_view> guess = nearest(key.name, known);
        std::string here = name_here(key.name, path_, others);
        const auto plural = std::ranges::find(known, key.name + 's');
        const auto longer =  // 'sequence' for 'sequence_length'
            std::ranges::find_if(known, [&](std::string_view name) { return name.starts_with(key.name + '_'); });
        if (plural != known.end() || (!guess && longer != known.end())) {
            guess = plural != known.end() ? *plural : *longer;
            here.clear();
        }
        const std::string where = path_.empty() ? "" : fmt::format(" in '{}'", path_);
        source_->complain(key.place, fmt::format("unknown key '{}'{}", key.name, where),
                          !here.empty() ? here
                          : guess       ? fmt::format("did you mean '{}'?", *guess)
                                        : fmt::format("known keys: {}", joined(known)));
    }
}

const std::string* Yaml::scalar(std::string_view wanted) const {
    if (!node_)
        return nullptr;
    if (is_text())
        return &node_->text;
    const std::string_view found = is_list() ? "is a list" : is_map() ? "is a map" : "has no value";
    complain(fmt::format("'{}' {}", path_, found), fmt::format("write {}", wanted));
    return nullptr;
}

std::string Yaml::text(std::string_view fallback) const {
    const std::string* found = scalar("a single text");
    return found ? *found : std::string(fallback);
}

std::int64_t Yaml::integer(std::int64_t fallback, std::int64_t least, std::int64_t most) const {
    const std::string* found = scalar("a whole number");
    if (!found)
        return fallback;
    std::int64_t value = 0;
    if (found->find_first_not_of("-0123456789") == std::string::npos && leading_zero(*found)) {
        complain(fmt::format("'{}' is {}: some readers take a leading zero for octal", path_, *found),
                 fmt::format("write {}", without_zeros(*found)));
        return fallback;
    }
    if (!parse_all(*found, value)) {
        const std::string help = help_for_integer(*found, least, most);
        const bool is_number = !help.starts_with("write digits");
        complain(fmt::format("'{}' is '{}'{}", path_, *found, is_number ? "" : ", which is no whole number"), help);
        return fallback;
    }
    if (value < least || value > most) {
        complain(fmt::format("'{}' is {}", path_, value), value < least ? fmt::format("it must be at least {}", least)
                                                                        : fmt::format("it must be at most {}", most));
        return fallback;
    }
    return value;
}

double Yaml::number(double fallback, double least, double most) const {
    const std::string* found = scalar("a number");
    if (!found)
        return fallback;
    double value = 0;
    if (leading_zero(*found) || !parse_all(*found, value) || !std::isfinite(value)) {
        complain(fmt::format("'{}' is '{}', which is no number", path_, *found), "write it as 10, 0.9 or 1e-3");
        return fallback;
    }
    if (value < least || value > most) {
        complain(fmt::format("'{}' is {}", path_, *found), fmt::format("it must be {}", in_range(value, least, most)));
        return fallback;
    }
    return value;
}

bool Yaml::boolean(bool fallback) const {
    const std::string* found = scalar("true or false");
    if (!found)
        return fallback;
    if (*found != "true" && *found != "false") {
        const std::string_view guess = meant_by(*found, {"true", "false"});
        complain(fmt::format("'{}' is '{}'", path_, *found),
                 guess.empty() ? "write true or false" : fmt::format("write {}", guess));
        return fallback;
    }
    return *found == "true";
}

namespace {

bool wanted_is_positive(std::string_view example) { return example.starts_with("a positive"); }

// "0", "0 GB/s", "0.0".
bool is_zero(const std::string& text) {
    const std::size_t end = std::min(text.find_first_not_of("0."), text.size());
    return end > 0 && (end == text.size() || text[end] == ' ' || std::isalpha(static_cast<unsigned char>(text[end])));
}

std::string without_spaces(std::string text) {
    std::erase(text, ' ');
    return text;
}

}  // namespace

template <class T, class Parse>
T Yaml::quantity(T fallback, Parse read, std::string (*meant)(std::string_view), std::string_view wanted,
                 std::string_view example) const {
    const std::string* found = scalar(fmt::format("{}: {}", wanted, example));
    if (!found)
        return fallback;
    if (const std::optional<T> value = read(*found))
        return *value;
    const std::string guess = meant(*found);
    if (wanted_is_positive(example) && is_zero(*found)) {
        complain(fmt::format("'{}' is '{}', and must be above 0", path_, *found), fmt::format("write {}", example));
        return fallback;
    }
    if (!guess.empty() &&
        without_spaces(guess) == without_spaces(*found)) {  // the text is right, but no value is so large or small
        complain(fmt::format("'{}' is '{}', which is too {}", path_, *found,
                             found->find("e-") == std::string::npos ? "large" : "small"),
                 fmt::format("write {}", example));
        return fallback;
    }
    const bool bare = !found->empty() && found->find_first_not_of("0123456789.eE+") == std::string::npos &&
                      std::isdigit(static_cast<unsigned char>(found->front()));
    complain(
        bare ? fmt::format("'{}' is '{}', a number without a unit", path_, *found)
             : fmt::format("'{}' is '{}', which is no {}", path_, *found, wanted),
        guess.empty() ? fmt::format("write {}", example) : fmt::format("did you mean {}? Write {}", guess, example));
    return fallback;
}

Ns Yaml::time(Ns fallback) const {
    return quantity(fallback, parse_time, meant_time, "time", "a number and ns, us, ms or s, such as 1.5 ms");
}

Bytes Yaml::bytes(Bytes fallback) const {
    return quantity(fallback, parse_bytes, meant_bytes, "size",
                    "a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 16 GiB, or inf");
}

double Yaml::bandwidth(double fallback) const {
    return quantity(fallback, parse_bandwidth, meant_bandwidth, "bandwidth",
                    "a positive number and B/s, kB/s, MB/s, GB/s, Gbit/s or Gbps, such as 10 GB/s, or inf");
}

double Yaml::flops(double fallback) const {
    return quantity(fallback, parse_flops, meant_flops, "rate",
                    "a positive number and MFLOP/s, GFLOP/s or TFLOP/s, such as 150 GFLOP/s");
}

std::string Yaml::choice(std::string_view fallback, const std::vector<std::string_view>& choices) const {
    const std::string* found = scalar(fmt::format("one of: {}", joined(choices)));
    if (!found)
        return std::string(fallback);
    if (std::find(choices.begin(), choices.end(), *found) != choices.end())
        return *found;
    const std::string_view guess = meant_by(*found, choices);
    complain(fmt::format("'{}' is '{}'", path_, *found),
             (guess.empty() ? "" : fmt::format("did you mean '{}'? ", guess)) +
                 fmt::format("it can be: {}", joined(choices)));
    return std::string(fallback);
}

Place Yaml::place() const { return node_ && (node_->place.line > 0 || node_->place.set > 0) ? node_->place : parent_; }

void Yaml::complain(const std::string& fact, const std::string& help) const {
    source_->complain(place(), fact, help, path_);
}

std::string yaml_text(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            result += fmt::format("\\{}", c);
        else if (static_cast<unsigned char>(c) < 0x20)
            result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
            result += c;
    }
    return result + "\"";
}

Ns read_time(const Yaml& at, Ns fallback, Ns least) {
    const Ns time = at.time(fallback);
    if (time >= least && time <= kLongestTime)
        return time;
    at.complain(fmt::format("'{}' is {}", at.path(), exact_time(time)),
                time < least ? fmt::format("it must be at least {}", exact_time(least))
                             : fmt::format("it must be at most {}", exact_time(kLongestTime)));
    return fallback;
}

}  // namespace pw
