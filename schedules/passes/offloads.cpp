#include "schedules/passes/passes.h"

#include <algorithm>
#include <cstddef>
#include <limits>
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
        copy_states();
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
                longer.insert(longer.end(), copies.loads.begin(), copies.loads.end());
            }
            longer.push_back(order_[at]);
        }
        return longer;
    }

private:
    using Key = std::pair<int, int>;  // stage, micro-batch
    struct Copies {
        // before a launch: STOREs and OFFLOADs first, whose memory copies back may reuse. RELOADs are needed first
        std::vector<Task> offloads, reloads, loads;
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
            if (task.op == Op::Update && std::ranges::binary_search(offloading_.states, task.stage))
                updates_.emplace_back(task, launch);
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

    // Each copy has `states_ahead` launches before the next copy must be over, or the U.
    void copy_states() {
        const int ahead = offloading_.states_ahead;
        std::vector<int> back(updates_.size());
        int next = std::numeric_limits<int>::max();
        for (std::size_t k = updates_.size(); k-- > 0;)
            back[k] = next = std::min(next, updates_[k].second) - ahead;
        int gone = 0;
        for (std::size_t k = 0; k < updates_.size(); ++k) {
            if (gone + ahead >= back[k])
                continue;
            gone += ahead;
            const auto copy = [&](Op op) {
                Task task = updates_[k].first;
                task.op = op;
                return task;
            };
            copies_[static_cast<std::size_t>(gone)].offloads.push_back(copy(Op::Store));
            copies_[static_cast<std::size_t>(back[k])].loads.push_back(copy(Op::Load));
        }
    }

    const std::vector<Task>& order_;
    const Offloading& offloading_;
    std::vector<std::size_t> starts_;            // by launch: the position of its first task
    std::vector<Copies> copies_;                 // by launch
    std::vector<std::pair<Task, int>> updates_;  // whose states leave, with their launches
    std::map<Key, int> forwards_;                // launch of F
    std::map<Key, int> readers_;                 // launch of the first task that reads what F has saved
};

}  // namespace

void add_offloads(Plan& plan, const Offloading& offloading) {
    if (offloading.is_empty())
        return;
    for (std::vector<Task>& order : plan.order)
        order = Offloader(order, offloading).longer();
}

}  // namespace pw
