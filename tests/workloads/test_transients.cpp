// Tensors of a workspace are packed by first fit, in about linear time.
#include "workloads/stages/transients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace pw {
namespace {

// First fit as it is defined: the lowest offset where no tensor lies that lives at its first step.
Bytes lowest_offset(const std::vector<Transient>& placed, const Transient& next) {
    std::vector<Bytes> candidates = {0};
    for (const Transient& other : placed)
        candidates.push_back(other.slot->offset + other.bytes);
    std::sort(candidates.begin(), candidates.end());
    for (const Bytes offset : candidates)
        if (std::none_of(placed.begin(), placed.end(), [&](const Transient& other) {
                return other.last >= next.first && other.slot->offset < offset + next.bytes &&
                       offset < other.slot->offset + other.bytes;
            }))
            return offset;
    return -1;
}

TEST(Transients, TakeTheLowestOffsetThatIsFree) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 300; ++round) {
        const int count = 1 + static_cast<int>(random() % 24);
        std::vector<Slot> slots(static_cast<std::size_t>(count)), expected(slots.size());
        std::vector<Transient> transients, placed;
        for (int k = 0; k < count; ++k) {
            const int first = static_cast<int>(random() % 12);
            const int last = first + static_cast<int>(random() % 8);
            transients.push_back({static_cast<Bytes>(64 * (random() % 4)), first, last, &slots[k]});
        }
        const Bytes size = pack_transients(transients);
        std::vector<Transient> ordered = transients;
        std::stable_sort(ordered.begin(), ordered.end(),
                         [](const Transient& a, const Transient& b) { return a.first < b.first; });
        Bytes end = 0;
        for (Transient& next : ordered) {
            Slot* const slot = &expected[static_cast<std::size_t>(next.slot - slots.data())];
            next.slot = slot;
            slot->offset = next.bytes == 0 ? 0 : lowest_offset(placed, next);
            end = std::max(end, slot->offset + next.bytes);
            placed.push_back(next);
        }
        EXPECT_EQ(size, end);
        for (std::size_t k = 0; k < slots.size(); ++k)
            EXPECT_EQ(slots[k].offset, expected[k].offset) << "round " << round << ", tensor " << k;
    }
}

// Sorting all tensors for each would take hours.
TEST(Transients, OfALongChainTakeTwoPlaces) {
    constexpr int kLayers = 400'000;
    std::vector<Slot> slots(kLayers);
    std::vector<Transient> transients;
    for (int layer = 0; layer < kLayers; ++layer)
        transients.push_back({64, layer, layer + 1, &slots[static_cast<std::size_t>(layer)]});
    EXPECT_EQ(pack_transients(std::move(transients)), 128);
}

TEST(Transients, ThatAllLiveLieOneAfterTheOther) {
    constexpr int kReads = 400'000;
    std::vector<Slot> slots(kReads);
    std::vector<Transient> transients;
    for (int read = 0; read < kReads; ++read)
        transients.push_back({64, read, kReads, &slots[static_cast<std::size_t>(read)]});
    EXPECT_EQ(pack_transients(std::move(transients)), Bytes{64} * kReads);
}

}  // namespace
}  // namespace pw
