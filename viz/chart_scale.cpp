// Axes of charts: units, ranges and marks.
#include "viz/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

// The last unit that the largest number fills.
template <std::size_t N>
Unit decimal_unit_for(double most, const std::string_view (&names)[N], double filled = 1) {
    double size = 1;
    std::size_t i = 0;
    for (; i + 1 < N && most >= filled * 1000 * size; ++i)
        size *= 1000;
    return {names[i], size};
}

Unit unit_for(Quantity quantity, double most) {
    switch (quantity) {
        case Quantity::Number:
            break;
        case Quantity::Time:
            return decimal_unit_for(most, {"ns", "us", "ms", "s"}, 2);
        case Quantity::Size:
            return bytes_unit_for(static_cast<Bytes>(std::clamp(most, 0.0, 9e18)));
        case Quantity::DecimalSize:
            return decimal_unit_for(most, {"B", "kB", "MB", "GB", "TB"}, 1.5);
        case Quantity::Bandwidth:
            return decimal_unit_for(most, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
        case Quantity::ComputeRate:
            return decimal_unit_for(most, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"});
    }
    return {"", 1};
}

// 1, 2 or 5 times a power of ten, so that about `count` of them fill the range.
double round_step(double range, int count) {
    const double rough = range / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough * 0.999)
            return factor * power;
    return 10 * power;
}

std::vector<double> round_numbers(const Scale& scale, int count) {
    std::vector<double> numbers;
    if (scale.logarithmic) {
        const bool narrow = scale.high / scale.low < 200;
        for (double power = std::pow(10, std::floor(std::log10(scale.low))); power <= scale.high; power *= 10)
            for (const double factor : {1.0, 2.0, 5.0})
                if ((narrow || factor == 1.0) && scale.shows(factor * power))
                    numbers.push_back(factor * power);
        return numbers;
    }
    const double step = round_step(scale.high - scale.low, count);
    const double first = std::ceil(scale.low / step - 1e-9);
    for (int i = 0; first * step + i * step <= scale.high + 1e-9 * step; ++i)
        numbers.push_back((first + i) * step);
    return numbers;
}

}  // namespace

double width_of(const std::string& text) {
    constexpr double kCharacter = 6.8;  // a little more than the average
    return kCharacter * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
               return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
           }));
}

std::string short_number(double number) {
    const double size = std::abs(number);
    return size >= 1e4 && size < 1e7 ? fmt::format("{:.0f}", number) : fmt::format("{:.4g}", number);
}

bool Scale::shows(double number) const {
    const double slack = logarithmic ? 1e-9 * number : 1e-9 * (high - low);
    return number >= low - slack && number <= high + slack;
}

double Scale::pixel(double number) const {
    const double part = logarithmic ? std::log(number / low) / std::log(high / low) : (number - low) / (high - low);
    return from + (to - from) * part;
}

Scale scale_of(const Axis& axis, double low, double high) {
    Scale scale;
    scale.logarithmic = axis.logarithmic;
    scale.unit = unit_for(axis.quantity, high);
    scale.label = scale.unit.name.empty() ? axis.label : fmt::format("{} in {}", axis.label, scale.unit.name);
    scale.low = low / scale.unit.size;
    scale.high = high / scale.unit.size;
    return scale;
}

void add_ticks(Scale& scale, const Axis& axis, bool across) {
    for (std::size_t i = 0; i < axis.names.size(); ++i)
        scale.ticks.push_back({static_cast<double>(i), axis.names[i]});
    if (!axis.names.empty())
        return;
    std::vector<double> numbers = axis.ticks;
    std::sort(numbers.begin(), numbers.end());
    for (double& number : numbers)
        number /= scale.unit.size;
    const bool marked = !numbers.empty();
    if (!marked)
        numbers = round_numbers(scale, across ? std::clamp(static_cast<int>((scale.to - scale.from) / 100), 4, 20) : 8);
    double free_from = -INFINITY;
    for (const double number : numbers) {
        std::string text = fmt::format("{:.6g}", std::abs(number) < 1e-12 ? 0.0 : number);
        const double half = width_of(text) / 2, at = scale.pixel(number);
        if (!scale.shows(number) || (across && marked && at - half < free_from))  // their texts would touch
            continue;
        free_from = at + half + 6;
        scale.ticks.push_back({number, std::move(text)});
    }
}

}  // namespace pw
