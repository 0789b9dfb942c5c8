#include "exec/cpu/sequence_loops.h"

#include "exec/cpu/lanes.h"
#include "workloads/models/layer_graph.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace pw::cpu {

namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // summed in float before they are added to a sum in double

using LooseLanes = float __attribute__((vector_size(64), may_alias, aligned(4)));
using Integers = std::int32_t __attribute__((vector_size(64)));

[[gnu::always_inline]] inline void load(const float* from, std::int64_t count, float rest, Lanes& value) {
    if (count == kLanes) {
        value = *reinterpret_cast<const LooseLanes*>(from);
        return;
    }
    for (std::int64_t l = 0; l < kLanes; ++l)
        value[l] = l < count ? from[l] : rest;
}

[[gnu::always_inline]] inline void store(const Lanes& value, std::int64_t count, float* to) {
    if (count == kLanes) {
        *reinterpret_cast<LooseLanes*>(to) = value;
        return;
    }
    for (std::int64_t l = 0; l < count; ++l)
        to[l] = value[l];
}

[[gnu::always_inline]] inline double sum_of(const Lanes& value) {
    double sum = 0;
    for (std::int64_t l = 0; l < kLanes; ++l)
        sum += static_cast<double>(value[l]);
    return sum;
}

// Calls visit(offset, count) for every group of sixteen. The last group may be shorter.
template <class Visit>
[[gnu::always_inline]] inline void for_groups(std::int64_t all, Visit visit) {
    for (std::int64_t i = 0; i < all; i += kLanes)
        visit(i, std::min(kLanes, all - i));
}

// Computes e^x for x <= 88 as 2^n e^r with |r| <= ln 2 / 2, and e^r by its series. For x below -87 it returns
// e^-87.
[[gnu::always_inline]] inline void exponential(Lanes& x) {
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number in the low bits
    constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f;  // the parts of ln 2
    const Lanes least = Lanes{} - 87.0f;
    x = x < least ? least : x;  // a NaN is kept
    const Lanes shifted = x * 1.44269504f + kShift;
    const Lanes whole = shifted - kShift;
    const Lanes r = (x - whole * kHigh) - whole * kLow;
    Lanes series = r * (1.0f / 5040) + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    const Lanes zero = Lanes{} + kShift;
    const Integers exponent = (reinterpret_cast<Integers>(shifted) - reinterpret_cast<Integers>(zero) + 127) << 23;
    x = series * reinterpret_cast<Lanes>(exponent);
}

// Computes the cumulative normal distribution at x and its density, with errors below 1e-7 (Abramowitz and Stegun
// 7.1.26).
[[gnu::always_inline]] inline void normal(const Lanes& x, Lanes& below, Lanes& density) {
    const Lanes zero = {};
    const Lanes z = (x > zero ? x : -x) * 0.70710678f;
    const Lanes t = 1.0f / (z * 0.3275911f + 1.0f);
    Lanes power = -z * z;
    exponential(power);
    Lanes tail = t * 1.061405429f - 1.453152027f;
    tail = tail * t + 1.421413741f;
    tail = tail * t - 0.284496736f;
    tail = tail * t + 0.254829592f;
    tail = tail * t * power * 0.5f;
    below = x > zero ? 1.0f - tail : tail;
    density = power * 0.39894228f;
}

// Computes 1 / (1 + e^-x) and 1 / (1 + e^x).
[[gnu::always_inline]] inline void sigmoids(const Lanes& x, Lanes& of_x, Lanes& of_minus_x) {
    const Lanes zero = {};
    Lanes power = x > zero ? -x : x;
    exponential(power);
    const Lanes large = 1.0f / (power + 1.0f), small = power * large;
    of_x = x > zero ? large : small;
    of_minus_x = x > zero ? small : large;
}

}  // namespace

PW_CLONES void add_rows(const float* left, const float* right, float* sum, std::int64_t count) {
    for_groups(
        count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            Lanes a, b;
            load(left + i, lanes, 0, a);
            load(right + i, lanes, 0, b);
            store(a + b, lanes, sum + i);
        });
}

PW_CLONES void normalise_rows(const NormRows& in, const float* scale, const float* shift, float* y) {
    const auto width = static_cast<double>(in.width);
    for (std::int64_t row = 0; row < in.rows; ++row) {
        const float* x = in.x + row * in.width;
        Lanes sum = {}, squares = {}, value;
        if (in.centred) {
            for_groups(
                in.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                    load(x + i, lanes, 0, value);
                    sum += value;
                });
            in.state[2 * row] = static_cast<float>(sum_of(sum) / width);
        }
        const float mean = in.mean(row);
        for_groups(
            in.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                load(x + i, lanes, mean, value);
                squares += (value - mean) * (value - mean);
            });
        const auto inverse = static_cast<float>(1 / std::sqrt(sum_of(squares) / width + kNormEpsilon));
        in.inverse(row) = inverse;
        const auto scaled = [&](auto shifted) __attribute__((always_inline)) {
            for_groups(
                in.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                    Lanes factor, term = {};
                    load(x + i, lanes, mean, value);
                    load(scale + i, lanes, 0, factor);
                    if (shifted)
                        load(shift + i, lanes, 0, term);
                    store((value - mean) * inverse * factor + term, lanes, y + row * in.width + i);
                });
        };
        in.centred ? scaled(std::true_type{}) : scaled(std::false_type{});
    }
}

PW_CLONES void norm_rows_gradient(const NormRows& in, const float* scale, const float* dy, float* dx) {
    const auto width = static_cast<double>(in.width);
    for (std::int64_t row = 0; row < in.rows; ++row) {
        const std::int64_t first = row * in.width;
        const float mean = in.mean(row), inverse = in.inverse(row);
        Lanes levels = {}, tilts = {};
        const auto look = [&](std::int64_t i, std::int64_t lanes, Lanes & slope, Lanes & normal_x)
            __attribute__((always_inline)) {
            Lanes factor;
            load(in.x + first + i, lanes, mean, normal_x);
            load(dy + first + i, lanes, 0, slope);
            load(scale + i, lanes, 0, factor);
            slope *= factor;
            normal_x = (normal_x - mean) * inverse;
        };
        Lanes slope, normal_x;
        for_groups(
            in.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                look(i, lanes, slope, normal_x);
                levels += slope;
                tilts += slope * normal_x;
            });
        const auto level = static_cast<float>(in.centred ? sum_of(levels) / width : 0),
                   tilt = static_cast<float>(sum_of(tilts) / width);
        for_groups(
            in.width, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                look(i, lanes, slope, normal_x);
                store(inverse * (slope - level - normal_x * tilt), lanes, dx + first + i);
            });
    }
}

PW_CLONES void norm_weight_gradient(const NormRows& in, const float* dy, std::int64_t first, std::int64_t count,
                                    double* scale, double* shift) {
    std::fill_n(scale, count, 0.0);
    std::fill_n(shift, count, 0.0);
    for (std::int64_t start = 0; start < in.rows; start += kRowsAtOnce) {
        const std::int64_t end = std::min(in.rows, start + kRowsAtOnce);
        Lanes scales = {}, shifts = {}, x, gradient;
        const auto add_up = [&](auto centred) __attribute__((always_inline)) {
            NormRows rows = in;
            rows.centred = centred;  // known when compiled: no branch in the loop
            for (std::int64_t row = start; row < end; ++row) {
                load(in.x + row * in.width + first, count, 0, x);
                load(dy + row * in.width + first, count, 0, gradient);
                scales += gradient * ((x - rows.mean(row)) * rows.inverse(row));
                shifts += gradient;
            }
        };
        in.centred ? add_up(std::true_type{}) : add_up(std::false_type{});
        for (std::int64_t l = 0; l < count; ++l) {
            scale[l] += static_cast<double>(scales[l]);
            shift[l] += static_cast<double>(shifts[l]);
        }
    }
}

PW_CLONES void gelu(const float* x, float* y, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        Lanes below, density;
        normal(lanes(x + i), below, density);
        lanes(y + i) = lanes(x + i) * below;
    }
}

PW_CLONES void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        Lanes below, density;
        normal(lanes(x + i), below, density);
        lanes(dx + i) = lanes(dy + i) * (below + lanes(x + i) * density);
    }
}

PW_CLONES void gated_silu(const float* gate, const float* up, float* y, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        Lanes sigmoid, rest;
        sigmoids(lanes(gate + i), sigmoid, rest);
        lanes(y + i) = lanes(gate + i) * sigmoid * lanes(up + i);
    }
}

PW_CLONES void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                                   std::int64_t groups) {
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        const Lanes x = lanes(gate + i), slope = lanes(dy + i);
        Lanes sigmoid, rest;
        sigmoids(x, sigmoid, rest);
        if (dgate)
            lanes(dgate + i) = slope * lanes(up + i) * sigmoid * (x * rest + 1.0f);
        if (dup)
            lanes(dup + i) = slope * x * sigmoid;
    }
}

PW_CLONES void turn_heads(const float* x, const Turn& turn, float* y, std::int64_t heads) {
    for (std::int64_t head = 0; head < heads; ++head, x += 2 * turn.half, y += 2 * turn.half)
        for_groups(
            turn.half, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
                Lanes first, second, cosine, sine;
                load(x + i, lanes, 0, first);
                load(x + turn.half + i, lanes, 0, second);
                load(turn.cosines + i, lanes, 0, cosine);
                load(turn.sines + i, lanes, 0, sine);
                sine *= turn.direction;
                store(first * cosine - second * sine, lanes, y + i);
                store(second * cosine + first * sine, lanes, y + turn.half + i);
            });
}

PW_CLONES void causal_softmax(float* scores, std::int64_t seen, std::int64_t count) {
    const float largest = *std::max_element(scores, scores + seen);
    Lanes sum = {}, value;
    for_groups(
        seen, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            load(scores + i, lanes, largest, value);
            value -= largest;
            exponential(value);
            store(value, lanes, scores + i);
            for (std::int64_t l = lanes; l < kLanes; ++l)
                value[l] = 0;
            sum += value;
        });
    const auto factor = static_cast<float>(1 / sum_of(sum));
    for_groups(
        seen, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            load(scores + i, lanes, 0, value);
            store(value * factor, lanes, scores + i);
        });
    std::fill(scores + seen, scores + count, 0.0f);
}

PW_CLONES void softmax_gradient(const float* probabilities, float* slopes, std::int64_t count, float factor) {
    Lanes products = {}, probability, slope;
    for_groups(
        count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            load(probabilities + i, lanes, 0, probability);
            load(slopes + i, lanes, 0, slope);
            products += probability * slope;
        });
    const auto mean = static_cast<float>(sum_of(products));
    for_groups(
        count, [&](std::int64_t i, std::int64_t lanes) __attribute__((always_inline)) {
            load(probabilities + i, lanes, 0, probability);
            load(slopes + i, lanes, 0, slope);
            store(factor * probability * (slope - mean), lanes, slopes + i);
        });
}

}  // namespace pw::cpu
