#include "search/pipedream/antichains.h"

#include <boost/range/iterator_range.hpp>

#include <cassert>
#include <set>

namespace pw {
namespace {

// Calls act(layer) for each layer outside of `done` that reads one inside.
template <class Act>
void for_each_reader(const Digraph& graph, const Downset& done, Act act) {
    Downset seen = done;
    for (auto layer = done.find_first(); layer != Downset::npos; layer = done.find_next(layer))
        for (const auto reader : boost::make_iterator_range(adjacent_vertices(layer, graph)))
            if (!seen.test_set(reader))
                act(reader);
}

}  // namespace

std::vector<Downset> ancestors_of(const Digraph& graph) {
    std::vector<Downset> ancestors;
    for (const auto layer : boost::make_iterator_range(vertices(graph))) {
        Downset& all = ancestors.emplace_back(num_vertices(graph));
        all.set(layer);
        for (const auto input : boost::make_iterator_range(inv_adjacent_vertices(layer, graph))) {
            assert(input < layer);
            all |= ancestors[input];
        }
    }
    return ancestors;
}

std::vector<Downset> downsets_from(const Digraph& graph, int source, std::size_t most) {
    const std::vector<Downset> ancestors = ancestors_of(graph);
    const Downset& first = ancestors[static_cast<std::size_t>(source)];
    std::set<Downset> known{first};
    std::vector<Downset> found{first};
    for (std::size_t next = 0; next < found.size(); ++next) {
        const Downset current = found[next];
        for_each_reader(graph, current, [&](std::size_t reader) {
            if (const auto [grown, is_new] = known.insert(current | ancestors[reader]); is_new)
                found.push_back(*grown);
        });
        if (found.size() > most)
            return {};
    }
    return found;
}

std::vector<Downset> prefixes_of(const Digraph& graph) {
    std::vector<Downset> prefixes;
    Downset prefix(num_vertices(graph));
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        prefixes.push_back(prefix.set(layer));
    return prefixes;
}

}  // namespace pw
