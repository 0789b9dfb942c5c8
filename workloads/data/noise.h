// Noise on the pixels of made images, the same on every machine.
#pragma once

#include <cstdint>
#include <span>

namespace pw {

inline constexpr int kNoise = 48;  // largest deviation of a pixel, of 255

// Writes clean[k] + mixed(key ^ (first + k)) % 97 - 48, at least 0 and at most 255, for every k.
void add_noise(std::uint64_t key, std::uint64_t first, std::span<const std::uint8_t> clean, std::uint8_t* noisy);

}  // namespace pw
