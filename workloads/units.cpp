#include "workloads/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

namespace pw {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

template <class T>
struct Unit {
    std::string_view name;
    T factor;
};

// The last two spellings of a microsecond, with the micro sign and with the letter mu, are only read.
constexpr std::array<Unit<std::int64_t>, 6> kTimes{
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"\u00b5s", 1'000}, {"\u03bcs", 1'000}, {"ns", 1}}};
constexpr std::array<Unit<std::int64_t>, 9> kSizes{{{"TiB", std::int64_t{1} << 40},
                                                    {"TB", 1'000'000'000'000},
                                                    {"GiB", std::int64_t{1} << 30},
                                                    {"GB", 1'000'000'000},
                                                    {"MiB", std::int64_t{1} << 20},
                                                    {"MB", 1'000'000},
                                                    {"KiB", std::int64_t{1} << 10},
                                                    {"kB", 1'000},
                                                    {"B", 1}}};
// Printing keeps to powers of 1000.
constexpr std::array<Unit<double>, 5> kBandwidths{
    {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}}};
constexpr std::array<Unit<double>, 13> kReadBandwidths{{{"TiB/s", 0x1p40},
                                                        {"GiB/s", 0x1p30},
                                                        {"MiB/s", 0x1p20},
                                                        {"KiB/s", 0x1p10},
                                                        {"Tbit/s", 1.25e11},
                                                        {"Gbit/s", 1.25e8},
                                                        {"Mbit/s", 1.25e5},
                                                        {"kbit/s", 125},
                                                        {"bit/s", 0.125},
                                                        {"Tbps", 1.25e11},
                                                        {"Gbps", 1.25e8},
                                                        {"Mbps", 1.25e5},
                                                        {"kbps", 125}}};
constexpr std::array<Unit<double>, 6> kRates{
    {{"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}, {"kFLOP/s", 1e3}, {"FLOP/s", 1}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal number without sign, split from the unit after it.
struct Quantity {
    std::string_view whole, fraction;
    int exponent = 0;
    std::string_view number;  // all of the above
    std::string_view unit;
};

std::string_view take_digits(std::string_view& rest) {
    std::size_t length = 0;
    while (length < rest.size() && is_digit(rest[length]))
        ++length;
    const std::string_view digits = rest.substr(0, length);
    rest.remove_prefix(length);
    return digits;
}

// "e-3". An "e" without a digit after it belongs to the unit. False when the exponent is out of reason.
bool take_exponent(std::string_view& rest, int& exponent) {
    if (rest.empty() || (rest[0] != 'e' && rest[0] != 'E'))
        return true;
    std::string_view tail = rest.substr(1);
    const bool negative = tail.starts_with('-');
    if (tail.starts_with('-') || tail.starts_with('+'))
        tail.remove_prefix(1);
    const std::string_view digits = take_digits(tail);
    if (digits.empty())
        return true;
    if (digits.size() > 3)
        return false;
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    exponent = negative ? -exponent : exponent;
    rest = tail;
    return true;
}

std::optional<Quantity> split_quantity(std::string_view text) {
    Quantity quantity;
    std::string_view rest = text;
    quantity.whole = take_digits(rest);
    if (quantity.whole.empty() || (quantity.whole.size() > 1 && quantity.whole[0] == '0'))
        return std::nullopt;  // "010" would be read as eight or ten, depending on the reader
    if (rest.starts_with('.')) {
        rest.remove_prefix(1);
        quantity.fraction = take_digits(rest);
        if (quantity.fraction.empty())
            return std::nullopt;
    }
    if (!take_exponent(rest, quantity.exponent))
        return std::nullopt;
    quantity.number = text.substr(0, text.size() - rest.size());
    while (rest.starts_with(' '))
        rest.remove_prefix(1);
    quantity.unit = rest;
    return quantity;
}

// mantissa x 10^exponent x factor, rounded half up. Exact, hence no double. Digits after the 25th that counts change
// nothing that an integer could hold.
std::optional<std::int64_t> exact_integer(const Quantity& quantity, std::int64_t factor) {
    constexpr Wide kRoom = ~Wide{0} / 10;
    Wide value = 0;
    std::int64_t exponent = quantity.exponent - static_cast<std::int64_t>(quantity.fraction.size());
    for (const std::string_view digits : {quantity.whole, quantity.fraction})
        for (const char digit : digits) {
            // 10^25 x 2^40 still fits into 128 bits
            if (value >= Wide{1'000'000'000'000} * 1'000'000'000'000)
                ++exponent;
            else
                value = value * 10 + static_cast<unsigned>(digit - '0');
        }
    if (value == 0)
        return 0;
    value *= static_cast<std::uint64_t>(factor);
    for (; exponent > 0; --exponent) {
        if (value > kRoom)
            return std::nullopt;
        value *= 10;
    }
    Wide divisor = 1;
    for (; exponent < 0; ++exponent) {
        if (divisor > kRoom)
            return 0;  // below any half
        divisor *= 10;
    }
    const Wide rest = value % divisor;
    const Wide rounded = value / divisor + (rest != 0 && rest >= divisor / 2 ? 1 : 0);
    if (rounded > static_cast<Wide>(kLargest))
        return std::nullopt;
    return static_cast<std::int64_t>(rounded);
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::span<const Unit<std::int64_t>> units) {
    const std::optional<Quantity> quantity = split_quantity(text);
    if (!quantity)
        return std::nullopt;
    for (const Unit<std::int64_t>& unit : units)
        if (unit.name == quantity->unit)
            return exact_integer(*quantity, unit.factor);
    return std::nullopt;
}

std::optional<double> parse_real(std::string_view text, std::initializer_list<std::span<const Unit<double>>> tables) {
    const std::optional<Quantity> quantity = split_quantity(text);
    if (!quantity)
        return std::nullopt;
    double number = 0;
    const char* end = quantity->number.data() + quantity->number.size();
    const auto [stop, error] = std::from_chars(quantity->number.data(), end, number);
    if (error != std::errc{} || stop != end)
        return std::nullopt;
    for (const std::span<const Unit<double>> table : tables)
        for (const Unit<double>& unit : table)
            if (unit.name == quantity->unit) {
                const double value = number * unit.factor;
                return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
            }
    return std::nullopt;
}

// A unit without the differences in spelling: "gb/s" for GB/s, Gbit/s and Gbps alike.
std::string plain_unit(std::string_view unit) {
    constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
        {"seconds", "s"}, {"second", "s"}, {"sec", "s"},   {"bytes", "b"},        {"byte", "b"},
        {"bits", "b"},    {"bit", "b"},    {"bps", "b/s"}, {"flops/s", "flop/s"}, {"flops", "flop/s"}};
    std::string plain(unit);
    for (char& c : plain)
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const auto& [long_form, short_form] : kSpellings)
        if (const std::size_t at = plain.find(long_form); at != std::string::npos) {
            plain.replace(at, long_form.size(), short_form);
            break;
        }
    return plain;
}

// The units that equal the text's unit with a missing `ending`, else the units that differ only in spelling.
template <class T>
std::string meant(std::string_view text, std::initializer_list<std::span<const Unit<T>>> tables,
                  std::initializer_list<std::string_view> endings) {
    const std::optional<Quantity> quantity = split_quantity(text);
    if (!quantity || quantity->unit.empty())
        return "";
    const auto units_like = [&](auto&& is_like) {
        std::string found;
        for (const std::span<const Unit<T>> table : tables)
            for (const Unit<T>& unit : table)
                if (is_like(unit.name))
                    found += fmt::format("{}{} {}", found.empty() ? "" : " or ", quantity->number, unit.name);
        return found;
    };
    for (const bool exact : {true, false})
        for (const std::string_view ending : endings) {
            const std::string unit = std::string(quantity->unit) + std::string(ending);
            const std::string found = units_like([&](std::string_view name) {
                return exact ? name == unit : !name.ends_with("bps") && plain_unit(name) == plain_unit(unit);
            });
            if (!found.empty())
                return found;
        }
    return "";
}

std::string four_digits(double value) {
    const int decimals = value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
    return fmt::format("{:.{}f}", value, decimals);
}

// The largest unit that leaves no fraction.
std::string exact_text(std::int64_t value, std::span<const Unit<std::int64_t>> units) {
    std::string best = fmt::format("{} {}", value, units.back().name);
    std::int64_t fewest = value;
    for (const Unit<std::int64_t>& unit : units)
        if (value % unit.factor == 0 && value / unit.factor < fewest) {
            fewest = value / unit.factor;
            best = fmt::format("{} {}", fewest, unit.name);
        }
    return best;
}

template <class Parse>
std::string exact_text(double value, std::span<const Unit<double>> units, Parse parse) {
    for (const Unit<double>& unit : units) {
        if (value < unit.factor)
            continue;
        std::string text = fmt::format("{} {}", value / unit.factor, unit.name);
        if (parse(text) == value)
            return text;
    }
    return fmt::format("{} {}", value, units.back().name);
}

template <class T>
std::vector<std::string_view> names_of_units(std::initializer_list<std::span<const Unit<T>>> tables) {
    std::vector<std::string_view> names;
    for (const std::span<const Unit<T>>& units : tables)
        for (const Unit<T>& unit : units)
            names.push_back(unit.name);
    return names;
}

}  // namespace

std::optional<Ns> parse_time(std::string_view text) { return parse_integer(text, kTimes); }

std::optional<Bytes> parse_bytes(std::string_view text) {
    if (text == "inf")
        return kLargest;
    return parse_integer(text, kSizes);
}

std::optional<double> parse_bandwidth(std::string_view text) {
    if (text == "inf")
        return std::numeric_limits<double>::infinity();
    return parse_real(text, {kBandwidths, kReadBandwidths});
}

std::optional<double> parse_flops(std::string_view text) { return parse_real(text, {kRates}); }

std::string meant_time(std::string_view text) { return meant<std::int64_t>(text, {kTimes}, {""}); }

std::string meant_bytes(std::string_view text) { return meant<std::int64_t>(text, {kSizes}, {"", "b"}); }

std::string meant_bandwidth(std::string_view text) {
    return meant<double>(text, {kBandwidths, kReadBandwidths}, {"", "/s", "b/s"});
}

std::string meant_flops(std::string_view text) { return meant<double>(text, {kRates}, {"", "/s", "flop/s"}); }

std::vector<std::string_view> time_units() { return names_of_units<std::int64_t>({kTimes}); }
std::vector<std::string_view> size_units() { return names_of_units<std::int64_t>({kSizes}); }
std::vector<std::string_view> bandwidth_units() { return names_of_units<double>({kBandwidths, kReadBandwidths}); }
std::vector<std::string_view> rate_units() { return names_of_units<double>({kRates}); }

std::string print_time(Ns time) {
    if (time < 0)
        return "-" + print_time(time == std::numeric_limits<Ns>::min() ? kLargest : -time);
    if (time < 1000)
        return fmt::format("{} ns", time);
    const double value = static_cast<double>(time);
    if (value / 1e3 < 999.95)
        return four_digits(value / 1e3) + " us";
    if (value / 1e6 < 999.95)
        return four_digits(value / 1e6) + " ms";
    return four_digits(value / 1e9) + " s";
}

std::string print_bytes(Bytes size) {
    if (size == kLargest)
        return "inf";
    if (size < 0)
        return "-" + print_bytes(size == std::numeric_limits<Bytes>::min() ? kLargest - 1 : -size);
    if (size < 1024)
        return fmt::format("{} B", size);
    double value = static_cast<double>(size);
    std::string_view name;
    for (const std::string_view next : {"KiB", "MiB", "GiB", "TiB"}) {
        value /= 1024;
        name = next;
        if (value < 1023.5)
            break;
    }
    return fmt::format("{} {}", four_digits(value), name);
}

std::string exact_time(Ns time) { return exact_text(time, kTimes); }

std::string exact_bytes(Bytes size) { return size == kLargest ? "inf" : exact_text(size, kSizes); }

std::string exact_bandwidth(double bandwidth) {
    return std::isinf(bandwidth) ? "inf" : exact_text(bandwidth, kBandwidths, parse_bandwidth);
}

std::string exact_flops(double rate) { return exact_text(rate, kRates, parse_flops); }

}  // namespace pw
