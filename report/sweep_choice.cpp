#include "report/sweep_choice.h"

#include "report/table.h"
#include "workloads/error.h"
#include "workloads/size_text.h"
#include "workloads/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

namespace pw {

namespace {

constexpr SweepMetric kSweepMetrics[] = {
    {"samples/s", "samples/s", Quantity::Number, 1, true,
     [](const Report& report) { return report.metrics.samples_per_second; }},
    {"tokens/s", "tokens/s", Quantity::Number, 1, true,
     [](const Report& report) { return report.tokens > 0 ? work_rate_of(report) : NAN; }},
    {"step-time", "step time", Quantity::Time, 1, false,
     [](const Report& report) { return static_cast<double>(report.metrics.step_time); }},
    {"bubble", "bubble in %", Quantity::Number, 100, false,
     [](const Report& report) { return report.metrics.bubble_rate; }},
    {"peak-memory", "peak memory", Quantity::Size, 1, false,
     [](const Report& report) { return static_cast<double>(largest_peak(report)); }},
    {"reserved", "reserved memory", Quantity::Size, 1, false,
     [](const Report& report) { return static_cast<double>(largest_reserved(report)); }},
};

const SweepMetric* metric_named(const std::string& name) {
    const SweepMetric* const found = std::find_if(std::begin(kSweepMetrics), std::end(kSweepMetrics),
                                                  [&](const SweepMetric& metric) { return metric.name == name; });
    return found == std::end(kSweepMetrics) ? nullptr : found;
}

std::optional<double> parse_number(const std::string& text) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::optional<double> as_double(std::optional<std::int64_t> value) {
    return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

// "inf" is a number of every kind, but does not make a kind.
template <class Parse>
std::optional<KeyNumbers> key_numbers_by(Quantity quantity, const std::vector<std::string>& texts, Parse parse) {
    KeyNumbers numbers{quantity, {}};
    for (const std::string& text : texts) {
        const auto value = text == "inf" ? std::optional<double>(INFINITY) : parse(text);
        if (!value)
            return std::nullopt;
        numbers.values.push_back(*value);
    }
    const auto finite = [](double value) { return std::isfinite(value); };
    if (std::none_of(numbers.values.begin(), numbers.values.end(), finite))
        return std::nullopt;
    return numbers;
}

std::optional<std::size_t> axis_named(const std::vector<SweepAxis>& axes, const std::string& name) {
    const std::vector<std::string> names = short_names(axes);
    for (std::size_t i = 0; i < axes.size(); ++i)
        if (axes[i].key == name || names[i] == name)
            return i;
    return std::nullopt;
}

// The first key with several numbers, else with several values, else with numbers.
std::size_t default_x(const std::vector<SweepAxis>& axes) {
    const auto first = [&](bool numbers, bool several) -> std::optional<std::size_t> {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if ((!numbers || numbers_of(axes[i])) && (!several || axes[i].texts.size() > 1))
                return i;
        return std::nullopt;
    };
    for (const auto& [numbers, several] : {std::pair{true, true}, {false, true}, {true, false}})
        if (const auto found = first(numbers, several))
            return *found;
    return 0;
}

[[noreturn]] void refuse_name(const char* option, const std::string& name, const std::vector<SweepAxis>& axes,
                              bool with_keys) {
    std::vector<std::string> names;
    if (with_keys)
        for (const SweepAxis& axis : axes)
            names.push_back(axis.key);
    for (const SweepMetric& metric : kSweepMetrics)
        names.emplace_back(metric.name);
    fail("{} '{}' is {} of this sweep\n  help: write one of {}", option, name,
         with_keys ? "neither a key nor a number" : "no number", fmt::join(names, ", "));
}

}  // namespace

double number_of(const SweepMetric& metric, const SweepPoint& point) {
    return point.report ? metric.factor * metric.of(*point.report) : NAN;
}

Axis axis_of(const SweepMetric& metric, const Sweep& sweep) {
    const bool decimal = metric.quantity == Quantity::Size && has_decimal_units(common_limit_of(sweep));
    Axis axis{metric.label, decimal ? Quantity::DecimalSize : metric.quantity};
    axis.from_zero = true;
    double least = INFINITY, most = 0;
    for (const SweepPoint& point : sweep.points)
        if (const double number = number_of(metric, point); std::isfinite(number)) {
            least = std::min(least, number);
            most = std::max(most, number);
        }
    constexpr double kFarApart = 8;  // a slow plan must not compress the rest
    axis.logarithmic = metric.quantity != Quantity::Number && least > 0 && most > kFarApart * least;
    return axis;
}

std::optional<KeyNumbers> numbers_of(const SweepAxis& axis) {
    using Parse = std::optional<double> (*)(const std::string& text);
    constexpr std::pair<Quantity, Parse> kParsers[] = {
        {Quantity::Number, parse_number},
        {Quantity::Time, [](const std::string& text) { return as_double(parse_time(text)); }},
        {Quantity::Size, [](const std::string& text) { return as_double(parse_bytes(text)); }},
        {Quantity::Bandwidth, [](const std::string& text) { return parse_bandwidth(text); }},
        {Quantity::ComputeRate, [](const std::string& text) { return parse_flops(text); }},
    };
    for (const auto& [quantity, parse] : kParsers)
        if (auto numbers = key_numbers_by(quantity, axis.texts, parse))
            return numbers;
    return std::nullopt;
}

SweepChoice sweep_choice(const std::vector<SweepAxis>& axes, const SweepView& view, bool has_tokens,
                         bool counts_tokens) {
    SweepChoice choice;
    choice.x = default_x(axes);
    choice.metric = metric_named(counts_tokens ? "tokens/s" : "samples/s");
    if (const auto axis = axis_named(axes, view.x))
        choice.x = *axis;
    else if (!view.x.empty() && !(choice.x_metric = metric_named(view.x)))
        refuse_name("--x", view.x, axes, true);
    if (const auto axis = axis_named(axes, view.y)) {
        if (!view.x.empty() && (choice.x_metric || choice.x == *axis))
            fail("--y {} is a key, which needs another key as --x\n  help: a map of two keys is --x KEY --y KEY",
                 view.y);
        for (std::size_t i = 0; choice.x == *axis && i < axes.size(); ++i)
            if (i != *axis)
                choice.x = i;
        if (choice.x == *axis)
            fail("--y {} is the only key of this sweep, and a map needs two\n  help: write a number, such as samples/s",
                 view.y);
        choice.as_map = true;
    } else if (!view.y.empty() && !(choice.metric = metric_named(view.y))) {
        refuse_name("--y", view.y, axes, true);
    }
    if (!view.z.empty() && !choice.as_map)
        fail("--z is the number in the cells of a map of two keys\n  help: write --x KEY --y KEY --z {}, or --y {}",
             view.z, view.z);
    if (!view.z.empty() && !(choice.metric = metric_named(view.z)))
        refuse_name("--z", view.z, axes, false);
    const SweepMetric* const of_tokens = metric_named("tokens/s");
    if (!has_tokens && (choice.metric == of_tokens || choice.x_metric == of_tokens))
        fail("the plans of this sweep have no tokens/s\n  help: write samples/s");
    return choice;
}

std::string print_number(const SweepMetric& metric, double number, Bytes limit) {
    switch (metric.quantity) {
        case Quantity::Time:
            return print_time(std::llround(number));
        case Quantity::Size:
            return print_bytes_as(std::llround(number), limit);
        default:
            return short_number(number);
    }
}

std::string sweep_numbers() {
    std::string names;
    for (const SweepMetric& metric : kSweepMetrics)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", metric.name);
    return names;
}

void check_drawable(const std::vector<SweepAxis>& axes, const SweepView& view) {
    (void)sweep_choice(axes, view, true, false);
}

}  // namespace pw
