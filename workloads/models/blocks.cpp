#include "workloads/models/blocks.h"

#include <algorithm>
#include <map>

namespace pw {

std::vector<std::string> components_of(const std::string& name) {
    std::vector<std::string> components;
    for (std::size_t begin = 0; begin <= name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        components.push_back(name.substr(begin, end - begin));
        begin = end + 1;
    }
    return components;
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string block_of(const std::string& name) {
    const std::vector<std::string> components = components_of(name);
    auto last = std::find_if(components.begin(), components.end(), is_number);
    if (last == components.end())
        last = std::find_if(components.begin(), components.end() - 1, [](const std::string& text) {
            return !text.empty() && is_number(text.substr(text.size() - 1));
        });
    if (last >= components.end() - 1)
        return name;
    std::string block = components.front();
    for (auto component = components.begin() + 1; component <= last; ++component)
        block += "." + *component;
    return block;
}

std::vector<int> starts_of_blocks(const LayerGraph& graph) {
    const auto layers = static_cast<int>(num_vertices(graph));
    std::map<std::string, int> last_of;  // layer, by block
    for (int layer = 0; layer < layers; ++layer)
        last_of[block_of(graph[static_cast<std::size_t>(layer)].name)] = layer;
    std::vector<int> starts;
    int reached = -1;  // the last layer of the blocks so far
    for (int layer = 0; layer < layers; ++layer) {
        const Layer& own = graph[static_cast<std::size_t>(layer)];
        const std::string block = block_of(own.name);
        const bool is_module = facts_of(own.kind).role == LayerRole::Module && own.part != LayerPart::Loss;
        if (layer == 0 || (layer > reached && (block != own.name || is_module)))
            starts.push_back(layer);
        reached = std::max(reached, last_of[block]);
    }
    return starts;
}

}  // namespace pw
