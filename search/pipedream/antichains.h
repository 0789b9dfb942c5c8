// The ways to cut a graph of layers in two: each is a set of layers that holds the inputs of all its layers.
#pragma once

#include <boost/dynamic_bitset.hpp>
#include <boost/graph/adjacency_list.hpp>

#include <cstdint>
#include <vector>

namespace pw {

// Vertices are layers in forward order; an edge runs to a later layer that reads what the other makes.
using Digraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

using Downset = boost::dynamic_bitset<std::uint64_t>;

// [layer]: itself and all that it is computed from.
std::vector<Downset> ancestors_of(const Digraph& graph);

// The downsets that grow from layer `source` by one reader at a time of a layer that is in already, each together
// with its ancestors: all of them where `source` is the only layer without inputs. Nothing when there are more than
// `most`.
std::vector<Downset> downsets_from(const Digraph& graph, int source, std::size_t most);
// The first layer, the first two, and so on.
std::vector<Downset> prefixes_of(const Digraph& graph);

}  // namespace pw
