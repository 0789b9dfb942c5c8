#include "exec/engine/clocks.h"

#include "exec/system/threads.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace pw {

namespace {

constexpr Ns kOldAfter = 5'000'000'000;
constexpr Ns kUnbounded = std::numeric_limits<Ns>::max() / 4;  // no message bounds the difference

}  // namespace

// A message from a to b bounds a difference: correction of b - correction of a <= the time it took. The shortest
// paths over these bounds give all implied bounds. The clocks can then be set in any order: every value within the
// bounds of the earlier clocks leaves a value for each later one (Cormen et al., Introduction to Algorithms,
// Difference constraints and shortest paths).
std::vector<Ns> corrections(const std::vector<bool>& fixed, const std::vector<Transit>& transits) {
    std::vector<Ns> result(fixed.size(), 0);
    if (std::ranges::all_of(transits, [](const Transit& transit) { return transit.took >= 0; }))
        return result;
    // Number 0 stands for all fixed clocks.
    std::vector<std::size_t> number_of;
    std::size_t count = 1;
    for (const bool stays : fixed)
        number_of.push_back(stays ? 0 : count++);
    std::vector<std::vector<Ns>> most(count, std::vector<Ns>(count, kUnbounded));
    for (std::size_t clock = 0; clock < count; ++clock)
        most[clock][clock] = 0;
    for (const Transit& transit : transits) {
        Ns& bound =
            most[number_of[static_cast<std::size_t>(transit.from)]][number_of[static_cast<std::size_t>(transit.to)]];
        bound = std::min(bound, transit.took);
    }
    for (std::size_t by = 0; by < count; ++by)
        for (std::size_t from = 0; from < count; ++from)
            for (std::size_t to = 0; to < count; ++to)
                most[from][to] = std::min(most[from][to], most[from][by] + most[by][to]);
    for (std::size_t clock = 0; clock < count; ++clock)
        if (most[clock][clock] < 0)
            return result;
    std::vector<Ns> correction(count, 0);
    for (std::size_t clock = 1; clock < count; ++clock) {
        Ns low = -kUnbounded, high = kUnbounded;
        for (std::size_t other = 0; other < clock; ++other) {
            low = std::max(low, correction[other] - most[clock][other]);
            high = std::min(high, correction[other] + most[other][clock]);
        }
        correction[clock] = std::clamp<Ns>(0, low, high);
    }
    for (std::size_t rank = 0; rank < fixed.size(); ++rank)
        result[rank] = correction[number_of[rank]];
    return result;
}

void Clocks::take(std::vector<ClockOffset> offsets) {
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
        const Ns moved = rank < offsets_.size() ? std::abs(offsets[rank].ahead - offsets_[rank].ahead) : 0;
        error_ = std::max(error_, offsets[rank].uncertain + moved);
    }
    offsets_ = std::move(offsets);
    taken_ = clock_now();
}

bool Clocks::are_old() const { return clock_now() - taken_ > kOldAfter; }

std::vector<Ns> Clocks::correct(const std::vector<Transit>& transits) {
    std::vector<bool> exact;
    for (const ClockOffset& offset : offsets_)
        exact.push_back(offset.uncertain == 0);
    std::vector<Ns> all = corrections(exact, transits);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        offsets_[rank].ahead += all[rank];
        error_ = std::max(error_, std::abs(all[rank]));
    }
    return all;
}

}  // namespace pw
