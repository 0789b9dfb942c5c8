// Random numbers that depend on their use and on nothing else: the same on every machine, in every backend and layout,
// in whatever order they are drawn.
#pragma once

#include "workloads/host_and_device.h"

#include <cstdint>
#include <string_view>

namespace pw {

// This is Sebastiano Vigna's splitmix64. Numbers kMixedStep apart make the stream.
inline constexpr std::uint64_t kMixedStep = 0x9E3779B97F4A7C15u;
PW_HOST_AND_DEVICE constexpr std::uint64_t mixed(std::uint64_t x) {
    x += kMixedStep;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

PW_HOST_AND_DEVICE constexpr std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return mixed(mixed(a) ^ b); }

constexpr std::uint64_t mixed(std::string_view text, std::uint64_t seed) {
    for (const char letter : text)
        seed = mixed(seed, static_cast<unsigned char>(letter));
    return seed;
}

// The key determines dropout's draws for the elements of a sample. It includes the sample's number, so that masks
// depend neither on the split nor on the size of the micro-batch. Its 32-bit steps are fast in vectors.
struct DropoutKey {
    std::uint32_t low, high;
};

// Returns the seed of sample `number` in the endless sequence. A micro-batch's LayerArgs::seed is the seed of its first
// sample. The next sample's seed is larger by one.
constexpr std::uint64_t dropout_seed(std::string_view layer, std::int64_t training_seed, std::int64_t number) {
    return mixed(layer, static_cast<std::uint64_t>(training_seed)) + static_cast<std::uint64_t>(number);
}

// `sample` counts from the first sample of the micro-batch with this seed.
PW_HOST_AND_DEVICE constexpr DropoutKey dropout_key(std::uint64_t seed, std::int64_t sample) {
    const std::uint64_t key = mixed(seed + static_cast<std::uint64_t>(sample));
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

// Returns bits uniform over all 32-bit values. `element` is the position in the sample's plain layout (channels, rows,
// columns).
PW_HOST_AND_DEVICE constexpr std::uint32_t dropout_bits(DropoutKey key, std::uint32_t element) {
    std::uint32_t x = element * 0x9E3779B1u + key.low;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13) ^ key.high) * 0xC2B2AE35u;
    x = (x ^ (x >> 16)) * 0x27D4EB2Fu;
    return x ^ (x >> 15);
}

// An element is dropped when its bits are below this threshold.
PW_HOST_AND_DEVICE constexpr std::uint32_t dropout_threshold(double probability) {
    return static_cast<std::uint32_t>(probability * 4294967296.0);
}

}  // namespace pw
