// Downsets: all of them, each once, linked by one step per added vertex.
#include "search/downsets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace pw;

namespace {

constexpr std::size_t kNoLimit = 1 << 20;

Successors random_graph(std::mt19937& random, int vertices) {
    Successors graph(static_cast<std::size_t>(vertices));
    std::bernoulli_distribution joined(0.3);
    for (int from = 0; from < vertices; ++from)
        for (int to = from + 1; to < vertices; ++to)
            if (joined(random))
                graph[from].push_back(to);
    return graph;
}

Successors chains(int count, int length) {
    Successors graph(static_cast<std::size_t>(count * length));
    for (int vertex = 0; vertex < count * length; ++vertex)
        if (vertex % length + 1 < length)
            graph[vertex].push_back(vertex + 1);
    return graph;
}

// One bit per vertex.
std::set<unsigned> downsets_by_trying(const Successors& graph) {
    std::set<unsigned> found;
    for (unsigned set = 0; set < 1u << graph.size(); ++set) {
        bool closed = true;
        for (std::size_t vertex = 0; vertex < graph.size(); ++vertex)
            for (const int successor : graph[vertex])
                closed = closed && (!(set >> successor & 1) || (set >> vertex & 1));
        if (closed)
            found.insert(set);
    }
    return found;
}

unsigned bits_of(const Downsets& sets, int set) {
    unsigned bits = 0;
    for (int vertex = 0; vertex < sets.vertices; ++vertex)
        bits |= sets.contains(set, vertex) ? 1u << vertex : 0u;
    return bits;
}

}  // namespace

TEST(Downsets, ProductsOfChainsHaveTheProductOfTheirCounts) {
    EXPECT_EQ(downsets_of({}, kNoLimit)->count(), 1);
    EXPECT_EQ(downsets_of(chains(1, 70), kNoLimit)->count(), 71);
    EXPECT_EQ(downsets_of(chains(3, 40), kNoLimit)->count(), 41 * 41 * 41);
    EXPECT_EQ(downsets_of(chains(10, 1), kNoLimit)->count(), 1024);
}

TEST(Downsets, AreThoseThatTryingAllSetsFinds) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        const Successors graph = random_graph(random, 1 + round % 10);
        const Downsets sets = *downsets_of(graph, kNoLimit);
        std::set<unsigned> found;
        for (int set = 0; set < sets.count(); ++set)
            found.insert(bits_of(sets, set));
        EXPECT_EQ(static_cast<int>(found.size()), sets.count());
        EXPECT_EQ(found, downsets_by_trying(graph));
    }
}

TEST(Downsets, StepsAddOneVertexAndReachEverySet) {
    std::mt19937 random(2);
    for (int round = 0; round < 100; ++round) {
        const Successors graph = random_graph(random, 1 + round % 10);
        const Downsets sets = *downsets_of(graph, kNoLimit);
        std::vector<int> reached(static_cast<std::size_t>(sets.count()));
        for (int set = 0; set < sets.count(); ++set)
            for (const auto& [vertex, next] : sets.steps_of(set)) {
                EXPECT_GT(next, set);
                EXPECT_EQ(bits_of(sets, next), bits_of(sets, set) | 1u << vertex);
                EXPECT_FALSE(sets.contains(set, vertex));
                ++reached[next];
            }
        EXPECT_EQ(std::count(reached.begin(), reached.end(), 0), 1) << "the empty set alone";
        EXPECT_TRUE(sets.steps_of(sets.count() - 1).empty());
    }
}

TEST(Downsets, MoreThanTheLimitIsNoAnswer) {
    EXPECT_FALSE(downsets_of(chains(30, 1), 10'000));
    EXPECT_TRUE(downsets_of(chains(10, 1), 1024));
    EXPECT_FALSE(downsets_of(chains(10, 1), 1023));
}

TEST(Downsets, PrefixesAreTheDownsetsOfAChain) {
    const Downsets prefixes = prefixes_of({2, 0, 1});
    ASSERT_EQ(prefixes.count(), 4);
    EXPECT_EQ(bits_of(prefixes, 0), 0u);
    EXPECT_EQ(bits_of(prefixes, 1), 4u);
    EXPECT_EQ(bits_of(prefixes, 2), 5u);
    EXPECT_EQ(bits_of(prefixes, 3), 7u);
    EXPECT_EQ(prefixes.steps_of(1)[0].vertex, 0);
    EXPECT_EQ(prefixes.steps_of(1)[0].next, 2);
    EXPECT_TRUE(prefixes.steps_of(3).empty());
}

TEST(TopologicalOrder, PutsEveryVertexAfterItsPredecessors) {
    std::mt19937 random(3);
    for (int round = 0; round < 100; ++round) {
        const Successors graph = random_graph(random, 1 + round % 12);
        for (const Ready tie : {Ready::SmallestFirst, Ready::LargestFirst, Ready::LatestFirst}) {
            const std::vector<int> order = topological_order(graph, tie);
            ASSERT_EQ(order.size(), graph.size());
            std::vector<int> place(graph.size());
            for (std::size_t at = 0; at < order.size(); ++at)
                place[static_cast<std::size_t>(order[at])] = static_cast<int>(at);
            for (std::size_t vertex = 0; vertex < graph.size(); ++vertex)
                for (const int successor : graph[vertex])
                    EXPECT_LT(place[vertex], place[successor]);
        }
    }
    EXPECT_LT(topological_order({{1}, {0}}, Ready::SmallestFirst).size(), 2u);
}
