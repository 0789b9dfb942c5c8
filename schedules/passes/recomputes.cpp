#include "schedules/passes/passes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace pw {

namespace {

// Adds R to the list of a device.
class Recomputer {
public:
    Recomputer(const std::vector<Task>& order, const Recomputation& recomputation)
        : order_(order), recomputation_(recomputation) {}

    std::vector<Task> longer() {
        find_forwards();
        find_backwards();
        std::vector<Task> longer;
        for (std::size_t at = 0; at < order_.size(); ++at) {
            const auto [first, last] = recomputes_.equal_range(at);
            for (auto next = first; next != last; ++next)
                longer.push_back(next->second);
            longer.push_back(order_[at]);
        }
        return longer;
    }

private:
    struct Stage {
        int in_flight = 0, window = 0;
        std::vector<int> forwards = {};  // micro-batches, in the order of the list
    };

    void find_forwards() {
        for (std::size_t at = 0; at < order_.size(); ++at) {
            const Task& task = order_[at];
            Stage& stage = stages_[task.stage];
            if (saves_first(task.op)) {
                forward_at_[{task.stage, task.microbatch}] = at;
                stage.forwards.push_back(task.microbatch);
                stage.window = std::max(stage.window, ++stage.in_flight);
            } else if (makes_input_gradient(task.op)) {
                --stage.in_flight;
            }
        }
        for (const auto& [number, stage] : stages_)
            for (std::size_t k = 0; k < stage.forwards.size(); ++k)
                if (static_cast<int>(k) % stage.window < recomputation_.saved)
                    saved_.insert({number, stage.forwards[k]});
    }

    void find_backwards() {
        std::size_t start = 0;  // of the task, or of its pair
        bool in_pair = false;
        for (std::size_t at = 0; at < order_.size(); ++at) {
            const Task& task = order_[at];
            if (!is_transfer(task.op) && !std::exchange(in_pair, task.with_next))
                start = at;
            if (!makes_input_gradient(task.op))
                continue;
            first_ = std::min(first_, start);
            if (std::ranges::binary_search(recomputation_.stages, task.stage) &&
                !saved_.contains({task.stage, task.microbatch}))
                recomputes_.emplace(place_of(task, start),
                                    Task{Op::Recompute, task.stage, task.microbatch, task.slices});
        }
    }

    // Returns the position before which the R of the latest backward comes, which begins at `start`.
    std::size_t place_of(const Task& backward, std::size_t start) {
        const auto forward = forward_at_.find({backward.stage, backward.microbatch});
        if (start == first_ || ahead_ >= recomputation_.ahead || forward == forward_at_.end() ||
            forward->second > first_)
            return start;
        ++ahead_;
        return first_;
    }

    const std::vector<Task>& order_;
    const Recomputation& recomputation_;
    std::map<int, Stage> stages_;
    std::map<std::pair<int, int>, std::size_t> forward_at_;  // by stage and micro-batch
    std::set<std::pair<int, int>> saved_;                    // stages and micro-batches without R
    std::size_t first_ = std::string::npos;                  // start of the first backward
    int ahead_ = 0;                                          // R of later backwards that come before it
    std::multimap<std::size_t, Task> recomputes_;            // by the position that they precede
};

}  // namespace

void add_recomputes(Plan& plan, const Recomputation& recomputation) {
    if (recomputation.stages.empty())
        return;
    for (std::vector<Task>& order : plan.order)
        order = Recomputer(order, recomputation).longer();
}

}  // namespace pw
