#include "search/placement/placement_groups.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/strong_components.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace pw {

namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;
using Members = std::vector<int>;  // group of each node

// Numbers groups by their first node.
Members renumbered(const Members& old) {
    std::map<int, int> numbers;
    Members members;
    for (const int group : old)
        members.push_back(numbers.emplace(group, static_cast<int>(numbers.size())).first->second);
    return members;
}

Members by_colour(const PlacementInstance& instance) {
    std::map<int, int> first_of;
    Members members(instance.nodes.size());
    for (std::size_t node = 0; node < members.size(); ++node) {
        const int colour = instance.nodes[node].colour, number = static_cast<int>(node);
        members[node] = colour < 0 ? number : first_of.emplace(colour, number).first->second;
    }
    return renumbered(members);
}

int count_of(const Members& members) { return 1 + *std::max_element(members.begin(), members.end()); }

// The order of nodes: the edges into forward nodes, and the reversed edges between backward nodes if either node has no
// forward node of its colour to follow.
std::vector<PlacementEdge> order_of(const PlacementInstance& instance) {
    const Members colours = by_colour(instance);
    std::vector<bool> has_forward(count_of(colours));
    for (std::size_t node = 0; node < colours.size(); ++node)
        if (!instance.nodes[node].backward)
            has_forward[colours[node]] = true;
    std::vector<PlacementEdge> order;
    for (const auto& [from, to] : instance.edges)
        if (!instance.nodes[to].backward)
            order.push_back({from, to});
        else if (instance.nodes[from].backward && !(has_forward[colours[from]] && has_forward[colours[to]]))
            order.push_back({to, from});
    return order;
}

Graph forward_graph(const PlacementInstance& instance, const Members& members) {
    Graph graph(count_of(members));
    for (const auto& [before, after] : order_of(instance))
        if (members[before] != members[after])
            add_edge(members[before], members[after], graph);
    return graph;
}

Members without_cycles(const PlacementInstance& instance, const Members& members) {
    const Graph graph = forward_graph(instance, members);
    std::vector<int> component(num_vertices(graph));
    boost::strong_components(graph, component.data());
    Members fused;
    for (const int group : members)
        fused.push_back(component[group]);
    return renumbered(fused);
}

PlacementGroups assemble(const PlacementInstance& instance, const Members& members) {
    PlacementGroups made;
    made.groups.resize(count_of(members));
    for (std::size_t node = 0; node < members.size(); ++node) {
        const PlacementNode& from = instance.nodes[node];
        PlacementGroup& to = made.groups[members[node]];
        to.nodes.push_back(static_cast<int>(node));
        to.cpu_time += from.cpu_time;
        to.accelerator_time += from.accelerator_time;
        to.size += from.size;
        to.on_accelerator = to.on_accelerator && from.on_accelerator;
    }
    const Graph graph = forward_graph(instance, members);
    for (std::size_t group = 0; group < made.groups.size(); ++group) {
        std::set<int> next;
        for (const auto target : boost::make_iterator_range(adjacent_vertices(group, graph)))
            next.insert(static_cast<int>(target));
        made.successors.emplace_back(next.begin(), next.end());
    }
    return made;
}

// The groups that each node's output touches, its own included.
std::vector<std::set<int>> reach_of(const PlacementInstance& instance, const Members& members) {
    std::vector<std::set<int>> reach(members.size());
    for (std::size_t node = 0; node < members.size(); ++node)
        reach[node].insert(members[node]);
    for (const auto& [from, to] : instance.edges)
        reach[from].insert(members[to]);
    return reach;
}

void add_nets(const PlacementInstance& instance, const Members& members, PlacementGroups& made) {
    std::map<std::vector<int>, double> costs;
    const auto reach = reach_of(instance, members);
    for (std::size_t node = 0; node < reach.size(); ++node)
        if (reach[node].size() > 1 && instance.nodes[node].transfer_time > 0)
            costs[{reach[node].begin(), reach[node].end()}] += instance.nodes[node].transfer_time;
    for (const auto& [groups, cost] : costs) {
        for (const int group : groups)
            made.groups[group].nets.push_back(static_cast<int>(made.nets.size()));
        made.nets.push_back({groups, cost});
    }
}

// Which groups an edge of any kind joins, and what a group's outputs cost to move.
struct Talk {
    std::vector<std::set<int>> partners;
    std::vector<double> sends;
};

Talk talk_of(const PlacementInstance& instance, const Members& members) {
    Talk talk{std::vector<std::set<int>>(count_of(members)), std::vector<double>(count_of(members))};
    const auto reach = reach_of(instance, members);
    for (std::size_t node = 0; node < reach.size(); ++node) {
        const int own = members[node];
        if (reach[node].size() > 1)
            talk.sends[own] += instance.nodes[node].transfer_time;
        for (const int other : reach[node])
            if (other != own) {
                talk.partners[own].insert(other);
                talk.partners[other].insert(own);
            }
    }
    return talk;
}

// A group that is connected to one other group, and adds less time and memory there than its own tensors cost to
// receive, is never worse on the same device: in any placement, moving it there keeps the devices contiguous and raises
// no load.
Members without_trivial(const PlacementInstance& instance, const Members& members) {
    const PlacementGroups made = assemble(instance, members);
    const Talk talk = talk_of(instance, members);
    double total_size = 0;
    for (const PlacementGroup& group : made.groups)
        total_size += group.size;
    std::vector<int> joins(made.groups.size());
    std::iota(joins.begin(), joins.end(), 0);
    std::vector<bool> settled(joins.size());
    for (std::size_t group = 0; group < joins.size(); ++group) {
        const PlacementGroup& small = made.groups[group];
        const bool weightless = small.size == 0 || total_size <= instance.memory;
        if (talk.partners[group].size() != 1 || settled[group] || !small.on_accelerator || !weightless ||
            small.cpu_time > 0 || small.accelerator_time > talk.sends[group])
            continue;
        const int partner = *talk.partners[group].begin();
        if (joins[partner] != partner)
            continue;
        joins[group] = partner;
        settled[partner] = true;
    }
    Members fewer;
    for (const int group : members)
        fewer.push_back(joins[group]);
    return renumbered(fewer);
}

}  // namespace

PlacementGroups group(const PlacementInstance& instance) {
    Members members = without_cycles(instance, by_colour(instance));
    for (Members fewer = without_trivial(instance, members); fewer != members;) {
        members = without_cycles(instance, fewer);
        fewer = without_trivial(instance, members);
    }
    PlacementGroups made = assemble(instance, members);
    add_nets(instance, members, made);
    return made;
}

}  // namespace pw
