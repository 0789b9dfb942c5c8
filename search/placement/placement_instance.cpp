#include "search/placement/placement_instance.h"

#include "search/instance_json.h"
#include "workloads/error.h"

namespace pw {

namespace {

class PlacementReader {
public:
    explicit PlacementReader(InstanceObject file) : file_(std::move(file)) {}

    PlacementInstance read() {
        instance_.memory = file_.amount("maxSizePerFPGA");
        instance_.accelerators = file_.integer("maxFPGAs", 0);
        instance_.cpus = file_.integer("maxCPUs", 0);
        for (const InstanceObject& node : file_.list("nodes"))
            add_node(node);
        if (instance_.nodes.empty())
            fail("{}.nodes is empty: there is nothing to place", file_.place);
        if (instance_.accelerators + instance_.cpus == 0)
            fail("{}: maxFPGAs and maxCPUs are 0: give one device or more", file_.place);
        costs_known_.resize(instance_.nodes.size());
        for (const InstanceObject& edge : file_.list("edges"))
            add_edge(edge);
        return std::move(instance_);
    }

private:
    void add_node(const InstanceObject& node) {
        numbers_.add(node);
        instance_.nodes.push_back({.name = name_of_node(node),
                                   .cpu_time = node.amount("cpuLatency"),
                                   .accelerator_time = node.amount("fpgaLatency"),
                                   .transfer_time = 0,
                                   .size = node.has("size") ? node.amount("size") : 0,
                                   .colour = node.has("colorClass") ? node.integer("colorClass", 0) : -1,
                                   .backward = node.flag("isBackwardNode"),
                                   .on_accelerator = node.flag("supportedOnFpga")});
    }

    void add_edge(const InstanceObject& edge) {
        const int from = numbers_.end_of(edge, "sourceId"), to = numbers_.end_of(edge, "destId");
        const double cost = edge.amount("cost");
        PlacementNode& node = instance_.nodes[from];
        if (from == to)
            fail("{}: the edge leads from node '{}' to itself", edge.place, node.name);
        if (node.backward && !instance_.nodes[to].backward)
            fail("{}: forward node '{}' reads backward node '{}'", edge.place, instance_.nodes[to].name, node.name);
        if (costs_known_[from] && node.transfer_time != cost)
            fail("{}.cost: {} where another edge of node '{}' says {}; one output has one cost", edge.place, cost,
                 node.name, node.transfer_time);
        costs_known_[from] = true;
        node.transfer_time = cost;
        instance_.edges.push_back({from, to});
    }

    InstanceObject file_;
    PlacementInstance instance_;
    NodeNumbers numbers_;
    std::vector<bool> costs_known_;
};

}  // namespace

PlacementInstance parse_placement_instance(const std::string& text, const std::string& name) {
    const nlohmann::json file = parse_instance(text, name);
    return PlacementReader({file, fmt::format("instance '{}'", name)}).read();
}

PlacementInstance read_placement_instance(const std::string& path) {
    return parse_placement_instance(contents_of_instance(path), path);
}

}  // namespace pw
