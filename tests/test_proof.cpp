// The proof of a plan against an oracle that tries every interleaving: a thousand mutated plans, in
// every lane mode and protocol.
#include "schedules/csv.h"
#include "schedules/passes.h"
#include "tests/shapes.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <unordered_set>

namespace pw::test {
namespace {

using Communicator = TransferMode::Communicator;
using Protocol = TransferMode::Protocol;

std::vector<TransferMode> all_modes() {
    std::vector<TransferMode> modes;
    for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
        for (const bool early : {true, false})
            for (const auto protocol : {Protocol::Eager, Protocol::OneSlot, Protocol::Rendezvous})
                modes.push_back({communicator, early, protocol, true});
    return modes;
}

// The semantics of lists, lanes and protocols once more, as plainly as possible and sharing nothing with
// the library: a state says how far every list is and which transfers are complete. Chains of stages.
class Oracle {
public:
    Oracle(const Plan& plan, TransferMode mode) : plan_(plan), mode_(mode) {
        for (int device = 0; device < plan.shape.devices; ++device)
            for (int position = 0; position < length(device); ++position) {
                const int id = static_cast<int>(places_.size());
                id_[plan.order[device][position]] = id;
                places_.push_back({device, position});
            }
        for (int id = 0; id < static_cast<int>(places_.size()); ++id)
            if (is_transfer(task(id).op))
                lanes_[lane_of(id)].push_back(id);
    }

    // Follows every interleaving; false when one of them gets stuck.
    bool always_ends() {
        State begin{std::vector<int>(plan_.order.size(), 0), std::vector<bool>(places_.size(), false)};
        std::vector<State> open{begin};
        std::unordered_set<std::string> seen{key(begin)};
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
                if (seen.insert(key(other)).second)
                    open.push_back(other);
        }
        return ends;
    }
    const std::set<Task>& stuck() const { return stuck_; }

private:
    struct State {
        std::vector<int> reached;    // [device]: tasks before it are done or posted
        std::vector<bool> complete;  // [transfer]: a SEND has left, a RECV has its message
    };
    struct Place {
        int device, position;
    };

    int length(int device) const { return static_cast<int>(plan_.order[device].size()); }
    const Task& task(int id) const { return plan_.order[places_[id].device][places_[id].position]; }
    int id_of(const Task& task) const { return id_.at(task); }

    std::string lane_of(int id) const {
        const Task& transfer = task(id);
        const bool gradient = transfer.op == Op::SendBackward || transfer.op == Op::RecvBackward;
        const int device = places_[id].device;
        if (mode_.communicator == Communicator::One)
            return fmt::format("{}", device);
        if (mode_.communicator == Communicator::Direction)
            return fmt::format("{} {}", device, gradient);
        const int other = plan_.shape.devices_of(transfer.peer).front();
        return fmt::format("{} {} {} {}", device, other, gradient, is_send(transfer.op));
    }

    static std::string key(const State& state) {
        std::string text;
        for (const int reached : state.reached)
            text += static_cast<char>(reached);
        for (const bool complete : state.complete)
            text += complete ? '1' : '0';
        return text;
    }

    bool has_reached(const State& state, int id) const {
        return state.reached[places_[id].device] > places_[id].position;
    }
    bool is_posted(const State& state, int id) const {
        return has_reached(state, id) || (is_recv(task(id).op) && mode_.early_receive);
    }
    bool heads_lane(const State& state, int id) const {
        for (const int other : lanes_.at(lane_of(id))) {
            if (other == id)
                return true;
            if (!state.complete[other])
                return false;
        }
        return true;
    }
    bool is_active(const State& state, int recv) const {
        return state.complete[recv] || (heads_lane(state, recv) && is_posted(state, recv));
    }

    bool may_leave(const State& state, int send) const {
        if (!has_reached(state, send) || !heads_lane(state, send))
            return false;
        if (mode_.protocol == Protocol::Rendezvous)
            return is_active(state, id_of(other_end(task(send))));
        if (mode_.protocol == Protocol::Eager)
            return true;
        for (const int other : lanes_.at(lane_of(send))) {
            if (other == send)
                break;
            if (is_send(task(other).op) && !is_active(state, id_of(other_end(task(other)))))
                return false;  // its message still lies in the slot
        }
        return true;
    }

    bool may_complete(const State& state, int transfer) const {
        if (state.complete[transfer])
            return false;
        if (is_send(task(transfer).op))
            return may_leave(state, transfer);
        return is_active(state, transfer) && state.complete[id_of(other_end(task(transfer)))];
    }

    // A tensor of `stage` that `by` makes is there.
    bool is_there(const State& state, int device, int stage, Op by, Op received_by, int reader) const {
        if (plan_.shape.devices_of(stage).front() == device)
            return has_reached(state, by_stage(by, stage, reader));
        const Task& of = task(reader);
        return state.complete[id_of({received_by, of.stage, of.microbatch, 0, stage})];
    }
    int by_stage(Op op, int stage, int reader) const {
        const auto found = id_.find({op, stage, task(reader).microbatch});
        return found != id_.end() ? found->second : id_of({Op::Backward, stage, task(reader).microbatch});
    }

    bool may_run(const State& state, int id) const {
        const Task& at = task(id);
        const int device = places_[id].device;
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
                for (int position = places_[id].position - 1; position >= 0; --position) {
                    const Task& earlier = plan_.order[device][position];
                    if (earlier.op == at.op && earlier.stage == at.stage && earlier.peer == at.peer)
                        return state.complete[id_of(earlier)];
                }
                return true;
            }
            default:
                return true;  // U follows its gradients in the list
        }
    }

    std::vector<State> successors(const State& state) const {
        std::vector<State> next;
        for (int device = 0; device < plan_.shape.devices; ++device)
            if (const int at = state.reached[device]; at < length(device) && may_run(state, id_at(device, at))) {
                next.push_back(state);
                ++next.back().reached[device];
            }
        for (int id = 0; id < static_cast<int>(places_.size()); ++id)
            if (is_transfer(task(id).op) && may_complete(state, id)) {
                next.push_back(state);
                next.back().complete[id] = true;
            }
        return next;
    }
    int id_at(int device, int position) const { return id_of(plan_.order[device][position]); }

    bool is_final(const State& state) const {
        for (int id = 0; id < static_cast<int>(places_.size()); ++id)
            if (!has_reached(state, id) || (is_transfer(task(id).op) && !state.complete[id]))
                return false;
        return true;
    }
    void note_stuck(const State& state) {
        for (int id = 0; id < static_cast<int>(places_.size()); ++id)
            if (!has_reached(state, id) || (is_transfer(task(id).op) && !state.complete[id]))
                stuck_.insert(task(id));
    }

    const Plan& plan_;
    const TransferMode mode_;
    std::map<Task, int> id_;
    std::vector<Place> places_;
    std::map<std::string, std::vector<int>> lanes_;
    std::set<Task> stuck_;
};

// What the oracle needs: the tasks of the plan it came from, each once and on its device, and on every
// device what a task needs before the task.
bool is_well_formed(const Plan& plan, const Plan& original) {
    for (std::size_t device = 0; device < plan.order.size(); ++device) {
        std::vector<Task> tasks = plan.order[device], wanted = original.order[device];
        std::sort(tasks.begin(), tasks.end());
        std::sort(wanted.begin(), wanted.end());
        if (tasks != wanted)
            return false;
        const auto at = [&](const Task& task) {
            const auto& order = plan.order[device];
            return std::find(order.begin(), order.end(), task) - order.begin();
        };
        const auto in_order = [&](const Task& first, const Task& second) {
            const auto size = static_cast<std::ptrdiff_t>(tasks.size());
            return at(first) == size || at(second) == size || at(first) < at(second);
        };
        for (const Task& task : tasks) {
            const int s = task.stage, mb = task.microbatch;
            bool fine = true;
            if (task.op == Op::Forward)
                fine = in_order({Op::RecvForward, s, mb, 0, s - 1}, task) && in_order({Op::Forward, s - 1, mb}, task);
            if (task.op == Op::Backward || task.op == Op::BackwardInput)
                fine = in_order({Op::Forward, s, mb}, task) && in_order({Op::RecvBackward, s, mb, 0, s + 1}, task) &&
                       in_order({task.op, s + 1, mb}, task);
            if (task.op == Op::BackwardWeight)
                fine = in_order({Op::BackwardInput, s, mb}, task);
            if (task.op == Op::SendForward)
                fine = in_order({Op::Forward, s, mb}, task);
            if (task.op == Op::SendBackward)
                fine = in_order({Op::Backward, s, mb}, task) && in_order({Op::BackwardInput, s, mb}, task);
            if (task.op == Op::Update)
                for (int other = 0; other < plan.shape.microbatches; ++other)
                    fine = fine && in_order({Op::Backward, s, other}, task) &&
                           in_order({Op::BackwardWeight, s, other}, task);
            if (!fine)
                return false;
        }
    }
    return true;
}

struct Mutation {
    Plan plan;
    Task culprit;  // as it stands in the plan, or as it stood when it is gone
};

class Mutator {
public:
    explicit Mutator(std::uint32_t seed) : random_(seed) {}

    Mutation mutate(const Plan& original) {
        Mutation mutation{original, {}};
        std::vector<Task>* order = nullptr;
        do
            order = &mutation.plan.order[below(mutation.plan.order.size())];
        while (order->empty());
        const std::size_t at = pick(*order);
        mutation.culprit = (*order)[at];
        switch (below(10)) {
            case 0:
                order->erase(order->begin() + static_cast<std::ptrdiff_t>(at));
                break;
            case 1:
                insert(*order, (*order)[at]);
                break;
            case 2:
                mutation.culprit = (*order)[at] = changed((*order)[at], original.shape);
                break;
            case 3: {
                const Task task = take(*order, at);
                insert(mutation.plan.order[below(mutation.plan.order.size())], task);
                break;
            }
            default:  // mostly moved: the most interesting ones
                insert(*order, take(*order, at));
        }
        return mutation;
    }

private:
    std::size_t below(std::size_t bound) { return random_() % bound; }

    // Mostly a transfer.
    std::size_t pick(const std::vector<Task>& order) {
        std::size_t at = below(order.size());
        for (int tries = 0; tries < 8 && !is_transfer(order[at].op); ++tries)
            at = below(order.size());
        return at;
    }
    Task take(std::vector<Task>& order, std::size_t at) {
        const Task task = order[at];
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(at));
        return task;
    }
    void insert(std::vector<Task>& order, const Task& task) {
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size() + 1)), task);
    }
    // Another micro-batch, stage or peer, often out of range.
    Task changed(Task task, const Shape& shape) {
        const auto other = [&](int value, int count) {
            return (value + 1 + static_cast<int>(below(3))) % (count + 2) - 1;
        };
        switch (below(3)) {
            case 0:
                task.microbatch = other(task.microbatch, shape.microbatches);
                break;
            case 1:
                task.stage = other(task.stage, shape.stages);
                break;
            default:
                (task.peer < 0 ? task.microbatch : task.peer) = shape.stages + shape.microbatches;
        }
        return task;
    }
    std::mt19937 random_;
};

std::vector<Plan> originals() {
    std::vector<Plan> plans;
    for (const auto communicator : {Communicator::Edge, Communicator::One, Communicator::Direction})
        for (const bool early : {true, false}) {
            PlanOptions options;
            options.transfers = {communicator, early, Protocol::Rendezvous, true};
            plans.push_back(plan_of("gpipe", 2, 2, 1, options));
            plans.push_back(plan_of("1f1b", 2, 3, 1, options));
            plans.push_back(plan_of("1f1b", 3, 2, 1, options));
            plans.push_back(plan_of("zb-h1", 2, 2, 1, options));
            plans.push_back(plan_of("interleaved", 2, 2, 2, options));
            plans.push_back(plan_of("zb-v", 2, 1, 2, options));
        }
    return plans;
}

// Empty, or what check() says about the plan.
std::string verdict(const Plan& plan, TransferMode mode, ExitCode* code = nullptr) {
    try {
        check(plan, mode);
        return {};
    } catch (const Error& error) {
        if (code != nullptr)
            *code = error.code();
        return error.what();
    }
}

bool names(const std::string& message, const Task& task) {
    if (message.find(print(task)) != message.npos)
        return true;
    if (is_transfer(task.op))
        return message.find(print(other_end(task))) != message.npos;
    return false;
}

void expect_same_label(const Mutation& mutation, const Plan& original, TransferMode mode) {
    const Plan& plan = mutation.plan;
    Oracle oracle(plan, mode);
    const bool ends = oracle.always_ends();
    ExitCode code = ExitCode::Ok;
    const std::string message = verdict(plan, mode, &code);
    ASSERT_EQ(message.empty(), ends) << print(mode) << '\n' << print(plan) << message;
    if (ends)
        return;
    ASSERT_EQ(code, ExitCode::Infeasible) << message;
    const PlanGraph graph(plan);
    bool moved = false;
    for (const int node : deadlock_of(plan, graph, mode)) {
        ASSERT_TRUE(oracle.stuck().contains(graph.task(node))) << print(graph.task(node)) << '\n' << message;
        moved |= graph.task(node) == mutation.culprit ||
                 (is_transfer(mutation.culprit.op) && graph.task(node) == other_end(mutation.culprit));
    }
    // Without the move nothing waits in a circle, so the circle goes through what was moved.
    ASSERT_TRUE(moved || !verdict(original, mode).empty()) << print(mutation.culprit) << '\n' << message;
}

TEST(Proof, AgreesWithEveryInterleavingOnAThousandMutatedPlans) {
    const std::vector<Plan> plans = originals();
    Mutator mutator(7);
    int malformed = 0, bad_somewhere = 0, legal = 0;
    for (int k = 0; k < 1000; ++k) {
        const Plan& original = plans[static_cast<std::size_t>(k) % plans.size()];
        const Mutation mutation = mutator.mutate(original);
        if (!is_well_formed(mutation.plan, original)) {
            ++malformed;
            for (const TransferMode& mode : all_modes()) {
                ExitCode code = ExitCode::Ok;
                const std::string message = verdict(mutation.plan, mode, &code);
                ASSERT_EQ(code, ExitCode::BadInput) << print(mutation.plan) << message;
                ASSERT_TRUE(names(message, mutation.culprit)) << print(mutation.culprit) << '\n' << message;
            }
            continue;
        }
        int bad = 0;
        for (const TransferMode& mode : all_modes()) {
            expect_same_label(mutation, original, mode);
            if (HasFatalFailure())
                return;
            bad += !verdict(mutation.plan, mode).empty();
        }
        ++(bad > 0 ? bad_somewhere : legal);
    }
    RecordProperty("malformed", malformed);
    RecordProperty("deadlocking", bad_somewhere);
    RecordProperty("legal", legal);
    EXPECT_GT(malformed, 200);
    EXPECT_GT(bad_somewhere, 100);
    EXPECT_GT(legal, 50);
}

// The protocols are ordered: what is safe under rendezvous is safe with one slot, and that with many.
TEST(Proof, AStricterProtocolIsNeverSafer) {
    Mutator mutator(11);
    for (const Plan& original : originals())
        for (int k = 0; k < 20; ++k) {
            const Plan plan = mutator.mutate(original).plan;
            if (!is_well_formed(plan, original))
                continue;
            for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
                for (const bool early : {true, false}) {
                    const auto safe = [&](Protocol protocol) {
                        return verdict(plan, {communicator, early, protocol, true}).empty();
                    };
                    EXPECT_LE(safe(Protocol::Rendezvous), safe(Protocol::OneSlot));
                    EXPECT_LE(safe(Protocol::OneSlot), safe(Protocol::Eager));
                }
        }
}

// The two broken plans that a simulator of one table accepts: a receive behind its consumer is bad
// everywhere; a gradient's receive before the first forward stops only the lane that it shares.
TEST(Proof, ReceivesThatStandWrong) {
    Plan late = plan_of("1f1b", 2, 4);
    std::vector<Task>& order = late.order[1];
    const Task first = order.front();
    ASSERT_EQ(print(first), "1RECV_F0<0");
    order.erase(order.begin());
    order.push_back(first);
    for (const TransferMode& mode : all_modes())
        EXPECT_NE(verdict(late, mode).find("1F0 needs 1RECV_F0<0, which no device runs before it"), std::string::npos);

    for (const TransferMode& mode : all_modes()) {
        PlanOptions options;
        options.transfers = mode;
        Plan early = plan_of("1f1b", 2, 4, 1, options);
        std::vector<Task>& list = early.order[0];
        const Task recv{Op::RecvBackward, 0, 0, 0, 1};
        list.erase(std::find(list.begin(), list.end(), recv));
        list.insert(list.begin(), recv);
        const std::string message = verdict(early, mode);
        EXPECT_EQ(message.empty(), mode.communicator != Communicator::One) << print(mode) << '\n' << message;
        if (!message.empty()) {
            EXPECT_NE(message.find("0RECV_B0<1"), std::string::npos) << message;
        }
    }
}

// The list that pytorch#172668 prints for two devices and two micro-batches (there with the sharding of
// parameters): a receive stands where its send was made, long before its reader.
TEST(Proof, SharedLanesAndEarlyReceivesAreLoweredAsInPyTorch) {
    PlanOptions options;
    options.transfers.communicator = Communicator::One;
    const Plan plan = plan_of("interleaved", 2, 2, 2, options);
    EXPECT_EQ(
        print_csv(plan, true),
        "0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,"
        "2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_B0,3F1,3B1,3SEND_B1,"
        "1RECV_B1,1B0,1SEND_B0,1B1,1SEND_B1\n");
}

}  // namespace
}  // namespace pw::test
