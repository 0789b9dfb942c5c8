#include "sim/early_recomputes.h"

#include "schedules/trace/trace.h"
#include "sim/metrics.h"
#include "sim/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace pw {

namespace {

constexpr double kShares[] = {1, 0.5};  // of its time, for which a device is idle where an R may run
constexpr int kMostRounds = 20;

// A list with the times of its tasks.
class TimedList {
public:
    TimedList(const std::vector<Task>& list, std::span<const TraceEvent> events) : list_(list), events_(events) {
        std::map<std::pair<int, int>, Recompute> known;  // by stage and micro-batch
        early_.assign(list.size(), 0);
        bool in_pair = false;
        int before = -1;  // the task before, transfers left out
        for (int at = 0; at < std::ssize(list); ++at) {
            const Task& task = list[at];
            if (is_transfer(task.op))
                continue;
            if (!in_pair)
                starts_.push_back({at, before});
            in_pair = task.with_next;
            before = at;
            Recompute& own = known[{task.stage, task.microbatch}];
            if (saves_first(task.op))
                own.forward = at;
            else if (task.op == Op::Recompute)
                own.at = at;
            else if (makes_input_gradient(task.op) && own.at >= 0) {
                own.needed = starts_.back().at;
                recomputes_.push_back(own);
            }
        }
        for (const Recompute& own : recomputes_)
            if (is_early(own))
                std::for_each(early_.begin() + own.at, early_.begin() + own.needed, [](int& count) { ++count; });
    }

    // Moves R into idle time. At most `most` at once wait for a backward that is not the next task.
    bool fill(double share, int most) {
        std::vector<char> moved(recomputes_.size(), 0);
        bool any = false;
        for (const Start& start : starts_) {
            if (list_[start.at].op == Op::Recompute)
                continue;
            Ns idle = events_[start.at].start - (start.before < 0 ? 0 : events_[start.before].end);
            for (std::size_t k = 0; k < recomputes_.size() && idle > 0; ++k) {
                const Recompute& own = recomputes_[k];
                const Ns time = events_[own.at].end - events_[own.at].start;
                if (moved[k] || own.at <= start.at || share * static_cast<double>(time) > static_cast<double>(idle) ||
                    own.forward >= start.at || most_early(start.at, own.at) >= most)
                    continue;
                std::for_each(early_.begin() + start.at, early_.begin() + own.at, [](int& count) { ++count; });
                before_[start.at].push_back(own.at);
                moved[k] = any = true;
                idle -= time;
            }
        }
        return any;
    }

    std::vector<Task> list() const {
        std::vector<char> leaves(list_.size(), 0);
        for (const auto& [place, moved] : before_)
            for (const int at : moved)
                leaves[at] = 1;
        std::vector<Task> list;
        for (int at = 0; at < std::ssize(list_); ++at) {
            if (const auto own = before_.find(at); own != before_.end())
                for (const int from : own->second)
                    list.push_back(list_[from]);
            if (!leaves[at])
                list.push_back(list_[at]);
        }
        return list;
    }

    // Returns the most R at once that wait for a backward that is not the next task.
    int most_early() const { return early_.empty() ? 0 : *std::max_element(early_.begin(), early_.end()); }

private:
    struct Start {
        int at, before;  // where a task that is no transfer, or a pair, starts, and where the one before it ends
    };
    struct Recompute {
        int forward = -1, at = -1;
        int needed = -1;  // where its backward starts, or the pair of that
    };

    bool is_early(const Recompute& own) const {
        return std::any_of(list_.begin() + own.at + 1, list_.begin() + own.needed,
                           [](const Task& task) { return !is_transfer(task.op); });
    }
    int most_early(int from, int to) const { return *std::max_element(early_.begin() + from, early_.begin() + to); }

    const std::vector<Task>& list_;
    std::span<const TraceEvent> events_;
    std::vector<Start> starts_;
    std::vector<Recompute> recomputes_;       // in the order of their backwards
    std::vector<int> early_;                  // by position: R before it that are early there
    std::map<int, std::vector<int>> before_;  // by position: those that move there
};

class EarlyRecomputes {
public:
    EarlyRecomputes(const Plan& plan, const Costs& costs, const TransferMode& mode, const std::vector<Bytes>& memory)
        : costs_(costs), mode_(mode), most_(memory) {
        mode_.sent_copies = keeps_copies(costs, mode.early_receive());
        Timed timed{plan, {}, {}};
        Simulator simulator = simulator_of(timed.plan);
        timed.events = simulator.events(costs_);
        timed.metrics = simulator.metrics(costs_, without_hash(timed.plan));
        plain_ = fitting_ = best_ = std::move(timed);
        most_.resize(plan.order.size(), std::numeric_limits<Bytes>::max());
        for (std::size_t device = 0; device < most_.size(); ++device)
            most_[device] = std::max(most_[device], used(plain_, device));
    }

    Plan shortest() {
        for (const double share : kShares) {
            fitting_ = plain_;
            fits_.assign(most_.size(), 0);
            too_many_.assign(most_.size(), std::numeric_limits<int>::max());
            for (int most = 1;; most *= 2) {
                const int early = fill_within_memory(share, most);
                if (fitting_.metrics.step_time < best_.metrics.step_time)
                    best_ = fitting_;
                if (early < most)
                    break;
            }
        }
        return best_.plan;
    }

private:
    struct Timed {
        Plan plan;
        std::vector<TraceEvent> events;
        Metrics metrics;
    };

    Simulator simulator_of(const Plan& plan) const { return {plan, mode_}; }
    static Bytes used(const Timed& plan, std::size_t device) { return plan.metrics.devices[device].needed_memory(); }

    // Fills idle time of `fitting_` with up to `most` early R at once on a device, or as many as fit. Returns the most
    // of all devices.
    int fill_within_memory(double share, int most) {
        for (;;) {
            std::vector<int> limits(most_.size());
            for (std::size_t device = 0; device < limits.size(); ++device)
                limits[device] = most < too_many_[device] ? most : (fits_[device] + too_many_[device]) / 2;
            auto [filled, early] = this->filled(share, limits);
            bool fits = true;
            for (std::size_t device = 0; device < limits.size(); ++device) {
                if (used(filled, device) <= most_[device]) {
                    fits_[device] = std::max(fits_[device], limits[device]);
                    continue;
                }
                if (early[device] == 0)
                    return 0;  // it is over by the moves of others
                too_many_[device] = std::min(limits[device], early[device]);
                fits_[device] = std::min(fits_[device], too_many_[device] - 1);
                fits = false;
            }
            if (fits) {
                fitting_ = std::move(filled);
                return *std::max_element(early.begin(), early.end());
            }
        }
    }

    std::pair<Timed, std::vector<int>> filled(double share, const std::vector<int>& limits) const {
        Timed own = fitting_;
        std::vector<int> early(limits.size(), 0);
        for (int round = 0; round < kMostRounds; ++round) {
            Plan next = own.plan;
            bool any = false;
            auto first = own.events.begin();
            for (std::size_t device = 0; device < limits.size(); ++device) {
                const std::vector<Task>& list = own.plan.order[device];
                TimedList timed_list(list, std::span(first, list.size()));
                first += std::ssize(list);
                if (timed_list.fill(share, limits[device])) {
                    next.order[device] = timed_list.list();
                    any = true;
                }
                early[device] = timed_list.most_early();
            }
            if (!any)
                break;
            own.events = simulator_of(next).events(costs_);
            own.plan = std::move(next);
        }
        own.metrics = simulator_of(own.plan).metrics(costs_, without_hash(own.plan));
        return {std::move(own), std::move(early)};
    }

    const Costs& costs_;
    TransferMode mode_;
    Timed best_, plain_, fitting_;
    std::vector<Bytes> most_;           // by device
    std::vector<int> fits_, too_many_;  // by device: numbers of early R
};

}  // namespace

Plan with_early_recomputes(const Plan& plan, const Costs& costs, const TransferMode& mode,
                           const std::vector<Bytes>& memory) {
    const auto recomputes = [](const std::vector<Task>& list) {
        return std::any_of(list.begin(), list.end(), [](const Task& task) { return task.op == Op::Recompute; });
    };
    return std::any_of(plan.order.begin(), plan.order.end(), recomputes)
               ? EarlyRecomputes(plan, costs, mode, memory).shortest()
               : plan;
}

}  // namespace pw
