// Published and derived numbers of the schedules: times, spans, peaks. Each has its source.
#include "schedules/plan/versions.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace pw {
namespace {

Metrics simulated_in_chunks(const char* schedule, int p, int m, int chunks, Ns f, Ns i, Ns w, Ns latency = 0) {
    return metrics_of(simulate(plan_of(schedule, p, m, chunks), uniform(p * chunks, f, i, w, latency)));
}

std::vector<int> peaks(const Metrics& metrics, int DeviceMetrics::*peak) {
    std::vector<int> found;
    for (const DeviceMetrics& device : metrics.devices)
        found.push_back(device.*peak);
    return found;
}

// Times in half units, so that a hop of half a unit is 1. -1: not given.
struct Golden {
    const char* schedule;
    int p, m, chunks;
    Ns latency;
    Ns makespan, span;
    std::vector<int> until_input, until_weight;
};

TEST(Goldens, UnitTimes) {
    const Golden goldens[] = {
        {"eager-1f1b", 4, 8, 1, 1, 72, -1, {7, 5, 3, 1}, {}},
        {"eager-1f1b", 4, 8, 1, 2, 78, -1, {7, 5, 3, 1}, {}},
        {"interleaved", 4, 8, 2, 0, 114, -1, {11, 9, 7, 5}, {}},
        {"interleaved", 2, 4, 2, 0, 54, -1, {5, 3}, {}},
        {"interleaved", 8, 16, 2, 0, 234, -1, {23, 21, 19, 17, 15, 13, 11, 9}, {}},
        {"interleaved", 4, 4, 2, 0, 66, -1, {8, 8, 7, 5}, {}},
        {"bfs", 4, 8, 2, 0, 114, -1, {16, 16, 16, 16}, {}},
        {"zb-h1", 4, 8, 1, 0, 54, -1, {4, 3, 2, 1}, {4, 4, 4, 4}},
        {"zb-h2", 4, 8, 1, 0, 54, 48, {}, {7, 7, 7, 7}},
        {"zb-h2", 8, 24, 1, 0, 158, 144, {15, 13, 11, 9, 7, 5, 3, 1}, {}},
        {"zb1p", 4, 8, 2, 0, 102, -1, {}, {8, 8, 8, 8}},
        {"zb1p", 4, 12, 2, 0, 150, -1, {}, {8, 8, 8, 8}},
        {"zb1p", 2, 8, 2, 0, 98, -1, {}, {4, 4}},
        {"zb1p", 4, 8, 1, 0, 54, -1, {}, {}},
        {"zb-v", 4, 8, 2, 0, 102, 96, {}, {8, 8, 8, 8}},
        // the reference of arXiv 2405.15362 (sail-sg/zero-bubble-pipeline-parallelism 39f2c186) has the same spans
        {"v-half", 4, 8, 2, 0, -1, 2 * 53, {}, {6, 6, 6, 6}},
        {"v-half", 4, 6, 2, 0, -1, 2 * 41, {}, {6, 6, 6, 6}},
        {"v-min", 4, 8, 2, 0, -1, 2 * 59, {}, {4, 4, 4, 4}},
        {"v-min", 4, 6, 2, 0, -1, 2 * 47, {}, {4, 4, 4, 4}},
        {"dualpipe-v", 2, 4, 2, 0, 52, -1, {}, {5, 5}},
        {"dualpipe-v", 4, 10, 2, 0, 132, -1, {}, {9, 9, 9, 9}},
        {"dualpipe", 8, 20, 1, 0, 132, -1, {}, {9, 9, 9, 9, 9, 9, 9, 9}},
        {"chimera", 4, 4, 1, 0, 32, -1, {3, 4, 4, 3}, {}},
        {"chimera", 6, 6, 1, 0, 52, -1, {4, 5, 6, 6, 5, 4}, {}},
    };
    for (const Golden& golden : goldens) {
        const Metrics metrics =
            simulated_in_chunks(golden.schedule, golden.p, golden.m, golden.chunks, 2, 2, 2, golden.latency);
        if (golden.makespan >= 0) {
            EXPECT_EQ(metrics.makespan, golden.makespan) << golden.schedule;
        }
        if (golden.span >= 0) {
            EXPECT_EQ(metrics.span, golden.span) << golden.schedule;
        }
        if (!golden.until_input.empty()) {
            EXPECT_EQ(peaks(metrics, &DeviceMetrics::peak_in_flight), golden.until_input) << golden.schedule;
        }
        if (!golden.until_weight.empty()) {
            EXPECT_EQ(peaks(metrics, &DeviceMetrics::peak_in_flight_until_weight), golden.until_weight)
                << golden.schedule;
        }
    }
}

// W shorter than F and I (arXiv 2401.10241, table 2).
TEST(Goldens, UnequalPasses) {
    EXPECT_EQ(simulated_in_chunks("zb-h1", 4, 12, 1, 2, 2, 1).span, 69);
    EXPECT_EQ(simulated_in_chunks("zb-h1", 4, 12, 1, 1, 2, 1).span, 54);
    EXPECT_EQ(simulated_in_chunks("zb-h2", 4, 12, 1, 2, 2, 1).span, 66);
    EXPECT_EQ(simulated_in_chunks("zb-h2", 4, 12, 1, 1, 2, 1).span, 51);
}

std::string rate_of(const char* schedule, int p, int m, Ns f, Ns i, Ns w, Ns latency) {
    return fmt::format("{:.4f}", simulated_in_chunks(schedule, p, m, 1, f, i, w, latency).span_bubble_rate);
}

struct Measured {  // us
    int p, m;
    Ns f, i, w, latency;
    const char *one_f_one_b, *zb_h1, *zb_h2;
};

// arXiv 2401.10241: times of table 9, bubble rates of table 5, by span.
TEST(Goldens, BubbleRatesOfTheZeroBubblePaper) {
    const Measured rows[] = {
        {8, 24, 18522, 18086, 9337, 601, "0.2431", "0.1585", "0.1083"},
        {8, 32, 18513, 18086, 9331, 626, "0.1985", "0.1242", "0.0837"},
        {8, 24, 29718, 29444, 19927, 527, "0.2347", "0.1323", "0.0698"},
        {8, 64, 29935, 29621, 19388, 535, "0.1091", "0.0554", "0.0294"},
        {16, 48, 11347, 11248, 8132, 377, "0.2552", "0.1397", "0.0672"},
        {16, 64, 11307, 11254, 8101, 379, "0.2082", "0.1088", "0.0516"},
        {32, 96, 10419, 10207, 7715, 408, "0.2646", "0.1421", "0.0641"},
        {32, 256, 10402, 10248, 7698, 460, "0.1352", "0.0594", "0.0257"},
    };
    for (const Measured& row : rows) {
        EXPECT_EQ(rate_of("1f1b", row.p, row.m, row.f, row.i, row.w, row.latency), row.one_f_one_b) << row.m;
        EXPECT_EQ(rate_of("zb-h1", row.p, row.m, row.f, row.i, row.w, row.latency), row.zb_h1) << row.m;
        EXPECT_EQ(rate_of("zb-h2", row.p, row.m, row.f, row.i, row.w, row.latency), row.zb_h2) << row.m;
    }
    EXPECT_EQ(simulated_in_chunks("1f1b", 8, 24, 1, 18522, 18086, 9337, 601).span, 1456749);
    EXPECT_EQ(simulated_in_chunks("zb-h1", 8, 24, 1, 18522, 18086, 9337, 601).span, 1310405);
    EXPECT_EQ(simulated_in_chunks("zb-h2", 8, 24, 1, 18522, 18086, 9337, 601).span, 1236632);
}

// The same paper with ZB-V, table 8: its times are of half a stage.
TEST(Goldens, BubbleRatesOfTheZbVPaper) {
    const Measured rows[] = {
        {16, 48, 2 * 14407, 2 * 14380, 2 * 9676, 1610, "0.2668", "0.1536", "0.0823"},
        {32, 96, 2 * 9458, 2 * 9748, 2 * 7288, 879, "0.2676", "0.1429", "0.0629"},
    };
    for (const Measured& row : rows) {
        EXPECT_EQ(rate_of("1f1b", row.p, row.m, row.f, row.i, row.w, row.latency), row.one_f_one_b) << row.p;
        EXPECT_EQ(rate_of("zb-h1", row.p, row.m, row.f, row.i, row.w, row.latency), row.zb_h1) << row.p;
        EXPECT_EQ(rate_of("zb-h2", row.p, row.m, row.f, row.i, row.w, row.latency), row.zb_h2) << row.p;
    }
}

// arXiv 2405.15362 with an input of its reference (sail-sg/zero-bubble-pipeline-parallelism 39f2c186): 8 devices, 24
// micro-batches. The reference orders by these times, its spans are 769413 and 915753; the orders here do not depend on
// times, and their spans are shorter.
TEST(Goldens, SpansOfTheControllableMemoryPaper) {
    const auto half = simulated_in_chunks("v-half", 8, 24, 2, 4959, 5217, 3519, 213);
    const auto least = simulated_in_chunks("v-min", 8, 24, 2, 4959, 5217, 3519, 213);
    EXPECT_EQ(half.span, 768303);
    EXPECT_EQ(least.span, 906288);
    for (int device = 0; device < 8; ++device) {
        EXPECT_EQ(half.devices[device].peak_in_flight_until_weight, 10);
        EXPECT_EQ(least.devices[device].peak_in_flight_until_weight, 8);
    }
}

// The paper's rates with F = I = W, about p / (2m) and 2p / (3m): a half and two thirds of the bubble of 1f1b, which is
// 6 (p - 1) passes of a stage here.
TEST(ClosedForms, BuildingBlocksHaveAPartOfTheBubbleOf1f1b) {
    for (const int p : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16})
        for (const int m : {p, p + 1, 2 * p, 4 * p + 3}) {
            EXPECT_LE(simulated_in_chunks("v-half", p, m, 2, 1, 1, 1).makespan, 6 * m + 3 * (p - 1)) << p << ' ' << m;
            EXPECT_LE(simulated_in_chunks("v-min", p, m, 2, 1, 1, 1).makespan, 6 * m + 4 * (p - 1)) << p << ' ' << m;
        }
}

// 2 (p - 1) B / v, with v = 2, 4 and 6 stages on each device. For p = m = 4, one wave and F = B = 1 these are 22 slots,
// which a greedy merge of the passes takes too.
TEST(ClosedForms, WavesDivideTheBubble) {
    EXPECT_EQ(simulated_in_chunks("hanayo", 4, 4, 2, 2, 1, 1).makespan, 2 * 22);
    for (const int p : {1, 2, 3, 4, 8})
        for (const int waves : {1, 2, 3})
            for (const auto& [f, b] : {std::pair<Ns, Ns>{1, 2}, {2, 2}, {2, 3}, {3, 10}}) {
                const Metrics metrics = simulated_in_chunks("hanayo", p, p, 2 * waves, f, b - 1, 1);
                EXPECT_EQ(metrics.makespan, 2 * waves * p * (f + b) + 2 * (p - 1) * b) << p << ' ' << waves;
            }
}

// Every further p micro-batches add 2 (p - 1) (B - F) / v, or less.
TEST(ClosedForms, WavesInRoundsAddTheDifferenceOfTheirPasses) {
    for (const int p : {2, 4, 8})
        for (const int waves : {1, 2})
            for (const int rounds : {2, 3, 5})
                for (const Ns b : {2, 3, 4}) {
                    const Ns makespan = simulated_in_chunks("hanayo", p, rounds * p, 2 * waves, 2, b - 1, 1).makespan;
                    const Ns ideal = 2 * waves * rounds * p * (2 + b);
                    EXPECT_LE(makespan - ideal, 2 * (p - 1) * (b + (rounds - 1) * (b - 2))) << p << ' ' << b;
                }
}

// Interleaved 1F1B, three chunks per device. The paper's own column (.1055) leaves p hops out: it
// counts 2pv - p - 2 of them, a simulation has 2pv - 2. Times of a stage in thirds of a microsecond.
TEST(Goldens, InterleavedSpanOfTheZeroBubblePaper) {
    const Metrics metrics = simulated_in_chunks("interleaved", 8, 24, 3, 18522, 18086, 9337, 3 * 601);
    EXPECT_EQ((metrics.span + 1) / 3, 1237531);
    EXPECT_EQ(fmt::format("{:.4f}", metrics.span_bubble_rate), "0.1090");
}

VersionTable versions(const char* schedule, WeightPolicy policy, int p, int m, int per_update = 0) {
    Shape shape;
    shape.devices = shape.stages = p;
    shape.microbatches = m;
    shape.per_update = per_update;
    PlanOptions options;
    options.weights = policy;
    return versions_of(make_plan(schedule_named(schedule), shape, options));
}

// Narayanan et al., SOSP 2019: the updates that a micro-batch of a pipeline without flushes sees. Update k
// follows the backward of micro-batch k.
TEST(Versions, FollowTheStalenessEquations) {
    constexpr int m = 20;
    for (const int p : {1, 2, 4, 7}) {
        const VersionTable stash = versions("pipedream", WeightPolicy::Stash, p, m);
        const VersionTable vertical = versions("pipedream", WeightPolicy::VerticalSync, p, m);
        const VersionTable latest = versions("pipedream", WeightPolicy::Latest, p, m);
        for (int s = 0; s < p; ++s)
            for (int k = 0; k < m; ++k) {
                const int newest = std::max(k - (p - 1 - s), 0), of_first = std::max(k - (p - 1), 0);
                EXPECT_EQ(stash.forward[s][k], newest);
                EXPECT_EQ(stash.backward[s][k], newest);
                EXPECT_EQ(vertical.forward[s][k], of_first);
                EXPECT_EQ(vertical.backward[s][k], of_first);
                EXPECT_EQ(latest.forward[s][k], newest);
                EXPECT_EQ(latest.backward[s][k], k);
            }
        for (int s = 0; s < p; ++s) {
            EXPECT_EQ(stash.held[s], p - s);
            EXPECT_EQ(latest.held[s], 1);
            EXPECT_EQ(vertical.held[s], p);  // the last stage still needs what the first one took
        }
    }
}

// PipeDream-2BW: micro-batch k uses version max(k div m - 1, 0) on every stage; two versions are held.
TEST(Versions, DoubleBufferLagsOneMiniBatch) {
    for (const int p : {1, 2, 4})
        for (const int per_update : {p, p + 1, 3 * p}) {
            const VersionTable table =
                versions("pipedream-2bw", WeightPolicy::DoubleBuffer, p, 5 * per_update, per_update);
            for (int s = 0; s < p; ++s) {
                for (int k = 0; k < 5 * per_update; ++k)
                    EXPECT_EQ(table.forward[s][k], std::max(k / per_update - 1, 0));
                EXPECT_LE(table.held[s], 2);
            }
        }
}

// pytorch#188833: in one lane for everything the receives of interleaved 1F1B's second chunk hold up the
// sends of its first. Lanes per edge, the default, do not.
TEST(Goldens, HeadOfLineBlocking) {
    const auto makespan = [](int p, int m, Communicator communicator, Ns latency) {
        PlanOptions options;
        options.transfers.communicator = communicator;
        return metrics_of(simulate(plan_of("interleaved", p, m, 2, options), uniform(2 * p, 1, 1, 1, latency),
                                   options.transfers))
            .makespan;
    };
    EXPECT_EQ(makespan(4, 8, Communicator::Edge, 0), 57);
    EXPECT_EQ(makespan(4, 8, Communicator::Direction, 0), 67);
    EXPECT_EQ(makespan(4, 8, Communicator::One, 0), 68);
    EXPECT_EQ(makespan(2, 4, Communicator::Edge, 1), 33);
    EXPECT_EQ(makespan(2, 4, Communicator::One, 1), 37);
}

// Small latencies c: gpipe pays them once, 1f1b in every round.
TEST(ClosedForms, WithLatency) {
    for (const int p : {2, 3, 4, 8})
        for (const int rounds : {1, 2, 4})
            for (const Ns c : {0, 1, 3}) {
                const int m = p * rounds;
                const Ns f = 100, i = 110, w = 60, all = f + i + w;
                EXPECT_EQ(simulated_in_chunks("gpipe", p, m, 1, f, i, w, c).makespan,
                          (m + p - 1) * all + 2 * (p - 1) * c);
                EXPECT_EQ(simulated_in_chunks("1f1b", p, m, 1, f, i, w, c).makespan,
                          (m + p - 1) * all + (2 * (p - 1) * rounds + 2 * (p - 2)) * c)
                    << p << ' ' << m;
                for (const int v : {2, 3})
                    EXPECT_EQ(simulated_in_chunks("interleaved", p, m, v, f, i, w, c).makespan,
                              m * v * all + (p - 1) * all + (2 * p * v - 2) * c)
                        << p << ' ' << m << ' ' << v;
                if (m >= 2 * p) {
                    EXPECT_EQ(simulated_in_chunks("zb-h1", p, m, 1, f, i, w, c).span,
                              m * all + (p - 1) * (f + i - w + 4 * c))
                        << p << ' ' << m;
                    EXPECT_EQ(simulated_in_chunks("zb-h2", p, m, 1, f, i, w, c).span,
                              m * all + (p - 1) * (f + i - 2 * w + 2 * c))
                        << p << ' ' << m;
                }
            }
}

// Breadth-first and interleaved divide the bubble by the stages per device; eager 1F1B is 1F1B when
// links are free.
TEST(ClosedForms, WithoutLatency) {
    for (const int p : {1, 2, 4, 7})
        for (const int rounds : {1, 3}) {
            const int m = p * rounds;
            EXPECT_EQ(simulated_in_chunks("eager-1f1b", p, m, 1, 3, 4, 2).makespan, (m + p - 1) * 9);
            for (const int v : {1, 2, 4})
                EXPECT_EQ(simulated_in_chunks("bfs", p, m, v, 3, 4, 2).makespan, (m * v + p - 1) * 9) << p << ' ' << v;
            EXPECT_EQ(simulated_in_chunks("forward-only", p, m, 2, 5, 0, 0).makespan, (2 * m + p - 1) * 5)
                << p << ' ' << m;
        }
}

// Chimera's p - 2 idle slots where F and B take one each (Li and Hoefler, 2021): for m = p, 2 p and 3 p. Else a slot is
// as long as the longer pass, and between two units of p micro-batches p - 2 times their difference is lost.
TEST(ClosedForms, OfChimera) {
    EXPECT_EQ(simulated_in_chunks("chimera", 4, 4, 1, 1, 1, 0).makespan, 10);
    EXPECT_EQ(simulated_in_chunks("chimera", 6, 6, 1, 1, 1, 0).makespan, 16);
    EXPECT_EQ(simulated_in_chunks("chimera", 4, 8, 1, 1, 1, 0).makespan, 18);
    EXPECT_EQ(simulated_in_chunks("chimera", 8, 16, 1, 1, 1, 0).makespan, 38);
    for (const int p : {2, 4, 6, 8, 16})
        for (const int units : {1, 2, 3})
            for (const auto& [f, b] : {std::pair<Ns, Ns>{5, 5}, {5, 10}, {5, 7}, {7, 5}}) {
                const int m = units * p;
                EXPECT_EQ(simulated_in_chunks("chimera", p, m, 1, f, b - 2, 2).makespan,
                          m * (f + b) + (p - 2) * (std::max(f, b) + (units - 1) * std::abs(b - f)))
                    << p << ' ' << m << ' ' << f << ' ' << b;
            }
}

// Where B takes as long as two F, units of 2 p micro-batches follow each other without more idle time.
TEST(ClosedForms, OfChimeraWithForwardDoubling) {
    const PlanOptions doubling{.schedule = {.concatenation = ScheduleOptions::Concatenation::ForwardDoubling}};
    for (const int p : {2, 4, 6, 8, 16})
        for (const int units : {1, 2, 3})
            for (const auto& [f, b] : {std::pair<Ns, Ns>{6, 6}, {6, 12}}) {
                const int m = 2 * p * units;
                const Plan plan = plan_of("chimera", p, m, 1, doubling);
                EXPECT_EQ(metrics_of(simulate(plan, uniform(p, f, b - 2, 2))).makespan,
                          m * (f + b) + (p - 2) * (f + b) / 2)
                    << p << ' ' << m << ' ' << b;
            }
}

// The idle time of DualPipe's README, (p/2 - 1) (F&B + B - 3W), is that of DualPipeV, of p stages on p/2 devices, too.
// Here F&B is F + B, and a bubble that the W do not fill is longer.
TEST(ClosedForms, OfDualPipe) {
    for (const int h : {1, 2, 3, 4, 8})
        for (const int more : {0, 1, 5})
            for (const auto& [f, i, w] :
                 {std::tuple<Ns, Ns, Ns>{6, 6, 6}, {5, 6, 4}, {6, 6, 12}, {9, 3, 3}, {3, 9, 3}}) {
                const int m = 2 * h + more;
                const Ns whole = simulated_in_chunks("dualpipe", 2 * h, 2 * m, 1, f, i, w).makespan,
                         half = simulated_in_chunks("dualpipe-v", h, m, 2, f, i, w).makespan;
                EXPECT_EQ(whole, half) << h << ' ' << m;
                const Ns bubble = whole - 2 * m * (f + i + w);
                const Ns b = i + w, published = f + b + b - 3 * w;
                EXPECT_GE(bubble, 0);
                EXPECT_LE(bubble, (h - 1) * std::max(published, 2 * f)) << h << ' ' << m;
                if (f == i && i == w) {
                    EXPECT_EQ(bubble, (h - 1) * published) << h << ' ' << m;
                }
            }
}

// Zero bubble of span when all passes take the same time.
TEST(ClosedForms, ZbVHasNoBubble) {
    for (const int p : {1, 2, 4, 8})
        for (const int m : {2 * p, 3 * p + 1}) {
            const Metrics metrics = simulated_in_chunks("zb-v", p, m, 2, 7, 7, 7);
            EXPECT_EQ(metrics.span, 2 * m * 21) << p << ' ' << m;
            EXPECT_EQ(metrics.makespan, 2 * m * 21 + (p - 1) * 7) << p << ' ' << m;
        }
}

}  // namespace
}  // namespace pw
