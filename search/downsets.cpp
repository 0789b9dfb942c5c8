#include "search/downsets.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>
#include <cassert>
#include <set>
#include <string_view>
#include <unordered_set>

namespace pw {

namespace {

std::vector<int> in_degrees(const Successors& graph) {
    std::vector<int> degrees(graph.size());
    for (const auto& successors : graph)
        for (const int successor : successors)
            ++degrees[successor];
    return degrees;
}

// Finds a downset's number by its bits, which lie in `sets`.
class Numbers {
public:
    explicit Numbers(const Downsets& sets) : known_(64, Hash{sets}, Equal{sets}) {}
    // The number of the set with the bits of `candidate`, which is added if it is new.
    std::int32_t of(std::int32_t candidate) { return *known_.insert(candidate).first; }
    void forget() { known_.clear(); }

private:
    static std::string_view bits(const Downsets& sets, std::int32_t set) {
        const std::size_t bytes = sets.words_each() * sizeof(std::uint64_t);
        return {reinterpret_cast<const char*>(sets.words.data()) + static_cast<std::size_t>(set) * bytes, bytes};
    }
    struct Hash {
        const Downsets& sets;
        std::size_t operator()(std::int32_t set) const { return std::hash<std::string_view>()(bits(sets, set)); }
    };
    struct Equal {
        const Downsets& sets;
        bool operator()(std::int32_t a, std::int32_t b) const { return bits(sets, a) == bits(sets, b); }
    };
    std::unordered_set<std::int32_t, Hash, Equal> known_;
};

class Lattice {
public:
    explicit Lattice(const Successors& graph) : graph_(graph), predecessors_(reversed(graph)), numbers_(sets_) {
        sets_.vertices = static_cast<int>(graph.size());
    }

    std::optional<Downsets> build(std::size_t limit) {
        sets_.words.resize(sets_.words_each());
        ready_.emplace_back();
        const std::vector<int> degrees = in_degrees(graph_);
        for (std::size_t vertex = 0; vertex < degrees.size(); ++vertex)
            if (degrees[vertex] == 0)
                ready_[0].push_back(static_cast<int>(vertex));
        for (std::int32_t set = 0, size_ends = 1; set < static_cast<std::int32_t>(ready_.size()); ++set) {
            if (set == size_ends) {  // sets of different sizes are different
                numbers_.forget();
                size_ends = static_cast<std::int32_t>(ready_.size());
            }
            add_steps(set);
            if (ready_.size() > limit)
                return {};
        }
        sets_.first.push_back(static_cast<std::int32_t>(sets_.steps.size()));
        return std::move(sets_);
    }

private:
    void add_steps(std::int32_t set) {
        const std::vector<int> ready = std::move(ready_[set]);
        sets_.first.push_back(static_cast<std::int32_t>(sets_.steps.size()));
        for (const int vertex : ready)
            sets_.steps.push_back({vertex, number_with(set, vertex, ready)});
    }

    std::int32_t number_with(std::int32_t set, int vertex, const std::vector<int>& ready) {
        const auto candidate = static_cast<std::int32_t>(ready_.size());
        const std::size_t words = sets_.words_each(), from = static_cast<std::size_t>(set) * words;
        for (std::size_t word = 0; word < words; ++word)
            sets_.words.push_back(sets_.words[from + word]);
        sets_.words[sets_.words.size() - words + static_cast<std::size_t>(vertex) / 64] |= std::uint64_t{1}
                                                                                           << (vertex % 64);
        const std::int32_t number = numbers_.of(candidate);
        if (number != candidate)
            sets_.words.resize(sets_.words.size() - words);
        else
            ready_.push_back(ready_after(candidate, vertex, ready));
        return number;
    }

    std::vector<int> ready_after(std::int32_t set, int vertex, const std::vector<int>& ready) const {
        std::vector<int> after;
        for (const int other : ready)
            if (other != vertex)
                after.push_back(other);
        for (const int successor : graph_[vertex]) {
            const auto& needed = predecessors_[successor];
            if (std::all_of(needed.begin(), needed.end(), [&](int other) { return sets_.contains(set, other); }))
                after.push_back(successor);
        }
        std::sort(after.begin(), after.end());
        return after;
    }

    const Successors& graph_;
    Successors predecessors_;
    Downsets sets_;
    Numbers numbers_;
    std::vector<std::vector<int>> ready_;  // the vertices that may join a set (emptied once the set has its steps)
};

}  // namespace

std::optional<Downsets> downsets_of(const Successors& graph, std::size_t limit) { return Lattice(graph).build(limit); }

Downsets prefixes_of(const std::vector<int>& order) {
    Downsets sets{.vertices = static_cast<int>(order.size()), .words = {}, .first = {0}, .steps = {}};
    sets.words.resize(sets.words_each());
    for (const int vertex : order) {
        const std::size_t words = sets.words_each(), from = sets.words.size() - words;
        for (std::size_t word = 0; word < words; ++word)
            sets.words.push_back(sets.words[from + word]);
        sets.words[from + words + static_cast<std::size_t>(vertex) / 64] |= std::uint64_t{1} << (vertex % 64);
        sets.steps.push_back({vertex, static_cast<std::int32_t>(sets.first.size())});
        sets.first.push_back(static_cast<std::int32_t>(sets.steps.size()));
    }
    sets.first.push_back(static_cast<std::int32_t>(sets.steps.size()));
    return sets;
}

Successors reversed(const Successors& graph) {
    Successors predecessors(graph.size());
    for (std::size_t vertex = 0; vertex < graph.size(); ++vertex)
        for (const int successor : graph[vertex])
            predecessors[successor].push_back(static_cast<int>(vertex));
    return predecessors;
}

std::vector<int> topological_order(const Successors& graph, Ready tie) {
    std::vector<int> degrees = in_degrees(graph), ready, order;
    for (std::size_t vertex = graph.size(); vertex-- > 0;)
        if (degrees[vertex] == 0)
            ready.push_back(static_cast<int>(vertex));
    while (!ready.empty()) {
        if (tie != Ready::LatestFirst)
            std::iter_swap(ready.end() - 1, tie == Ready::SmallestFirst ? std::min_element(ready.begin(), ready.end())
                                                                        : std::max_element(ready.begin(), ready.end()));
        const int vertex = ready.back();
        ready.pop_back();
        order.push_back(vertex);
        for (const int successor : graph[vertex])
            if (--degrees[successor] == 0)
                ready.push_back(successor);
    }
    return order;
}

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

std::vector<Downset> prefix_sets_of(const Digraph& graph) {
    std::vector<Downset> prefixes;
    Downset prefix(num_vertices(graph));
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        prefixes.push_back(prefix.set(layer));
    return prefixes;
}

}  // namespace pw
