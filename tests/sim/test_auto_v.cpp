// Orders by costs of two stages per device in a V, against exact searches of small instances.
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_costs.h"
#include "schedules/orders/order_model.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/random_passes.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <unordered_set>

namespace pw {
namespace {

constexpr Ns kNotYet = std::numeric_limits<Ns>::max();

struct VTimes {
    std::vector<std::array<Ns, 3>> passes;  // F, I and W by stage
    Ns latency;
    int m, room;                         // room: of a device
    std::array<int, 3> takes{1, 0, -1};  // of the room, by F, I and W of a stage
    Aim aim = Aim::Step;
};

// Tries all orders of F, I and W, depth first, with all waits that may be of use. Micro-batches keep their order on
// each stage.
class AllOrders {
public:
    explicit AllOrders(const VTimes& v)
        : v_(v), stages_(static_cast<int>(v.passes.size())), devices_(static_cast<std::size_t>(stages_ / 2)) {
        for (int stage = 0; stage < stages_; ++stage) {
            for (const Ns time : v.passes[stage])
                devices_[device_of(stage)].left += time * v.m;
            ends_.push_back({});
        }
    }

    // Returns whether an order takes at most this long, by the aim.
    bool takes_at_most(Ns most) {
        most_ = most;
        failed_.clear();
        return runs();
    }

private:
    struct Device {
        Ns at = 0, left = 0;  // left: of its work
        Ns begin = -1;        // of its first pass
        int held = 0;
        bool passes = false;  // others that are as far go first
    };

    int device_of(int stage) const { return std::min(stage, stages_ - 1 - stage); }
    // Returns when the next pass of a kind can start on a stage.
    Ns ready(int stage, int kind) const {
        const std::size_t next = ends_[stage][kind].size();
        const auto end = [&](int from, int of_kind, Ns latency) {
            return ends_[from][of_kind].size() > next ? ends_[from][of_kind][next] + latency : kNotYet;
        };
        const auto latency = [&](int from) { return device_of(from) == device_of(stage) ? 0 : v_.latency; };
        if (std::ssize(ends_[stage][kind]) == v_.m)
            return kNotYet;
        if (kind == 0)
            return stage == 0 ? 0 : end(stage - 1, 0, latency(stage - 1));
        if (kind == 1 && stage + 1 < stages_)
            return end(stage + 1, 1, latency(stage + 1));
        return end(stage, kind - 1, 0);
    }

    // Returns when the next pass of a device can start of which it is known, after the time where it is.
    Ns next_ready(int device) const {
        Ns next = kNotYet;
        for (const int stage : {device, stages_ - 1 - device})
            for (int kind = 0; kind < 3; ++kind)
                if (const Ns start = ready(stage, kind); start > devices_[device].at)
                    next = std::min(next, start);
        return next;
    }

    // Returns all that the rest depends on.
    std::string state() const {
        std::vector<Ns> all;
        for (const Device& device : devices_)
            all.insert(all.end(), {device.at, device.begin, device.passes ? 1 : 0});
        for (const auto& stage : ends_)
            for (int kind = 0; kind < 3; ++kind) {
                all.push_back(std::ssize(stage[kind]));
                // the messages that are not read yet
                const auto& ends = stage[kind];
                const std::size_t at = static_cast<std::size_t>(&stage - ends_.data());
                const std::size_t read = kind == 0   ? (at + 1 < ends_.size() ? ends_[at + 1][0].size() : v_.m)
                                         : kind == 1 ? (at > 0 ? ends_[at - 1][1].size() : v_.m)
                                                     : static_cast<std::size_t>(v_.m);
                for (std::size_t mb = read; mb < ends.size(); ++mb)
                    all.push_back(ends[mb]);
            }
        return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Ns)};
    }

    bool runs() {
        int first = -1;
        for (std::size_t at = 0; at < devices_.size(); ++at) {
            const Device& device = devices_[at];
            const Ns begin = v_.aim == Aim::Step ? 0 : device.begin < 0 ? device.at : device.begin;
            if (device.at - begin + device.left > most_)
                return false;
            if (device.left > 0 && (first < 0 || std::pair(device.at, device.passes) <
                                                     std::pair(devices_[first].at, devices_[first].passes)))
                first = static_cast<int>(at);
        }
        if (first < 0)
            return true;
        std::string key = state();
        if (failed_.contains(key))
            return false;
        Device& own = devices_[first];
        const Device before = own;
        for (const int stage : {first, stages_ - 1 - first})
            for (int kind = 0; kind < 3; ++kind) {
                if (ready(stage, kind) > own.at || own.held + v_.takes[kind] > v_.room)
                    continue;
                const Ns time = v_.passes[stage][kind];
                own.begin = own.begin < 0 ? own.at : own.begin;
                own.at += time;
                own.left -= time;
                own.held += v_.takes[kind];
                own.passes = false;
                ends_[stage][kind].push_back(own.at);
                if (runs())
                    return true;
                ends_[stage][kind].pop_back();
                own = before;
            }
        Ns next = next_ready(first);
        for (std::size_t at = 0; at < devices_.size(); ++at) {
            const Device& other = devices_[at];
            if (&other != &own && other.left > 0)
                next = std::min(next, other.at > own.at || !other.passes ? other.at : next_ready(static_cast<int>(at)));
        }
        if (next != kNotYet) {
            own.passes = next == own.at;
            own.at = next;
            if (runs())
                return true;
            own = before;
        }
        failed_.insert(std::move(key));
        return false;
    }

    const VTimes& v_;
    const int stages_;
    std::vector<Device> devices_;
    std::vector<std::array<std::vector<Ns>, 3>> ends_;  // by stage and kind
    Ns most_ = 0;
    std::unordered_set<std::string> failed_;
};

TEST(AutoV, IsTheShortestOfAllOrdersOfSmallInstances) {
    const Schedule& schedule = schedule_named("auto-v");
    Random random(45);
    for (int round = 0; round < std::max(1, rounds(3)); ++round)
        for (const auto& [p, m] : {std::pair(2, 2), std::pair(2, 3)})
            for (int room = 1; room <= 2; ++room) {
                VTimes v{{}, pick(random, 0, 3), m, 2 * room};
                Costs costs = uniform(2 * p, 1, 1, 1, v.latency);
                v.passes = draw_passes(random, costs);
                const Shape shape = placed(schedule, shape_of(schedule, p, m, 2));
                const OrderCosts own = order_costs(
                    shape, costs, std::vector<Bytes>(static_cast<std::size_t>(p), std::numeric_limits<Bytes>::max()));
                PlanOptions options;
                options.schedule.activations = room;
                const Metrics found = metrics_of(simulate(ordered(schedule, shape, options, &own).plan, costs));
                SCOPED_TRACE(fmt::format("{} devices, {} micro-batches, room {}, round {}", p, m, room, round));
                EXPECT_TRUE(AllOrders(v).takes_at_most(found.step_time));
                EXPECT_FALSE(AllOrders(v).takes_at_most(found.step_time - 1));
                const OrderModel model({shape, options.schedule, &own});
                EXPECT_LE(least_times(model).step, found.step_time);
                EXPECT_EQ(least_times(model, {found.step_time, found.span}).step, found.step_time);
            }
}

// The times of ZB-V in table 8 of arXiv 2401.10241, for two devices. No order has a shorter span than the one found.
TEST(AutoV, FindsTheShortestSpanOfTwoDevices) {
    const Schedule& schedule = schedule_named("auto-v");
    for (int m = 3; m <= (soaks() ? 4 : 3); ++m) {
        const VTimes v{{4, {14407, 14380, 9676}}, 1610, m, 4 * 37, {37, -21, -16}, Aim::Span};
        Costs costs = uniform(4, 14407, 14380, 9676, v.latency);
        for (StageBytes& bytes : costs.bytes) {
            bytes.until_input = 21;
            bytes.until_weight = 16;
        }
        const Shape shape = placed(schedule, shape_of(schedule, 2, m, 2));
        const OrderCosts own = order_costs(shape, costs, std::vector<Bytes>(2, v.room));
        PlanOptions options;
        options.schedule.aim = Aim::Span;
        const Ns found = metrics_of(simulate(ordered(schedule, shape, options, &own).plan, costs)).span;
        EXPECT_TRUE(AllOrders(v).takes_at_most(found)) << m;
        EXPECT_FALSE(AllOrders(v).takes_at_most(found - 1)) << m;
        const Ns least = least_times(OrderModel({shape, options.schedule, &own})).span;
        EXPECT_LE(least, found) << m;
        EXPECT_LE(found, least + found / 100) << m;
    }
}

}  // namespace
}  // namespace pw
