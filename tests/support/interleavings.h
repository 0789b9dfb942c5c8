// An oracle that decides whether a plan completes, by following every interleaving of its devices and lanes.
#pragma once

#include "schedules/plan/lanes.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace pw {

// The oracle implements the semantics of lists, lanes and protocols a second time, as plainly as possible and without
// code of the library: a state is the position of every list and the set of complete transfers. It takes chains of
// stages whose holders take turns.
class Oracle {
public:
    Oracle(const Plan& plan, TransferMode mode) : plan_(plan), mode_(mode) {
        for (int device = 0; device < plan.shape.devices; ++device) {
            first_.push_back(static_cast<int>(positions_.size()));
            for (int position = 0; position < length(device); ++position) {
                const int id = static_cast<int>(positions_.size());
                id_[plan.order[device][position]] = id;
                positions_.push_back({device, position});
            }
        }
        for (int stage = 0; stage < plan.shape.stages; ++stage)
            holders_.push_back(plan.shape.devices_of(stage));
        for (int id = 0; id < static_cast<int>(positions_.size()); ++id)
            if (is_transfer(task(id).op)) {
                std::vector<int>& lane = lanes_[lane_name(id)];
                lane.push_back(id);
                positions_[id].lane = &lane;
                positions_[id].other_end = id_of(other_end(task(id)));
            }
    }

    // Follows every interleaving; returns false when one of them gets stuck.
    bool always_ends() {
        const State begin(plan_.order.size() + positions_.size(), 0);
        std::vector<State> open{begin};
        std::unordered_set<State> seen{begin};
        bool ends = true;
        while (!open.empty()) {
            const State state = std::move(open.back());
            open.pop_back();
            const std::vector<State> next = successors(state);
            if (next.empty()) {
                ends = ends && is_final(state);
                note_stuck(state);
            }
            for (const State& other : next)
                if (seen.insert(other).second)
                    open.push_back(other);
        }
        return ends;
    }
    const std::set<Task>& stuck() const { return stuck_; }

private:
    // First, for every device, how many of its tasks are done or posted; then, for every task, whether it is a transfer
    // that is complete: a SEND has left, a RECV has its message.
    using State = std::string;
    bool is_complete(const State& state, int id) const { return state[plan_.order.size() + id] != 0; }

    struct TaskPosition {
        int device, position;
        const std::vector<int>* lane = nullptr;  // of a transfer: those of its lane, in order
        int other_end = 0;                       // of a transfer
    };

    int length(int device) const { return static_cast<int>(plan_.order[device].size()); }
    const Task& task(int id) const { return plan_.order[positions_[id].device][positions_[id].position]; }
    int id_of(const Task& task) const { return id_.at(task); }
    int holder(int stage, int microbatch) const {
        return holders_[stage][static_cast<std::size_t>(microbatch) % holders_[stage].size()];
    }

    std::string lane_name(int id) const {
        const Task& transfer = task(id);
        const bool gradient = transfer.op == Op::SendBackward || transfer.op == Op::RecvBackward;
        const int device = positions_[id].device;
        if (mode_.communicator == TransferMode::Communicator::One)
            return fmt::format("{}", device);
        if (mode_.communicator == TransferMode::Communicator::Direction)
            return fmt::format("{} {}", device, gradient);
        const int other = holder(transfer.peer, transfer.microbatch);
        return fmt::format("{} {} {} {}", device, other, gradient, is_send(transfer.op));
    }

    bool has_reached(const State& state, int id) const {
        return state[positions_[id].device] > positions_[id].position;
    }
    bool is_posted(const State& state, int id) const {
        return has_reached(state, id) || (is_recv(task(id).op) && mode_.early_receive());
    }
    bool heads_lane(const State& state, int id) const {
        for (const int other : *positions_[id].lane) {
            if (other == id)
                return true;
            if (!is_complete(state, other))
                return false;
        }
        return true;
    }
    bool is_active(const State& state, int recv) const {
        return is_complete(state, recv) || (heads_lane(state, recv) && is_posted(state, recv));
    }

    bool may_leave(const State& state, int send) const {
        if (!has_reached(state, send) || !heads_lane(state, send))
            return false;
        if (mode_.protocol == TransferMode::Protocol::Rendezvous)
            return is_active(state, positions_[send].other_end);
        if (mode_.protocol == TransferMode::Protocol::Eager)
            return true;
        for (const int other : *positions_[send].lane) {
            if (other == send)
                break;
            if (is_send(task(other).op) && !is_active(state, positions_[other].other_end))
                return false;  // its message is still in the slot
        }
        return true;
    }

    bool may_complete(const State& state, int transfer) const {
        if (is_complete(state, transfer))
            return false;
        if (is_send(task(transfer).op))
            return may_leave(state, transfer);
        return is_active(state, transfer) && is_complete(state, positions_[transfer].other_end);
    }

    // Returns whether a tensor of `stage` that `by` makes is ready.
    bool is_there(const State& state, int device, int stage, Op by, Op received_by, int reader) const {
        if (holder(stage, task(reader).microbatch) == device)
            return has_reached(state, by_stage(by, stage, reader));
        const Task& of = task(reader);
        return is_complete(state, id_of({received_by, of.stage, of.microbatch, 0, stage}));
    }
    int by_stage(Op op, int stage, int reader) const {
        const auto found = id_.find({op, stage, task(reader).microbatch});
        return found != id_.end() ? found->second : id_of({Op::Backward, stage, task(reader).microbatch});
    }

    bool has_all_gradients(const State& state, const Task& sum) const {
        for (int mb = 0; mb <= sum.microbatch; ++mb)
            for (const Op op : {Op::Backward, Op::BackwardWeight})
                if (const auto found = id_.find({op, sum.stage, mb});
                    found != id_.end() && !has_reached(state, found->second))
                    return false;
        return true;
    }

    // Returns whether the transfers between a task and the previous one that computes are complete.
    bool has_exchanged(const State& state, int id) const {
        for (int position = positions_[id].position - 1; position >= 0; --position) {
            const int before = id_at(positions_[id].device, position);
            if (!is_transfer(task(before).op))
                return true;
            if (!is_complete(state, before))
                return false;
        }
        return true;
    }

    bool may_run(const State& state, int id) const {
        const Task& at = task(id);
        const int device = positions_[id].device;
        if (mode_.exchange == TransferMode::Exchange::Blocking && !is_transfer(at.op) && !has_exchanged(state, id))
            return false;
        switch (at.op) {
            case Op::Forward:
                return at.stage == 0 || is_there(state, device, at.stage - 1, Op::Forward, Op::RecvForward, id);
            case Op::Backward:
            case Op::BackwardInput:
                return has_reached(state, by_stage(Op::Forward, at.stage, id)) &&
                       (at.stage + 1 == plan_.shape.stages ||
                        is_there(state, device, at.stage + 1, Op::BackwardInput, Op::RecvBackward, id));
            case Op::BackwardWeight:
                return has_reached(state, by_stage(Op::BackwardInput, at.stage, id));
            case Op::SendForward:
            case Op::SendBackward: {  // the list waits until the earlier one on the edge has left
                for (int position = positions_[id].position - 1; position >= 0; --position) {
                    const Task& earlier = plan_.order[device][position];
                    if (earlier.op == at.op && earlier.stage == at.stage && earlier.peer == at.peer)
                        return is_complete(state, id_of(earlier));
                }
                return true;
            }
            case Op::SumGradients:
                return has_all_gradients(state, at);
            case Op::Recompute:
            case Op::Update:
            case Op::RecvForward:
            case Op::RecvBackward:
            case Op::Offload:
            case Op::Reload:
            case Op::Store:
            case Op::Load:
                break;  // U follows its gradients in the list
        }
        return true;
    }

    std::vector<State> successors(const State& state) const {
        std::vector<State> next;
        for (int device = 0; device < plan_.shape.devices; ++device)
            if (const int at = state[device]; at < length(device) && may_run(state, id_at(device, at))) {
                next.push_back(state);
                ++next.back()[device];
            }
        for (int id = 0; id < static_cast<int>(positions_.size()); ++id)
            if (is_transfer(task(id).op) && may_complete(state, id)) {
                next.push_back(state);
                next.back()[plan_.order.size() + id] = 1;
            }
        return next;
    }
    int id_at(int device, int position) const { return first_[device] + position; }

    bool is_final(const State& state) const {
        for (int id = 0; id < static_cast<int>(positions_.size()); ++id)
            if (!has_reached(state, id) || (is_transfer(task(id).op) && !is_complete(state, id)))
                return false;
        return true;
    }
    void note_stuck(const State& state) {
        for (int id = 0; id < static_cast<int>(positions_.size()); ++id)
            if (!has_reached(state, id) || (is_transfer(task(id).op) && !is_complete(state, id)))
                stuck_.insert(task(id));
    }

    const Plan& plan_;
    const TransferMode mode_;
    std::map<Task, int> id_;                 // of U and S that of some holder
    std::vector<int> first_;                 // id, by device
    std::vector<std::vector<int>> holders_;  // [stage]
    std::vector<TaskPosition> positions_;
    std::map<std::string, std::vector<int>> lanes_;
    std::set<Task> stuck_;
};

}  // namespace pw
