#include "schedules/passes/passes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Adds the copies to the list of a device. A launch is a task that occupies the device, or a pair.
class Offloader {
public:
    Offloader(const std::vector<Task>& order, const Offloading& offloading) : order_(order), offloading_(offloading) {}

    std::vector<Task> longer() {
        find_launches();
        for (const auto& [key, launch] : forwards_)
            if (const auto reader = readers_.find(key); reader != readers_.end())
                offload(key, launch, reader->second);
        std::vector<Task> longer;
        int launch = 0;
        for (std::size_t at = 0; at < order_.size(); ++at) {
            if (launch < static_cast<int>(starts_.size()) && starts_[static_cast<std::size_t>(launch)] == at) {
                const Copies& copies = copies_[static_cast<std::size_t>(launch++)];
                longer.insert(longer.end(), copies.offloads.begin(), copies.offloads.end());
                longer.insert(longer.end(), copies.reloads.begin(), copies.reloads.end());
            }
            longer.push_back(order_[at]);
        }
        return longer;
    }

private:
    using Key = std::pair<int, int>;  // stage, micro-batch
    struct Copies {
        std::vector<Task> offloads, reloads;  // before a launch: offloads first, whose memory reloads may reuse
    };

    void find_launches() {
        bool in_pair = false;
        for (std::size_t at = 0; at < order_.size(); ++at) {
            const Task& task = order_[at];
            if (moves_data(task.op))
                continue;
            if (!std::exchange(in_pair, task.with_next))
                starts_.push_back(at);
            const int launch = static_cast<int>(starts_.size()) - 1;
            const Key key{task.stage, task.microbatch};
            if (!std::ranges::binary_search(offloading_.stages, task.stage))
                continue;
            if (saves_first(task.op))
                forwards_[key] = launch;
            else if (task.op == Op::Recompute || is_backward(task.op))
                readers_.try_emplace(key, launch);
        }
        copies_.resize(starts_.size());
    }

    void offload(const Key& key, int forward, int reader) {
        const int gone = forward + 1 + offloading_.ahead, back = reader - offloading_.ahead;
        if (gone >= back)
            return;
        const Task& task = order_[starts_[static_cast<std::size_t>(forward)]];
        const auto copy = [&](Op op) { return Task{op, key.first, key.second, task.slices}; };
        copies_[static_cast<std::size_t>(gone)].offloads.push_back(copy(Op::Offload));
        copies_[static_cast<std::size_t>(back)].reloads.push_back(copy(Op::Reload));
    }

    const std::vector<Task>& order_;
    const Offloading& offloading_;
    std::vector<std::size_t> starts_;  // by launch: the position of its first task
    std::vector<Copies> copies_;       // by launch
    std::map<Key, int> forwards_;      // launch of F
    std::map<Key, int> readers_;       // launch of the first task that reads what F has saved
};

}  // namespace

void add_offloads(Plan& plan, const Offloading& offloading) {
    if (offloading.stages.empty())
        return;
    for (std::vector<Task>& order : plan.order)
        order = Offloader(order, offloading).longer();
}

}  // namespace pw
