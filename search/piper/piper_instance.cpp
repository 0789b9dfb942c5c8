#include "search/piper/piper_instance.h"

#include "search/downsets.h"
#include "search/instance_json.h"
#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <charconv>
#include <set>

namespace pw {

namespace {

class PiperReader {
public:
    explicit PiperReader(InstanceObject file) : file_(std::move(file)) {}

    PiperInstance read() {
        instance_.devices = file_.integer("maxDevices", 1);
        instance_.microbatches = file_.integer("mbsInBatch", 1);
        instance_.memory = file_.amount("maxMemoryPerDevice");
        instance_.bandwidth = file_.amount("bandwidth");
        if (instance_.bandwidth == 0)
            fail("{}.bandwidth is 0: give bytes per unit of time", file_.place);
        const std::vector<InstanceObject> nodes = file_.list("nodes");
        for (const InstanceObject& node : nodes)
            add_layer(node);
        if (nodes.empty())
            fail("{}.nodes is empty: there is nothing to split", file_.place);
        for (const InstanceObject& edge : file_.list("edges"))
            add_edge(edge);
        refuse_cycles();
        for (std::size_t layer = 0; layer < nodes.size(); ++layer)
            add_options(nodes[layer], instance_.layers[layer]);
        return std::move(instance_);
    }

private:
    void add_layer(const InstanceObject& node) {
        numbers_.add(node);
        instance_.layers.push_back({name_of_node(node), {}});
    }

    void add_edge(const InstanceObject& edge) {
        const int from = numbers_.end_of(edge, "sourceId"), to = numbers_.end_of(edge, "destId");
        if (!joined_.emplace(from, to).second)
            fail("{}: nodes {} and {} are joined already", edge.place, numbers_.id_of(from), numbers_.id_of(to));
        const int number = static_cast<int>(instance_.edges.size());
        instance_.edges.push_back({from, to, edge.amount("communicationCost")});
        instance_.layers[from].out.push_back(number);
        instance_.layers[to].in.push_back(number);
    }

    void refuse_cycles() const {
        Successors graph(instance_.layers.size());
        for (const PiperEdge& edge : instance_.edges)
            graph[edge.from].push_back(edge.to);
        if (topological_order(graph, Ready::LatestFirst).size() < graph.size())
            fail("{}.edges close a cycle: a pipeline has none", file_.place);
    }

    void add_options(const InstanceObject& node, PiperLayer& layer) const {
        const InstanceObject degrees = node.child("TMPCs");
        for (const auto& [key, unused] : degrees.object.items()) {
            int degree = 0;
            const auto end = std::from_chars(key.data(), key.data() + key.size(), degree);
            if (end.ptr != key.data() + key.size() || end.ec != std::errc() || degree < 1)
                fail("{}: expected tensor-parallel degrees from 1 on as keys, got '{}'", degrees.place,
                     shortened(key, 80));
            for (const InstanceObject& option : degrees.list(key.c_str()))
                add_option(option, layer, layer.options[degree]);
        }
    }

    void add_option(const InstanceObject& object, const PiperLayer& layer, std::vector<PiperOption>& options) const {
        const std::string id = object.text("id");
        if (id != "vanilla" && id != "activation recomp")
            fail("{}.id: expected 'vanilla' or 'activation recomp', got '{}'", object.place, shortened(id, 80));
        PiperOption option{.recompute = id != "vanilla",
                           .time = object.amount("timePerSample"),
                           .parameters = object.amount("parameterSize"),
                           .memory_each = object.amount("memoryUsageA"),
                           .memory = object.amount("memoryUsageB")};
        if (!options.empty() && (options.size() > 1 || options[0].recompute == option.recompute))
            fail("{}: the layer has an option '{}' already", object.place, id);
        const InstanceObject forward = object.child("syncTimeFw"), backward = object.child("syncTimeBw");
        const auto key_of = [&](int node) { return std::to_string(numbers_.id_of(node)); };
        for (const int edge : layer.in)
            option.sync_in.push_back(forward.amount(key_of(instance_.edges[edge].from).c_str()));
        for (const int edge : layer.out)
            option.sync_out.push_back(backward.amount(key_of(instance_.edges[edge].to).c_str()));
        options.push_back(std::move(option));
    }

    InstanceObject file_;
    PiperInstance instance_;
    NodeNumbers numbers_;
    std::set<std::pair<int, int>> joined_;
};

}  // namespace

PiperInstance parse_piper_instance(const std::string& text, const std::string& name) {
    const nlohmann::json file = parse_instance(text, name);
    return PiperReader({file, fmt::format("instance '{}'", name)}).read();
}

PiperInstance read_piper_instance(const std::string& path) {
    return parse_piper_instance(contents_of_instance(path), path);
}

}  // namespace pw
