// The word that was meant, where a word is not known.
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kLongestCompared = 64;  // a distance takes the product of the lengths

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        before = std::exchange(above, row);
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            row[j + 1] = std::min({above[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, above[j + 1] + 1});
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
    }
    return row.back();
}

// What people type for a value here: words of YAML 1.1, PyTorch and Megatron-LM, in small letters.
struct OtherWord {
    std::string_view word, value;
};
constexpr OtherWord kOtherWords[] = {
    {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"float32", "fp32"}, {"float", "fp32"},
    {"float8", "fp8"},    {"true", "true"},    {"yes", "true"},  {"on", "true"},      {"1", "true"},
    {"false", "false"},   {"no", "false"},     {"off", "false"}, {"0", "false"},      {"true", "full"},
    {"yes", "full"},      {"true", "all"},     {"yes", "all"},   {"full", "all"},     {"all", "full"},
    {"false", "none"},    {"no", "none"},      {"off", "none"},  {"null", "none"},    {"true", "auto"},
};

std::string in_small_letters(std::string_view text) {
    std::string small(text);
    std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return small;
}

}  // namespace

std::optional<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
    std::optional<std::string_view> best;
    std::size_t smallest = std::max<std::size_t>(1, std::min<std::size_t>(word.size() / 3, 3)) + 1;
    for (const std::string_view candidate : candidates) {
        if (word.size() > kLongestCompared)
            break;
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < smallest) {
            smallest = distance;
            best = candidate;
        }
    }
    return best;
}

std::string_view meant_by(std::string_view word, const std::vector<std::string_view>& choices) {
    const std::string small = in_small_letters(word);
    for (const OtherWord& other : kOtherWords)
        if (other.word == small && std::ranges::count(choices, other.value) > 0)
            return other.value;
    for (const std::string_view choice : choices)
        if (in_small_letters(choice) == small)
            return choice;
    return nearest(word, choices).value_or("");
}

}  // namespace pw
