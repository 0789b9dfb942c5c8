// Every order of the passes of a small pipeline, device by device, by code of the tests alone.
#pragma once

#include "schedules/plan/plan.h"
#include "tests/support/dice.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace pw {

// Lists all orders of the passes of one device: F, and B or I and W, of each micro-batch that it serves on its stages.
class ListsOfDevice {
public:
    // `held`: the most pairs of a stage and a micro-batch from F to W.
    ListsOfDevice(const Shape& shape, int device, int held) : held_(held) {
        for (int stage = 0; stage < shape.stages; ++stage)
            for (int mb = 0; mb < shape.microbatches; ++mb)
                if (shape.server_of(stage, mb) == device)
                    visits_.push_back({stage, mb, 0});
    }

    // Returns all of them, or nothing if there are more than `most`.
    std::vector<Tasks> all(std::size_t most) {
        lists_.clear();
        most_ = most;
        extend();
        return lists_.size() > most ? std::vector<Tasks>{} : lists_;
    }

    // Returns `count` of them at random, with repetitions.
    std::vector<Tasks> some(std::size_t count, Random& random) {
        std::vector<Tasks> drawn;
        while (drawn.size() < count) {
            list_.clear();
            for (Visit& visit : visits_)
                visit.done = 0;
            for (std::vector<Step> next = steps(); !next.empty(); next = steps())
                take(next[static_cast<std::size_t>(pick(random, 0, static_cast<int>(next.size()) - 1))]);
            if (is_complete())
                drawn.push_back(list_);
        }
        return drawn;
    }

private:
    struct Visit {
        int stage, microbatch, done;  // done: 1: F, 2: I, 3: W or B
    };
    struct Step {
        std::size_t visit;
        Op op;
        int after;  // Visit::done
    };

    bool is_complete() const {
        return std::ranges::all_of(visits_, [](const Visit& visit) { return visit.done == 3; });
    }
    // Whether the visits of earlier stages, or of later ones, have been as far.
    bool follows(const Visit& visit, bool forward) const {
        return std::ranges::all_of(visits_, [&](const Visit& other) {
            return other.microbatch != visit.microbatch || (forward ? other.stage >= visit.stage || other.done >= 1
                                                                    : other.stage <= visit.stage || other.done >= 2);
        });
    }
    std::vector<Step> steps() const {
        const auto held =
            std::ranges::count_if(visits_, [](const Visit& visit) { return visit.done == 1 || visit.done == 2; });
        std::vector<Step> steps;
        for (std::size_t at = 0; at < visits_.size(); ++at) {
            const Visit& visit = visits_[at];
            if (visit.done == 0 && held < held_ && follows(visit, true))
                steps.push_back({at, Op::Forward, 1});
            if (visit.done == 1 && follows(visit, false)) {
                steps.push_back({at, Op::BackwardInput, 2});
                steps.push_back({at, Op::Backward, 3});
            }
            if (visit.done == 2)
                steps.push_back({at, Op::BackwardWeight, 3});
        }
        return steps;
    }
    void take(const Step& step) {
        Visit& visit = visits_[step.visit];
        list_.push_back({step.op, visit.stage, visit.microbatch});
        visit.done = step.after;
    }
    void extend() {
        if (is_complete())
            lists_.push_back(list_);
        for (const Step& step : steps()) {
            if (lists_.size() > most_)
                return;
            const int before = visits_[step.visit].done;
            take(step);
            extend();
            visits_[step.visit].done = before;
            list_.pop_back();
        }
    }

    std::ptrdiff_t held_;
    std::size_t most_ = 0;
    std::vector<Visit> visits_;
    Tasks list_;
    std::vector<Tasks> lists_;
};

// Adds to the lists every list in which neighbours of different micro-batches run as pairs.
inline std::vector<Tasks> with_pairs(const std::vector<Tasks>& lists) {
    std::vector<Tasks> all;
    for (const Tasks& list : lists) {
        std::vector<std::pair<Tasks, std::size_t>> open{{list, 0}};
        while (!open.empty()) {
            auto [tasks, at] = std::move(open.back());
            open.pop_back();
            if (at + 1 >= tasks.size()) {
                all.push_back(std::move(tasks));
                continue;
            }
            open.emplace_back(tasks, at + 1);
            if (tasks[at].microbatch != tasks[at + 1].microbatch) {
                tasks[at].with_next = true;
                open.emplace_back(std::move(tasks), at + 2);
            }
        }
    }
    return all;
}

}  // namespace pw
