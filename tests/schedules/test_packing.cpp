// Buffers that live at the same time share no byte, whatever their sizes and lifetimes, and little space between them
// is free.
#include "schedules/memory/buffers.h"
#include "schedules/memory/packing_search.h"
#include "tests/support/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pw {
namespace {

Buffer buffer_of(Bytes bytes, int device, int first, int last) {
    Buffer buffer{BufferUse::UntilInput, MemoryKind::Activations, bytes, device};
    buffer.first = first;
    buffer.last = last;
    return buffer;
}

// A buffer lives on in the next step if it begins after its end.
bool is_alive(const Buffer& buffer, int position) {
    return buffer.first <= buffer.last ? buffer.first <= position && position <= buffer.last
                                       : position <= buffer.last || buffer.first <= position;
}

bool are_alive_at_once(const Buffer& a, const Buffer& b) {
    for (int position = 0; position <= std::max({a.first, a.last, b.first, b.last}); ++position)
        if (is_alive(a, position) && is_alive(b, position))
            return true;
    return false;
}

std::vector<Bytes> peaks_of(const std::vector<Buffer>& buffers, int devices) {
    std::vector<Bytes> peaks(static_cast<std::size_t>(devices), 0);
    for (const Buffer& at : buffers) {
        Bytes alive = 0;
        for (const Buffer& other : buffers)
            if (other.device == at.device && is_alive(other, at.first))
                alive += other.bytes;
        peaks[at.device] = std::max(peaks[at.device], alive);
    }
    return peaks;
}

void expect_legal(const std::vector<Buffer>& buffers, const Packing& packing, const std::string& what) {
    const auto devices = static_cast<int>(packing.arena.size());
    std::vector<Bytes> top(packing.arena.size(), 0);
    for (std::size_t a = 0; a < buffers.size(); ++a) {
        const Buffer& x = buffers[a];
        const Bytes end = packing.offset[a] + x.bytes;
        ASSERT_GE(packing.offset[a], 0) << what;
        top[x.device] = std::max(top[x.device], end);
        for (std::size_t b = a + 1; b < buffers.size(); ++b) {
            const Buffer& y = buffers[b];
            if (x.device == y.device && are_alive_at_once(x, y)) {
                ASSERT_TRUE(end <= packing.offset[b] || packing.offset[b] + y.bytes <= packing.offset[a])
                    << what << ": " << a << " and " << b;
            }
        }
    }
    EXPECT_EQ(top, packing.arena) << what;
    const std::vector<Bytes> peaks = peaks_of(buffers, devices);
    for (std::size_t device = 0; device < peaks.size(); ++device)
        EXPECT_GE(packing.arena[device], peaks[device]) << what;
}

TEST(Packing, IsLegalAndRepeatableForAnyBuffers) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        std::mt19937_64 random(seed);
        const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<std::uint64_t>(limit)); };
        const int devices = 1 + below(3), positions = 1 + below(60), kinds = 1 + below(20);
        std::vector<Buffer> buffers;
        for (int k = below(150); k > 0; --k) {
            const int first = below(positions);
            buffers.push_back(buffer_of(64 * (1 + below(kinds)), below(devices), first,
                                        below(5) == 0 ? positions - 1 : std::min(positions - 1, first + below(9))));
            if (below(10) == 0)
                buffers.back().first = 0;
            if (seed % 3 == 0 && below(8) == 0 && buffers.back().first + 1 < buffers.back().last)
                std::swap(buffers.back().first, buffers.back().last);
        }
        const Packing packing = pack(buffers, devices);
        expect_legal(buffers, packing, fmt::format("seed {}", seed));
        const Packing again = pack(buffers, devices);
        EXPECT_EQ(packing.offset, again.offset);
        EXPECT_EQ(packing.arena, again.arena);
        // With `enough`, the search ends early and nothing else changes.
        std::vector<Bytes> enough = packing.arena;
        for (Bytes& bytes : enough)
            bytes += 64 * below(20);
        const Packing early = pack(buffers, devices, enough);
        expect_legal(buffers, early, fmt::format("seed {}, enough", seed));
        for (int device = 0; device < devices; ++device)
            EXPECT_LE(early.arena[device], enough[device]);
    }
}

TEST(Packing, IsLegalForEverySchedule) {
    for (const Schedule& schedule : schedules())
        for (const int p : {1, 3})
            for (const int m : {3, 9}) {
                Shape shape = shape_taken(schedule, p, m);
                if (schedule.updates == Updates::PerMiniBatch)
                    shape.per_update = 3;
                const Plan plan = plan_in(schedule, shape);
                std::mt19937_64 random(static_cast<std::uint64_t>(m));
                const auto size = [&] { return static_cast<Bytes>(1 + random() % 40) * 64; };
                Costs costs;
                costs.stage.resize(static_cast<std::size_t>(plan.shape.stages));
                for (int stage = 0; stage < plan.shape.stages; ++stage) {
                    StageBytes& bytes = costs.bytes.emplace_back();
                    for (Bytes* drawn : {&bytes.weights, &bytes.until_input, &bytes.until_weight, &bytes.statistics})
                        *drawn = size();
                    if (const Bytes output = size(); stage > 0)
                        costs.edges.push_back({stage - 1, stage, output, output});
                }
                for (const bool early : {true, false}) {
                    const auto buffers = buffers_of(plan, costs, versions_of(plan), early);
                    expect_legal(buffers, pack(buffers, shape.devices),
                                 fmt::format("{} p={} m={}", schedule.name, p, m));
                }
            }
}

// In the order of starts the second buffer finds only the gap between the first and the third; at the ends all fit.
TEST(Packing, LeavesRoomForLaterBuffers) {
    const std::vector<Buffer> buffers{buffer_of(4, 0, 0, 9), buffer_of(2, 0, 0, 1), buffer_of(3, 0, 1, 5),
                                      buffer_of(5, 0, 2, 3), buffer_of(9, 0, 6, 7)};
    const Packing packing = pack(buffers, 1);
    expect_legal(buffers, packing, "");
    EXPECT_EQ(packing.arena[0], 13);
}

TEST(OffsetsBelow, AreFoundOrNot) {
    // Every buffer lives at the same time as the previous and the next one.
    std::vector<LiveRange> row;
    for (int k = 0; k < 50; ++k)
        row.push_back({10 + 3 * (k % 3), k, k + 1});
    constexpr Bytes most = 13 + 16;
    EXPECT_TRUE(offsets_below(row, most - 1, 100).empty());
    const std::vector<Bytes> offsets = offsets_below(row, most, 4);
    ASSERT_EQ(offsets.size(), row.size());
    for (std::size_t k = 1; k < row.size(); ++k) {
        EXPECT_LE(offsets[k] + row[k].bytes, most);
        EXPECT_TRUE(offsets[k - 1] + row[k - 1].bytes <= offsets[k] || offsets[k] + row[k].bytes <= offsets[k - 1]);
    }
    EXPECT_TRUE(offsets_below({}, 10, 4).empty());
}

}  // namespace
}  // namespace pw
