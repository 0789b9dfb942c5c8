#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

#include <algorithm>
#include <cmath>

namespace pw::cpu {

namespace {

using Bits = std::int32_t __attribute__((vector_size(64), may_alias));

inline Bits& bits_of(std::uint32_t* mask) { return *reinterpret_cast<Bits*>(mask); }
inline const Bits& bits_of(const std::uint32_t* mask) { return *reinterpret_cast<const Bits*>(mask); }
inline std::int32_t bit(std::int64_t k) { return static_cast<std::int32_t>(std::uint32_t{1} << k); }

template <class Width>
[[gnu::always_inline]] inline void average(const float* x, float* y, std::int64_t pixels, std::int64_t blocks) {
    const auto* from = pixels_at<Width>(x);
    for (std::int64_t b = 0; b < blocks; ++b) {
        typename Width::Pixel sum = {};
        for (std::int64_t p = 0; p < pixels; ++p)
            sum += from[b * pixels + p];
        pixels_at<Width>(y)[b] = sum / static_cast<float>(pixels);
    }
}

template <class Width>
[[gnu::always_inline]] inline void spread(const float* dy, float* dx, std::int64_t pixels, std::int64_t blocks) {
    auto* to = pixels_at<Width>(dx);
    for (std::int64_t b = 0; b < blocks; ++b) {
        const typename Width::Pixel share = pixels_at<Width>(dy)[b] / static_cast<float>(pixels);
        for (std::int64_t p = 0; p < pixels; ++p)
            to[b * pixels + p] = share;
    }
}

struct Single {
    using Pixel = float;
};

template <class Width>
[[gnu::always_inline]] inline void repeat(const float* x, float* y, std::int64_t rows, std::int64_t width,
                                          std::int64_t times) {
    const auto* from = reinterpret_cast<const typename Width::Pixel*>(x);
    auto* to = reinterpret_cast<typename Width::Pixel*>(y);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t down = 0; down < times; ++down)
            for (std::int64_t column = 0; column < width; ++column)
                for (std::int64_t right = 0; right < times; ++right)
                    *to++ = from[row * width + column];
}

template <class Width>
[[gnu::always_inline]] inline void sum_repeated(const float* dy, float* dx, std::int64_t rows, std::int64_t width,
                                                std::int64_t times) {
    const auto* from = reinterpret_cast<const typename Width::Pixel*>(dy);
    auto* to = reinterpret_cast<typename Width::Pixel*>(dx);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < width; ++column) {
            typename Width::Pixel sum = {};
            for (std::int64_t down = 0; down < times; ++down)
                for (std::int64_t right = 0; right < times; ++right)
                    sum += from[((row * times + down) * width + column) * times + right];
            *to++ = sum;
        }
}

}  // namespace

PW_CLONES void add_relu(const float* left, const float* right, float* y, std::uint32_t* mask, std::int64_t groups,
                        bool streamed) {
    const Lanes zero = {};
    for (std::int64_t first = 0; first < groups; first += kMaskGroups) {
        const std::int64_t count = std::min(kMaskGroups, groups - first);
        Bits passed = {};
        for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t i = (first + k) * kLanes;
            const Lanes sum = lanes(left + i) + lanes(right + i);
            const Bits stopped = sum <= zero;  // NaN passes
            write(stopped ? zero : sum, &lanes(y + i), streamed);
            passed |= ~stopped & bit(k);
        }
        if (mask)
            bits_of(mask + first / kMaskGroups * kLanes) = passed;
    }
    finish_writes();
}

PW_CLONES void add(const float* left, const float* right, float* y, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups; ++i)
        lanes(y + i * kLanes) = lanes(left + i * kLanes) + lanes(right + i * kLanes);
}

PW_CLONES void masked_copies(const float* dy, const std::uint32_t* mask, float* first, float* second,
                             std::int64_t groups, bool streamed) {
    for (std::int64_t done = 0; done < groups; done += kMaskGroups) {
        const std::int64_t count = std::min(kMaskGroups, groups - done);
        const Bits passed = bits_of(mask + done / kMaskGroups * kLanes);
        for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t i = (done + k) * kLanes;
            // Spreads the bit over its lane, since GCC compares vectors that are wider than the machine's element
            // by element.
            const Bits kept = (passed << static_cast<std::int32_t>(31 - k)) >> 31;
            const Bits bits = reinterpret_cast<const Bits&>(lanes(dy + i)) & kept;
            const Lanes gradient = reinterpret_cast<const Lanes&>(bits);
            if (first)
                write(gradient, &lanes(first + i), streamed);
            if (second)
                write(gradient, &lanes(second + i), streamed);
        }
    }
    finish_writes();
}

PW_CLONES bool any_nan(const float* x, std::int64_t groups) {
    Bits found = {};
    for (std::int64_t i = 0; i < groups; ++i)
        found |= lanes(x + i * kLanes) != lanes(x + i * kLanes);
    std::int32_t any = 0;
    for (std::int64_t l = 0; l < kLanes; ++l)
        any |= found[l];
    return any != 0;
}

PW_CLONES void relu(const float* x, float* y, std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i) {
        const Lanes value = lanes(x + i * kLanes);
        lanes(y + i * kLanes) = value <= zero ? zero : value;
    }
}

PW_CLONES void relu_gradient(const float* x, const float* dy, float* dx, std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i)
        lanes(dx + i * kLanes) = lanes(x + i * kLanes) <= zero ? zero : lanes(dy + i * kLanes);
}

PW_CLONES void copies(const float* dy, float* first, float* second, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups; ++i) {
        if (first)
            lanes(first + i * kLanes) = lanes(dy + i * kLanes);
        if (second)
            lanes(second + i * kLanes) = lanes(dy + i * kLanes);
    }
}

PW_CLONES void average_blocks(const float* x, float* y, std::int64_t pixels, std::int64_t blocks,
                              std::int64_t channels) {
    channels == Wide::channels ? average<Wide>(x, y, pixels, blocks) : average<Narrow>(x, y, pixels, blocks);
}

PW_CLONES void spread_blocks(const float* dy, float* dx, std::int64_t pixels, std::int64_t blocks,
                             std::int64_t channels) {
    channels == Wide::channels ? spread<Wide>(dy, dx, pixels, blocks) : spread<Narrow>(dy, dx, pixels, blocks);
}

PW_CLONES void repeat_pixels(const float* x, float* y, std::int64_t rows, std::int64_t width, std::int64_t times,
                             std::int64_t channels) {
    if (channels == Wide::channels)
        return repeat<Wide>(x, y, rows, width, times);
    channels == Narrow::channels ? repeat<Narrow>(x, y, rows, width, times) : repeat<Single>(x, y, rows, width, times);
}

PW_CLONES void sum_pixels(const float* dy, float* dx, std::int64_t rows, std::int64_t width, std::int64_t times,
                          std::int64_t channels) {
    if (channels == Wide::channels)
        return sum_repeated<Wide>(dy, dx, rows, width, times);
    channels == Narrow::channels ? sum_repeated<Narrow>(dy, dx, rows, width, times)
                                 : sum_repeated<Single>(dy, dx, rows, width, times);
}

PW_CLONES void accumulate(const float* from, float* to, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups; ++i)
        lanes(to + i * kLanes) += lanes(from + i * kLanes);
}

PW_CLONES void momentum_update(const Sgd& sgd, const float* weights, const float* gradient, float* momentum,
                               float* new_weights, std::int64_t groups) {
    const auto rate = static_cast<float>(sgd.learning_rate), keep = static_cast<float>(sgd.momentum);
    const auto decay = static_cast<float>(sgd.weight_decay);
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        const Lanes w = lanes(weights + i);
        const Lanes v = keep * lanes(momentum + i) + (lanes(gradient + i) + decay * w);
        lanes(momentum + i) = v;
        lanes(new_weights + i) = w - rate * v;
    }
}

PW_CLONES void adamw_update(const AdamW& adamw, const float* weights, const float* gradient, float* mean, float* square,
                            float* new_weights, std::int64_t groups) {
    const auto keep = static_cast<float>(1 - adamw.learning_rate * adamw.weight_decay);
    const auto new_mean = static_cast<float>(1 - adamw.betas[0]), new_square = static_cast<float>(1 - adamw.betas[1]);
    const auto old_square = static_cast<float>(adamw.betas[1]), epsilon = static_cast<float>(adamw.epsilon);
    const auto rate = static_cast<float>(adamw.step_size()), root = static_cast<float>(adamw.root());
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes) {
        const Lanes g = lanes(gradient + i);
        const Lanes m = lanes(mean + i) + new_mean * (g - lanes(mean + i));
        const Lanes v = old_square * lanes(square + i) + new_square * g * g;
        Lanes roots;
        for (std::int64_t k = 0; k < kLanes; ++k)
            roots[k] = std::sqrt(v[k]);
        lanes(mean + i) = m;
        lanes(square + i) = v;
        lanes(new_weights + i) = keep * lanes(weights + i) - rate * m / (roots / root + epsilon);
    }
}

PW_CLONES void predict_weights(const float* weights, const float* momentum, float factor, float* out,
                               std::int64_t groups) {
    for (std::int64_t i = 0; i < groups * kLanes; i += kLanes)
        lanes(out + i) = lanes(weights + i) - factor * lanes(momentum + i);
}

}  // namespace pw::cpu
