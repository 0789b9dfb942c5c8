// Noise is drawn one by one here, as its definition says.
#include "workloads/data/noise.h"
#include "workloads/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pw {
namespace {

TEST(Noise, IsDrawnFromTheNumberOfEveryPixel) {
    constexpr std::size_t kPixels = 4099;  // no multiple of what vectors hold
    std::vector<std::uint8_t> clean(kPixels), noisy(kPixels), expected;
    for (std::size_t k = 0; k < kPixels; ++k)
        clean[k] = static_cast<std::uint8_t>(k);
    for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, mixed(7), ~std::uint64_t{0}}) {
        for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3071}, std::uint64_t{1} << 40}) {
            expected.clear();
            for (std::size_t k = 0; k < kPixels; ++k) {
                const int drawn = static_cast<int>(mixed(key ^ (first + k)) % 97);
                expected.push_back(static_cast<std::uint8_t>(std::clamp(clean[k] + drawn - 48, 0, 255)));
            }
            add_noise(key, first, clean, noisy.data());
            EXPECT_EQ(noisy, expected);
        }
    }
}

}  // namespace
}  // namespace pw
