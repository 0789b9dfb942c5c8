#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

namespace pw::cpu {

namespace {

// Masks: a byte per value, whether it passed, or nothing.
struct Mask {
    std::byte* bytes;
    [[gnu::always_inline]] void put(std::int64_t i, bool passed) const { bytes[i] = std::byte{passed}; }
};
struct NoMask {
    [[gnu::always_inline]] void put(std::int64_t, bool) const {}
};

[[gnu::always_inline]] inline bool drop_one(const Drop& drop, const float* x, float* y, std::uint32_t element) {
    const bool passed = dropout_bits(drop.key, element) >= drop.threshold;
    *y = passed ? *x * drop.scale : 0.0f;
    return passed;
}

template <class To>
[[gnu::always_inline]] inline void drop_all(const Drop& drop, const float* x, float* y, To mask, std::uint32_t first,
                                            std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        mask.put(i, drop_one(drop, x + i, y + i, first + static_cast<std::uint32_t>(i)));
}

// In the plain layout the distance of a pixel's lanes is the number of pixels of a channel.
template <class Width, class To>
[[gnu::always_inline]] inline void drop_pixels(const Drop& drop, const float* x, float* y, To mask, std::uint32_t first,
                                               std::int64_t pixels) {
    for (std::int64_t p = 0; p < pixels; ++p)
        for (std::int64_t lane = 0; lane < Width::channels; ++lane) {
            const std::int64_t i = p * Width::channels + lane;
            mask.put(i, drop_one(drop, x + i, y + i, first + static_cast<std::uint32_t>(lane * pixels + p)));
        }
}

template <class To>
[[gnu::always_inline]] inline void drop_blocks(const Drop& drop, const float* x, float* y, To mask, std::uint32_t first,
                                               std::int64_t pixels, std::int64_t channels) {
    channels == Wide::channels ? drop_pixels<Wide>(drop, x, y, mask, first, pixels)
                               : drop_pixels<Narrow>(drop, x, y, mask, first, pixels);
}

}  // namespace

PW_CLONES void drop_values(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first,
                           std::int64_t count) {
    const Drop known = drop;  // a copy, which no written value can alias
    mask ? drop_all(known, x, y, Mask{mask}, first, count) : drop_all(known, x, y, NoMask{}, first, count);
}

PW_CLONES void drop_block(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first,
                          std::int64_t pixels, std::int64_t channels) {
    const Drop known = drop;
    mask ? drop_blocks(known, x, y, Mask{mask}, first, pixels, channels)
         : drop_blocks(known, x, y, NoMask{}, first, pixels, channels);
}

PW_CLONES void scale_passed(const float* dy, const std::byte* mask, float* dx, float scale, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        dx[i] = mask[i] != std::byte{} ? dy[i] * scale : 0.0f;
}

}  // namespace pw::cpu
