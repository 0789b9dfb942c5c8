#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

namespace pw::cpu {

namespace {

[[gnu::always_inline]] inline void drop_one(const Drop& drop, const float* x, float* y, std::byte* mask,
                                            std::uint32_t element) {
    const bool passed = dropout_bits(drop.key, element) >= drop.threshold;
    *y = passed ? *x * drop.scale : 0.0f;
    if (mask)
        *mask = std::byte{passed};
}

// In the plain layout the distance of a pixel's lanes is the number of pixels of a channel.
template <class Width>
[[gnu::always_inline]] inline void drop_pixels(const Drop& drop, const float* x, float* y, std::byte* mask,
                                               std::uint32_t first, std::int64_t pixels) {
    for (std::int64_t p = 0; p < pixels; ++p)
        for (std::int64_t lane = 0; lane < Width::channels; ++lane) {
            const std::int64_t i = p * Width::channels + lane;
            drop_one(drop, x + i, y + i, mask ? mask + i : nullptr,
                     first + static_cast<std::uint32_t>(lane * pixels + p));
        }
}

}  // namespace

PW_CLONES void drop_values(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first,
                           std::int64_t count) {
    const Drop known = drop;  // a copy, which no written value can alias
    for (std::int64_t i = 0; i < count; ++i)
        drop_one(known, x + i, y + i, mask ? mask + i : nullptr, first + static_cast<std::uint32_t>(i));
}

PW_CLONES void drop_block(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first,
                          std::int64_t pixels, std::int64_t channels) {
    const Drop known = drop;
    channels == Wide::channels ? drop_pixels<Wide>(known, x, y, mask, first, pixels)
                               : drop_pixels<Narrow>(known, x, y, mask, first, pixels);
}

PW_CLONES void scale_passed(const float* dy, const std::byte* mask, float* dx, float scale, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        dx[i] = mask[i] != std::byte{} ? dy[i] * scale : 0.0f;
}

}  // namespace pw::cpu
