#include "search/plans/cheapest_layers.h"

#include <algorithm>
#include <numeric>

namespace pw {

std::vector<Bytes> recomputable_bytes(const LayerGraph& graph, const std::vector<LayerBytes>& bytes) {
    std::vector<Bytes> all;
    for (std::size_t layer = 0; layer < bytes.size(); ++layer) {
        const std::vector<int> readers = readers_of_layer(graph, static_cast<int>(layer));
        const bool is_read_again = std::ranges::any_of(readers, [&](int reader) {
            return rereads_input_for_input_gradient(graph[reader]) || rereads_input_for_weight_gradient(graph[reader]);
        });
        all.push_back(bytes[layer].saved_until_input + bytes[layer].kept_until_weight +
                      (is_read_again ? bytes[layer].output : 0));
    }
    return all;
}

std::vector<std::vector<std::string>> cheapest_layers(const LayerGraph& graph, const CostTable& costs) {
    const std::vector<Bytes> bytes = recomputable_bytes(graph, costs.bytes());
    const auto all = static_cast<double>(std::reduce(bytes.begin(), bytes.end()));
    std::vector<int> order(bytes.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](int layer) { return bytes[layer] == 0; });
    std::ranges::stable_sort(order, [&](int a, int b) {
        const auto product = [&](int saving, int taking) {
            return static_cast<double>(bytes[saving]) * static_cast<double>(costs.alone()[taking].recompute);
        };
        return product(a, b) > product(b, a);
    });
    std::vector<std::vector<std::string>> lists;
    std::vector<std::string> names;
    double saved = 0;
    for (const int layer : order) {
        const bool takes_time = costs.alone()[layer].recompute > 0;  // what takes no time is in every list
        if (takes_time && lists.size() < 3 && saved >= all * static_cast<double>(lists.size() + 1) / 4)
            lists.push_back(names);
        names.push_back(graph[layer].name);
        saved += static_cast<double>(bytes[layer]);
    }
    lists.emplace_back();
    return lists;
}

}  // namespace pw
