// The downsets of an acyclic graph: the sets that contain every predecessor of their members. The first stages of a
// pipeline form a downset, and a stage is the difference of two downsets. All downsets form a lattice, here with a step
// per added vertex.
#pragma once

#include <boost/dynamic_bitset.hpp>
#include <boost/graph/adjacency_list.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pw {

using Successors = std::vector<std::vector<int>>;  // the successors of each vertex, without repeats

struct Downsets {
    struct Step {
        std::int32_t vertex;  // the vertex that is added
        std::int32_t next;    // the downset that the vertex makes
    };
    int vertices = 0;
    std::vector<std::uint64_t> words;  // bits of all downsets, in sequence
    std::vector<std::int32_t> first;   // where each downset's steps begin, and the end of the last
    std::vector<Step> steps;           // ascending by vertex within a downset

    // Downsets are numbered by size: the empty set is 0, the whole graph the last downset.
    int count() const { return static_cast<int>(first.size()) - 1; }
    std::size_t words_each() const { return (static_cast<std::size_t>(vertices) + 63) / 64; }
    bool contains(int downset, int vertex) const {
        const auto at = static_cast<std::size_t>(downset) * words_each() + static_cast<std::size_t>(vertex) / 64;
        return words[at] >> (vertex % 64) & 1;
    }
    std::span<const Step> steps_of(int downset) const {
        const auto at = static_cast<std::size_t>(downset);
        return {steps.data() + first[at], steps.data() + first[at + 1]};
    }
};

// Returns all downsets, or nothing when there are more than `limit`. The graph must be acyclic.
std::optional<Downsets> downsets_of(const Successors& graph, std::size_t limit);
// Returns the prefixes of an order of the vertices: the downsets of a chain.
Downsets prefixes_of(const std::vector<int>& order);

Successors reversed(const Successors& graph);

enum class Ready { SmallestFirst, LargestFirst, LatestFirst };  // which of the ready vertices comes next
// Returns a topological order. The order is shorter than the graph if the graph has a cycle.
std::vector<int> topological_order(const Successors& graph, Ready tie);

// Below, downsets are sets of their own, for searches that add layers which are not next in the lattice.

// Vertices are layers in forward order. An edge runs from a layer to a later layer that reads its output.
using Digraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

using Downset = boost::dynamic_bitset<std::uint64_t>;

// Returns by [layer] the layer itself and all layers that it depends on.
std::vector<Downset> ancestors_of(const Digraph& graph);

// Returns the downsets that grow from layer `source`, one reader of a member at a time, each reader together with its
// ancestors: all downsets if `source` is the only layer without inputs. Returns nothing if there are more than `most`.
std::vector<Downset> downsets_from(const Digraph& graph, int source, std::size_t most);
// Returns the sets of the first layer, the first two, and so on.
std::vector<Downset> prefix_sets_of(const Digraph& graph);

}  // namespace pw
