// Messages between devices: their arrival and order, missing messages, and the effect of failures.
#include "exec/engine/mailbox.h"
#include "exec/engine/phase_barrier.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <thread>

namespace pw {
namespace {

using Communicator = TransferMode::Communicator;
using Protocol = TransferMode::Protocol;

Plan two_devices() {
    Shape shape;
    shape.devices = shape.stages = 2;
    shape.microbatches = 3;
    return make_plan(schedule_named("gpipe"), shape);
}

struct TwoDevices {
    int send(int mb) const { return graph.find({Op::SendForward, 0, mb, 0, 1}); }
    int recv(int mb) const { return graph.find({Op::RecvForward, 1, mb, 0, 0}); }

    const Plan plan = two_devices();
    const PlanGraph graph{plan};
};

Mailbox::Options options(TransferMode mode, Ns timeout) {
    Mailbox::Options options;
    options.mode = mode;
    options.timeout = timeout;
    return options;
}

TEST(Mailbox, MovesMessagesInEveryStep) {
    const TwoDevices on;
    Mailbox mailbox(on.graph, options({}, 5'000'000'000));
    for (int step = 0; step < 3; ++step) {
        mailbox.begin_step();
        int payload = 0;
        std::thread sender([&] {
            payload = 41 + step;
            mailbox.post(on.send(0));
        });
        mailbox.wait(on.recv(0));
        EXPECT_EQ(payload, 41 + step);
        sender.join();
        mailbox.wait(on.send(0));
        EXPECT_EQ(mailbox.interval(on.recv(0)).start, mailbox.interval(on.send(0)).start);
        EXPECT_LE(mailbox.interval(on.send(0)).start, mailbox.interval(on.send(0)).end);
    }
}

TEST(Mailbox, WaitsUnderRendezvousUntilBothEndsArePosted) {
    const TwoDevices on;
    TransferMode mode;
    mode.receive = TransferMode::Receive::Deferred;
    mode.protocol = Protocol::Rendezvous;
    Mailbox mailbox(on.graph, options(mode, 10'000'000));
    mailbox.post(on.send(0));
    EXPECT_THROW(mailbox.wait(on.send(0)), Error);
    mailbox.post(on.recv(0));
    mailbox.wait(on.send(0));
    mailbox.wait(on.recv(0));
}

// A list waits at a SEND until the earlier one of its edge has left the sender's copy.
TEST(Mailbox, WaitsForTheEarlierCopy) {
    const TwoDevices on;
    TransferMode mode;
    mode.receive = TransferMode::Receive::Deferred;
    mode.protocol = Protocol::Rendezvous;
    Mailbox mailbox(on.graph, options(mode, 10'000'000));
    mailbox.wait_to_post(on.send(0));
    mailbox.post(on.send(0));
    EXPECT_THROW(mailbox.wait_to_post(on.send(1)), Error);
    mailbox.post(on.recv(0));
    mailbox.wait_to_post(on.send(1));
}

class Journal : public Payload {
public:
    void leave(int send) override { said.push_back(send); }
    void arrive(int recv) override { said.push_back(recv); }
    std::span<std::byte> message(int) override { return {}; }
    std::vector<int> said;
};

// Messages leave and arrive at their times, in the order of their lane, each with its payload.
TEST(Mailbox, MovesOverALinkWithTimes) {
    const TwoDevices on;
    Journal journal;
    Mailbox::Options with_link = options({}, 5'000'000'000);
    with_link.payload = &journal;
    with_link.link.occupation.assign(static_cast<std::size_t>(on.graph.size()), 2'000'000);
    with_link.link.latency.assign(static_cast<std::size_t>(on.graph.size()), 1'000'000);
    Mailbox mailbox(on.graph, with_link);
    mailbox.post(on.send(0));
    mailbox.post(on.send(1));
    mailbox.wait(on.recv(1));
    const Interval first = mailbox.interval(on.send(0)), second = mailbox.interval(on.send(1));
    EXPECT_GE(first.end, first.start + 2'000'000);
    EXPECT_GE(second.start, first.end);
    EXPECT_GE(mailbox.interval(on.recv(1)).end, second.start + 3'000'000);
    EXPECT_EQ(journal.said, (std::vector<int>{on.send(0), on.recv(0), on.send(1), on.recv(1)}));
}

// Three messages that take 100 ns alone. All of them use the first capacity, only the last one uses the second.
TEST(SharedLinks, GiveEachMessageItsFairShare) {
    SharedLinks links({1, 0.25},
                      {{.takes = {0}, .most = 1}, {.takes = {0}, .most = 1}, {.takes = {0, 1}, .most = 1}, {}});
    EXPECT_TRUE(links.carry(2));
    EXPECT_FALSE(links.carry(3));
    const auto leave = [&](int send, Ns time) {
        const std::optional<SharedLinks::Leaving> leaving = links.next();
        ASSERT_TRUE(leaving);
        EXPECT_EQ(leaving->send, send);
        EXPECT_EQ(leaving->time, time);
        links.leave(*leaving);
    };
    links.start(0, 100, 0);
    links.start(1, 100, 40);   // then 1/2 each; 60 of the first and 100 of the second are left
    links.start(2, 100, 100);  // then 3/8, 3/8 and 1/4; 30, 70 and 100 are left
    leave(0, 180);             // then 3/4 and 1/4; 40 and 80 are left
    leave(1, 233);             // 180 + 40 / 0.75
    leave(2, 500);             // at 1/4 from 100 on
    EXPECT_FALSE(links.next());
}

TEST(Mailbox, NamesTheSilentPeer) {
    const TwoDevices on;
    Mailbox mailbox(on.graph, options({}, 20'000'000));
    try {
        mailbox.wait(on.recv(1));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::PeerSilent);
        const std::string what = error.what();
        EXPECT_NE(what.find("device 1 has waited for 0SEND_F1>1 from device 0"), std::string::npos) << what;
    }
}

TEST(Mailbox, ReleasesWaitsWhenADeviceFails) {
    const TwoDevices on;
    Mailbox mailbox(on.graph, options({}, 60'000'000'000));
    PhaseBarrier barrier(2);
    std::thread failing([&] {
        mailbox.abort();
        barrier.abort();
    });
    EXPECT_THROW(mailbox.wait(on.recv(1)), Error);
    EXPECT_THROW(barrier.arrive(), Error);
    failing.join();
}

TEST(PhaseBarrier, ReleasesAllWhenTheLastArrives) {
    PhaseBarrier barrier(3);
    std::atomic<int> arrived{0};
    const auto arrive_often = [&] {
        for (int round = 1; round <= 100; ++round) {
            ++arrived;
            barrier.arrive();
            EXPECT_EQ(arrived, 3 * round);
            barrier.arrive();
        }
    };
    std::thread a(arrive_often), b(arrive_often);
    arrive_often();
    a.join();
    b.join();
}

}  // namespace
}  // namespace pw
