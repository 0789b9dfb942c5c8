#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

namespace pw::cpu {

namespace {

inline const Lanes& lanes(const float* data) { return *reinterpret_cast<const Lanes*>(data); }
inline Lanes& lanes(float* data) { return *reinterpret_cast<Lanes*>(data); }

using Bits = std::int32_t __attribute__((vector_size(64)));
constexpr Bits kBit = {1 << 0, 1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                       1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};

}  // namespace

PW_CLONES void add_relu(const float* left, const float* right, float* y, std::uint16_t* mask, std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i) {
        const Lanes sum = lanes(left + i * kLanes) + lanes(right + i * kLanes);
        lanes(y + i * kLanes) = sum > zero ? sum : zero;
        if (mask) {
            const Bits bits = (sum > zero) & kBit;
            std::int32_t all = 0;
            for (int l = 0; l < 16; ++l)
                all |= bits[l];
            mask[i] = static_cast<std::uint16_t>(all);
        }
    }
}

PW_CLONES void add(const float* left, const float* right, float* y, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups; ++i)
        lanes(y + i * kLanes) = lanes(left + i * kLanes) + lanes(right + i * kLanes);
}

PW_CLONES void masked_copies(const float* dy, const std::uint16_t* mask, float* first, float* second,
                             std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i) {
        const Bits bits = Bits{} + std::int32_t{mask[i]};
        const Lanes gradient = (bits & kBit) != Bits{} ? lanes(dy + i * kLanes) : zero;
        if (first)
            lanes(first + i * kLanes) = gradient;
        if (second)
            lanes(second + i * kLanes) = gradient;
    }
}

PW_CLONES void relu(const float* x, float* y, std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i) {
        const Lanes value = lanes(x + i * kLanes);
        lanes(y + i * kLanes) = value > zero ? value : zero;
    }
}

PW_CLONES void relu_gradient(const float* x, const float* dy, float* dx, std::int64_t groups) {
    const Lanes zero = {};
    for (std::int64_t i = 0; i < groups; ++i)
        lanes(dx + i * kLanes) = lanes(x + i * kLanes) > zero ? lanes(dy + i * kLanes) : zero;
}

PW_CLONES void copies(const float* dy, float* first, float* second, std::int64_t groups) {
    for (std::int64_t i = 0; i < groups; ++i) {
        if (first)
            lanes(first + i * kLanes) = lanes(dy + i * kLanes);
        if (second)
            lanes(second + i * kLanes) = lanes(dy + i * kLanes);
    }
}

PW_CLONES void average_blocks(const float* x, float* y, std::int64_t pixels, std::int64_t blocks) {
    for (std::int64_t b = 0; b < blocks; ++b) {
        Lanes sum = {};
        for (std::int64_t p = 0; p < pixels; ++p)
            sum += lanes(x + (b * pixels + p) * kLanes);
        lanes(y + b * kLanes) = sum / static_cast<float>(pixels);
    }
}

PW_CLONES void spread_blocks(const float* dy, float* dx, std::int64_t pixels, std::int64_t blocks) {
    for (std::int64_t b = 0; b < blocks; ++b) {
        const Lanes share = lanes(dy + b * kLanes) / static_cast<float>(pixels);
        for (std::int64_t p = 0; p < pixels; ++p)
            lanes(dx + (b * pixels + p) * kLanes) = share;
    }
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

}  // namespace pw::cpu
