// The proof of a plan against an oracle that tries every interleaving: a thousand mutated plans, in every lane mode and
// protocol.
#include "schedules/csv/csv.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/interleavings.h"
#include "tests/support/mutations.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

using Protocol = TransferMode::Protocol;

std::vector<TransferMode> all_modes() {
    std::vector<TransferMode> modes;
    for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
        for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred})
            for (const auto protocol : {Protocol::Eager, Protocol::OneSlot, Protocol::Rendezvous})
                for (const auto exchange : {TransferMode::Exchange::Overlapped, TransferMode::Exchange::Blocking})
                    modes.push_back({communicator, receive, protocol, true, exchange});
    return modes;
}

std::vector<Plan> originals() {
    std::vector<Plan> plans;
    for (const auto communicator : {Communicator::Edge, Communicator::One, Communicator::Direction})
        for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
            PlanOptions options;
            options.transfers = {communicator, receive, Protocol::Rendezvous, true};
            plans.push_back(plan_of("gpipe", 2, 2, 1, options));
            plans.push_back(plan_of("1f1b", 2, 3, 1, options));
            plans.push_back(plan_of("1f1b", 3, 2, 1, options));
            plans.push_back(plan_of("zb-h1", 2, 2, 1, options));
            plans.push_back(plan_of("interleaved", 2, 2, 2, options));
            plans.push_back(plan_of("zb-v", 2, 1, 2, options));
            plans.push_back(plan_of("1f1b", {2, 1}, 2, options));
            plans.push_back(plan_of("zb-h1", {1, 2}, 2, options));
        }
    return plans;
}

// Returns what check() reports about the plan; empty if nothing.
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
    // Without the move there is no cycle of waits, so the cycle includes the moved task.
    ASSERT_TRUE(moved || !verdict(original, mode).empty()) << print(mutation.culprit) << '\n' << message;
}

TEST(Proof, AgreesWithEveryInterleavingOnMutatedPlans) {
    const std::vector<Plan> plans = originals();
    Mutator mutator(7);
    int malformed = 0, bad_somewhere = 0, legal = 0;
    for (int k = 0; k < rounds(200); ++k) {
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
    EXPECT_GT(malformed, rounds(40));
    EXPECT_GT(bad_somewhere, rounds(20));
    EXPECT_GT(legal, rounds(10));
}

// The protocols are ordered: a plan that is safe under rendezvous is safe with one slot, and then with many slots.
TEST(Proof, AStricterProtocolIsNeverSafer) {
    Mutator mutator(11);
    for (const Plan& original : originals())
        for (int k = 0; k < 20; ++k) {
            const Plan plan = mutator.mutate(original).plan;
            if (!is_well_formed(plan, original))
                continue;
            for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
                for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                    const auto safe = [&](Protocol protocol) {
                        return verdict(plan, {communicator, receive, protocol, true}).empty();
                    };
                    EXPECT_LE(safe(Protocol::Rendezvous), safe(Protocol::OneSlot));
                    EXPECT_LE(safe(Protocol::OneSlot), safe(Protocol::Eager));
                }
        }
}

// The two broken plans that a simulator with a single table accepts: a receive after its consumer is wrong everywhere;
// a gradient's receive before the first forward stops only the lane that it shares, or a blocking exchange.
TEST(Proof, FindsMisplacedReceives) {
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
        EXPECT_EQ(message.empty(), mode.communicator != Communicator::One && !mode.blocks()) << print(mode) << '\n'
                                                                                             << message;
        if (!message.empty()) {
            EXPECT_NE(message.find("0RECV_B0<1"), std::string::npos) << message;
        }
    }
}

// The list that pytorch#172668 prints for two devices and two micro-batches (there with the sharding of parameters): a
// receive is listed where its send was made, long before its reader.
TEST(Proof, SharedLanesAndEarlyReceivesAreLoweredAsInPyTorch) {
    PlanOptions options;
    options.transfers.communicator = Communicator::One;
    const Plan plan = plan_of("interleaved", 2, 2, 2, options);
    const CsvPlan printed = parse_csv(
        "0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,"
        "2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_B0,3F1,3B1,3SEND_B1,"
        "1RECV_B1,1B0,1SEND_B0,1B1,1SEND_B1\n",
        "172668.csv");
    const auto without_updates = [](std::vector<std::vector<Task>> lists) {
        for (std::vector<Task>& list : lists)
            std::erase_if(list, [](const Task& task) { return task.op == Op::Update; });
        return lists;
    };
    EXPECT_EQ(without_updates(plan.order), without_updates(printed.plan.order));
}

}  // namespace
}  // namespace pw
