// Hand-over between devices: what arrives, what does not, and how failure spreads.
#include "exec/host/mailbox.h"
#include "schedules/schedule.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <thread>

namespace pw {
namespace {

Plan two_devices() {
    Shape shape;
    shape.devices = shape.stages = 2;
    shape.microbatches = 3;
    return make_plan(schedule_named("gpipe"), shape);
}

TEST(Mailbox, HandsOverInEveryStep) {
    const Plan plan = two_devices();
    const PlanGraph graph(plan);
    Mailbox mailbox(graph, 5'000'000'000);
    const int send = graph.find({Op::SendForward, 0, 0, 0, 1}), recv = graph.find({Op::RecvForward, 1, 0, 0, 0});
    int payload = 0;
    std::thread sender([&] {
        payload = 41;
        mailbox.publish(send, 0, {3, 4});
    });
    EXPECT_EQ(mailbox.wait(send, 0, recv).end, 4);
    EXPECT_EQ(payload, 41);
    sender.join();
    EXPECT_EQ(mailbox.wait(send, 0, recv).start, 3);
}

TEST(Mailbox, NamesTheSilentPeer) {
    const Plan plan = two_devices();
    const PlanGraph graph(plan);
    Mailbox mailbox(graph, 20'000'000);
    try {
        (void)mailbox.wait(graph.find({Op::SendForward, 0, 1, 0, 1}), 0, graph.find({Op::RecvForward, 1, 1, 0, 0}));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::PeerSilent);
        const std::string what = error.what();
        EXPECT_NE(what.find("device 1 waits for 0SEND_F1>1 from device 0"), std::string::npos) << what;
    }
}

TEST(Mailbox, AFailedDeviceReleasesTheOthers) {
    const Plan plan = two_devices();
    const PlanGraph graph(plan);
    Mailbox mailbox(graph, 60'000'000'000);
    Gate gate(2);
    std::thread failing([&] {
        mailbox.abort();
        gate.abort();
    });
    EXPECT_THROW((void)mailbox.wait(graph.find({Op::SendForward, 0, 1, 0, 1}), 0, 0), Error);
    EXPECT_THROW(gate.arrive(), Error);
    failing.join();
}

TEST(Gate, LetsNobodyPassBeforeAllHaveCome) {
    Gate gate(3);
    std::atomic<int> inside{0};
    const auto visitor = [&] {
        for (int round = 1; round <= 100; ++round) {
            ++inside;
            gate.arrive();
            EXPECT_EQ(inside, 3 * round);
            gate.arrive();
        }
    };
    std::thread a(visitor), b(visitor);
    visitor();
    a.join();
    b.join();
}

}  // namespace
}  // namespace pw
