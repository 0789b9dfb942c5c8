#include "workloads/data/noise.h"

#include "workloads/random.h"

#include <algorithm>
#include <cstddef>

namespace pw {

// The loop is compiled once per instruction set and chosen when the program loads: most runs of small models would
// otherwise spend more time on their images than on training.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
void add_noise(std::uint64_t key, std::uint64_t first, std::span<const std::uint8_t> clean, std::uint8_t* noisy) {
    constexpr std::uint32_t kValues = 2 * kNoise + 1;
    constexpr std::uint64_t kLow32 = 0xFFFFFFFFu, kOf32 = (kLow32 + 1) % kValues;
    constexpr std::uint32_t kLow20 = 0xFFFFFu, kOf20 = (kLow20 + 1) % kValues;
    for (std::size_t k = 0; k < clean.size(); ++k) {
        // No instruction divides vectors: the remainder is taken of a sum of parts, below 2^39 and then below 2^26.
        const std::uint64_t drawn = mixed(key ^ (first + k));
        const std::uint64_t sum = (drawn >> 32) * kOf32 + (drawn & kLow32);
        const std::uint32_t small =
            static_cast<std::uint32_t>(sum >> 20) * kOf20 + (static_cast<std::uint32_t>(sum) & kLow20);
        const int pixel = clean[k] + static_cast<int>(small % kValues) - kNoise;
        noisy[k] = static_cast<std::uint8_t>(std::clamp(pixel, 0, 255));
    }
}

}  // namespace pw
