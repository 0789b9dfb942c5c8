#include "schedules/orders/schedule.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace pw {

namespace {

// In slots of equal length, each device runs the pass that is there: B before F, the deepest stage first, its oldest
// micro-batch first. The slots are only for ordering: the orders are free of deadlock whatever the times are.
class Waves {
public:
    explicit Waves(const Shape& shape) : shape_(shape), ready_(shape.devices), orders_(shape.devices) {}

    std::vector<Tasks> run() {
        arrive({Op::Forward, 0, 0});
        while (!awake_.empty()) {
            Tasks ran;
            std::vector<int> still;
            for (const int device : awake_) {
                const Task& task = ran.emplace_back(ready_[device].top());
                orders_[device].push_back(task);
                ready_[device].pop();
                if (!ready_[device].empty())
                    still.push_back(device);
            }
            awake_ = std::move(still);
            for (const Task& task : ran)
                follow(task);
        }
        return std::move(orders_);
    }

private:
    struct Later {
        bool operator()(const Task& a, const Task& b) const {
            const auto rank = [](const Task& task) {
                return std::tuple(task.op == Op::Forward, -task.stage, task.microbatch);
            };
            return rank(a) > rank(b);
        }
    };

    void arrive(const Task& task) {
        const int device = device_in_waves(task.stage, shape_.devices);
        if (ready_[device].empty())
            awake_.push_back(device);
        ready_[device].push(task);
    }

    // Adds what a pass makes ready.
    void follow(const Task& task) {
        if (task.op == Op::Backward) {
            if (task.stage > 0)
                arrive({Op::Backward, task.stage - 1, task.microbatch});
            return;
        }
        if (task.stage == 0 && task.microbatch + 1 < shape_.microbatches)
            arrive({Op::Forward, 0, task.microbatch + 1});
        if (task.stage + 1 < shape_.stages)
            arrive({Op::Forward, task.stage + 1, task.microbatch});
        else
            arrive({Op::Backward, task.stage, task.microbatch});
    }

    const Shape& shape_;
    std::vector<std::priority_queue<Task, Tasks, Later>> ready_;  // by device: passes whose inputs are there
    std::vector<int> awake_;                                      // devices that have such passes
    std::vector<Tasks> orders_;
};

std::vector<Tasks> hanayo(const Request& request) { return Waves(request.shape).run(); }

int even_per_device(int stages, int devices) {
    const int wave = 2 * devices;
    return stages % wave == 0 ? stages : std::max(1, (stages + devices) / wave) * wave;
}

}  // namespace

// Stages go down the devices and up again, v / 2 times.
extern const Schedule kHanayo{.name = "hanayo",
                              .summary = "v/2 waves down the devices and up again; made for m = p",
                              .origin = "Liu et al. 2023, arXiv 2308.15762",
                              .placement = {"waves", "an even number of stages", even_per_device, place_in_waves},
                              .chunks = 2,
                              .bubble = "2 (p-1) B / v when m=p, B>=F",
                              .in_flight = "min(m, p)",
                              .orders = hanayo};

}  // namespace pw
