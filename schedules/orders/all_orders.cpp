#include "schedules/orders/all_orders.h"

#include "workloads/interruption.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr Ns kNotKnown = std::numeric_limits<Ns>::max() / 4;
constexpr int kMostPasses = 96;

// A stage whose passes take the same time for every micro-batch.
struct ChainStage {
    int device;
    std::array<Ns, 3> times;  // of F, I and W
    Ns down = 0, up = 0;      // from F to the next stage's F, and from I to the previous stage's I
    Ns trip = 0, back = 0;    // from the end of F to I, and from the end of I to the end of W on the first stage
    OrderModel::Held held;
    Ns added = 0, update = 0;  // to W except the first, and after the last W
};

// Returns nothing if stages are not in a chain with a device each, or micro-batches not equally long, or if B may take
// less time than I and W, or a gradient arrive before its I starts. A span has updates between passes only.
std::optional<std::vector<ChainStage>> chain_of(const OrderModel& model, Aim aim) {
    std::vector<ChainStage> chain;
    if (!model.has_equal_microbatches())
        return std::nullopt;
    for (int stage = 0; stage < model.stages(); ++stage) {
        const int first = model.number(stage, 0, 0);
        ChainStage own{model.device_of(first), {}, 0, 0, 0, 0, model.held(first)};
        own.added = model.added(OrderPass(first + 2));
        if (aim == Aim::Step || model.updates_follow_passes())
            own.update = model.update_after(stage, own.device, model.microbatches() - 1);
        for (int kind = 0; kind < 3; ++kind)
            own.times[kind] = model.time(OrderPass(first + kind));
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const int number = model.number(stage, mb, 0);
            const OrderPass whole(number + 1, true);
            const Ns more = model.time(whole) - own.times[1] - own.times[2];
            if (model.device_of(number) != own.device || more < 0 || more + model.added(whole) < own.added)
                return std::nullopt;
            for (int kind = 0; kind < 3; ++kind) {
                if (model.time(OrderPass(number + kind)) != own.times[kind])
                    return std::nullopt;
                for (const OrderModel::Message& message : model.messages(number + kind)) {
                    const int reader = model.stage_of(message.reader), of_kind = message.reader % 3;
                    if (reader == stage)
                        continue;
                    if (of_kind != kind || reader != stage + (kind == 0 ? 1 : -1))
                        return std::nullopt;
                    (kind == 0 ? own.down : own.up) = message.time();
                }
            }
        }
        if (own.times[1] + own.up < 0)
            return std::nullopt;
        chain.push_back(own);
    }
    for (std::size_t stage = 0; stage < chain.size(); ++stage)
        chain[stage].back =
            stage == 0 ? chain[0].times[2] : chain[stage].up + chain[stage - 1].times[1] + chain[stage - 1].back;
    for (std::size_t stage = chain.size() - 1; stage-- > 0;) {
        const ChainStage& next = chain[stage + 1];
        chain[stage].trip = chain[stage].down + next.times[0] + next.trip + next.times[1] + next.up;
    }
    return chain;
}

struct ChainDevice {
    std::vector<int> stages;
    Ns at = 0, left = 0;  // left: of its work
    int passes_left = 0;  // they may take no time
    Ns begin = -1;        // of its first pass
    bool passes = false;  // devices that are as far go first
    OrderModel::Amounts used{};
    Ns most_rest = 0, most_weights = 0;  // work of I and W, and of W alone, that its room can hold
};

// Sets the work that the room of a device can hold.
void limit_rest(const OrderModel& model, const std::vector<ChainStage>& chain, int number, ChainDevice& device) {
    device.most_rest = device.most_weights = kNotKnown;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        double rest = 0, weights = 0;  // per part of the room
        Ns closing = 0;
        bool counts = true;
        for (const int stage : device.stages) {
            const ChainStage& own = chain[stage];
            const auto all = static_cast<double>(own.held.after_forward[limit]);
            const auto later = static_cast<double>(own.held.after_input[limit]);
            counts = counts && later > 0;
            const auto weight = static_cast<double>(own.times[2] + own.added);
            weights = std::max(weights, weight / later);
            rest = std::max({rest, weight / later, (weight + static_cast<double>(own.times[1])) / all});
            closing += own.added + own.update;
        }
        if (!counts)
            continue;
        const auto filled = [&](double per_part) {
            return static_cast<Ns>(per_part * static_cast<double>(model.room(number)[limit]) * (1 + kRounding)) +
                   closing;
        };
        device.most_rest = std::min(device.most_rest, filled(rest));
        device.most_weights = std::min(device.most_weights, filled(weights));
    }
}

class AllOrders {
public:
    AllOrders(const OrderModel& model, std::vector<ChainStage> chain, Aim aim, Ns most, int tries)
        : model_(model),
          chain_(std::move(chain)),
          of_span_(aim == Aim::Span),
          most_(most),
          left_(tries),
          lists_(static_cast<std::size_t>(model.devices())),
          devices_(static_cast<std::size_t>(model.devices())),
          done_(chain_.size()),
          ends_(chain_.size()) {
        for (int stage = 0; stage < model.stages(); ++stage) {
            ChainDevice& device = devices_[chain_[stage].device];
            device.stages.push_back(stage);
            device.passes_left += 3 * model.microbatches();
            for (int mb = 0; mb < model.microbatches(); ++mb)
                device.left += work_of(stage, mb);
        }
        for (int device = 0; device < model.devices(); ++device)
            limit_rest(model, chain_, device, devices_[device]);
        for (const ChainStage& own : chain_)
            shortest_ = std::min({shortest_, own.times[0], own.times[1] + std::min<Ns>(own.up, 0)});
    }

    AllOrdersAnswer answer() {
        if (runs())
            return {false, std::move(lists_)};
        return {left_ > 0, {}};
    }

private:
    // Of all passes of a micro-batch on a stage.
    Ns work_of(int stage, int mb) const {
        const auto& times = chain_[stage].times;
        const Ns update = !of_span_ && mb + 1 == model_.microbatches() ? chain_[stage].update : 0;
        return times[0] + times[1] + times[2] + (mb > 0 ? chain_[stage].added : 0) + update;
    }
    Ns time_of(int stage, int kind) const {
        const ChainStage& own = chain_[stage];
        return own.times[kind] + (kind == 2 && done_[stage][2] > 0 ? own.added : 0);
    }
    // Returns the update that follows the next pass of a kind. In a span none follows the device's last pass.
    Ns update_after(const ChainDevice& device, int stage, int kind) const {
        const bool ends_stage = kind == 2 && done_[stage][2] + 1 == model_.microbatches();
        const bool counts = !of_span_ || device.passes_left > 1;
        return ends_stage && counts ? chain_[stage].update : 0;
    }

    // Returns when the next pass of a kind can start on a stage.
    Ns ready(int stage, int kind) const {
        const int next = done_[stage][kind];
        const auto end = [&](int from, int of_kind, Ns delay) {
            return done_[from][of_kind] > next ? ends_[from][of_kind][next] + delay : kNotKnown;
        };
        if (next == model_.microbatches())
            return kNotKnown;
        if (kind == 0)
            return stage == 0 ? 0 : end(stage - 1, 0, chain_[stage - 1].down);
        if (kind == 1 && stage + 1 < model_.stages())
            return end(stage + 1, 1, chain_[stage + 1].up);
        return end(stage, kind - 1, 0);
    }

    bool has_room(const ChainDevice& device, int stage, int kind) const {
        const OrderModel::Amounts& room = model_.room(chain_[stage].device);
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
            if (device.used[limit] + chain_[stage].held.needed(OrderPass(kind), limit) > room[limit])
                return false;
        return true;
    }

    void take(ChainDevice& device, int stage, int kind) const {
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
            device.used[limit] += chain_[stage].held.change(OrderPass(kind), limit);
    }

    // Whether the work that is left takes too long on a device, or the way back from there to the first stage.
    bool is_late() const {
        const ChainDevice& home = devices_[chain_.front().device];
        const Ns end_at_home = most_ + (of_span_ ? (home.begin < 0 ? home.at : home.begin) : 0);
        for (const ChainDevice& device : devices_) {
            if (device.passes_left == 0)
                continue;
            const Ns begin = !of_span_ ? 0 : device.begin < 0 ? device.at : device.begin;
            if (device.at + device.left > begin + most_)
                return true;
            Ns forwards = 0, inputs = 0, from_forward = kNotKnown, from_input = kNotKnown;
            for (const int stage : device.stages) {
                const ChainStage& own = chain_[stage];
                const int of_forward = model_.microbatches() - done_[stage][0],
                          of_input = model_.microbatches() - done_[stage][1];
                forwards += of_forward * own.times[0];
                inputs += of_input * own.times[1];
                if (of_forward > 0)
                    from_forward = std::min(from_forward, own.trip + own.times[1] + own.back);
                if (of_input > 0)
                    from_input = std::min(from_input, own.back);
            }
            if (from_input == kNotKnown)
                continue;
            const Ns weights = std::max<Ns>(0, device.left - forwards - inputs - device.most_weights);
            if (device.at + forwards + inputs + weights + from_input > end_at_home)
                return true;
            if (from_forward < kNotKnown &&
                device.at + std::max(forwards, device.left - device.most_rest) + from_forward > end_at_home)
                return true;
        }
        return false;
    }

    // Returns all that the rest depends on, but for the time that is left: times are counted from `base`.
    std::string state(Ns base) const {
        std::vector<std::int32_t> all;
        const auto add = [&](Ns value) { all.push_back(static_cast<std::int32_t>(value)); };
        const Ns home = devices_[chain_.front().device].begin;
        for (const ChainDevice& device : devices_) {
            add(device.passes_left == 0 ? -1 : device.at - base);
            add(device.passes ? 1 : 0);
            if (of_span_)
                add(device.begin < 0 ? -1 : device.begin - home);
        }
        for (int stage = 0; stage < model_.stages(); ++stage)
            for (int kind = 0; kind < 3; ++kind) {
                add(done_[stage][kind]);
                // what is sent and not read
                const int reader = kind == 0 ? stage + 1 : stage - 1;
                if (kind == 2 || reader < 0 || reader == model_.stages())
                    continue;
                const Ns delay = kind == 0 ? chain_[stage].down : chain_[stage].up;
                for (int mb = done_[reader][kind]; mb < done_[stage][kind]; ++mb)
                    add(std::max(ends_[stage][kind][mb] + delay, devices_[chain_[reader].device].at) - base);
            }
        return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof all.front()};
    }

    // Returns when the next pass of a device can start of which it is known, after the time where the device is.
    Ns next_ready(const ChainDevice& device) const {
        Ns next = kNotKnown;
        for (const int stage : device.stages)
            for (int kind = 0; kind < 3; ++kind)
                if (const Ns start = ready(stage, kind); start > device.at)
                    next = std::min(next, start);
        return next;
    }

    // After a pass of 0 ns, devices that wait at the time of the pass may start at once: they no longer go after the
    // devices that are as far. Returns these devices.
    std::vector<ChainDevice*> wake(const ChainDevice& own, Ns began) {
        std::vector<ChainDevice*> woken;
        if (own.at == began)
            for (ChainDevice& device : devices_)
                if (&device != &own && device.passes && device.at == began) {
                    device.passes = false;
                    woken.push_back(&device);
                }
        return woken;
    }

    // Whether the rest can end in time: the device that is least far runs a pass, or waits.
    bool runs() {
        interruption_.point();
        if (left_ == 0 || --left_ == 0 || is_late())
            return false;
        ChainDevice* first = nullptr;
        for (ChainDevice& device : devices_)
            if (device.passes_left > 0 &&
                (first == nullptr || std::pair(device.at, device.passes) < std::pair(first->at, first->passes)))
                first = &device;
        if (first == nullptr)
            return true;
        const Ns base = first->at;
        const Ns since = of_span_ ? base - std::max<Ns>(devices_[chain_.front().device].begin, 0) : base;
        std::string key = state(base);
        if (const auto known = failed_.find(key); known != failed_.end() && known->second <= since)
            return false;
        ChainDevice& own = *first;
        const ChainDevice before = own;
        for (const int stage : before.stages)
            for (int kind = 0; kind < 3; ++kind) {
                if (ready(stage, kind) > own.at || !has_room(own, stage, kind))
                    continue;
                const Ns time = time_of(stage, kind), update = update_after(own, stage, kind);
                own.begin = own.begin < 0 ? own.at : own.begin;
                own.at += time + update;
                own.left -= time + (of_span_ ? 0 : update);
                --own.passes_left;
                own.passes = false;
                const std::vector<ChainDevice*> woken = wake(own, before.at);
                take(own, stage, kind);
                std::vector<OrderPass>& list = lists_[chain_[stage].device];
                list.push_back(OrderPass(model_.number(stage, done_[stage][kind], kind)));
                ends_[stage][kind].push_back(own.at);
                ++done_[stage][kind];
                if (runs())
                    return true;
                list.pop_back();
                --done_[stage][kind];
                ends_[stage][kind].pop_back();
                own = before;
                for (ChainDevice* device : woken)
                    device->passes = true;
            }
        Ns next = next_ready(own), news = next;
        for (const ChainDevice& other : devices_)
            if (&other != &own && other.passes_left > 0) {
                next = std::min(next, other.at > own.at || !other.passes ? other.at : next_ready(other));
                news = std::min(news, other.at + shortest_);
            }
        // Instead of a wait that is long enough, a W can run.
        bool waits = next < kNotKnown;
        for (const int stage : before.stages)
            waits =
                waits && (ready(stage, 2) > own.at || own.at + time_of(stage, 2) + update_after(own, stage, 2) > news);
        if (waits) {
            own.passes = next == own.at;
            own.at = next;
            if (runs())
                return true;
            own = before;
        }
        if (left_ > 0) {
            const auto [known, is_new] = failed_.try_emplace(std::move(key), since);
            known->second = std::min(known->second, since);
        }
        return false;
    }

    const OrderModel& model_;
    const std::vector<ChainStage> chain_;
    const bool of_span_;
    const Ns most_;
    int left_;  // tries
    RareInterruption interruption_{1024};
    PassLists lists_;
    std::vector<ChainDevice> devices_;
    std::vector<std::array<int, 3>> done_;              // by stage and kind
    std::vector<std::array<std::vector<Ns>, 3>> ends_;  // the same
    std::unordered_map<std::string, Ns> failed_;        // by state: the least time after which the rest does not end
    Ns shortest_ = kNotKnown;                           // F or I
};

}  // namespace

AllOrdersAnswer search_all_orders(const OrderModel& model, Aim aim, Ns most, int tries) {
    if (model.passes() > kMostPasses || most > std::numeric_limits<std::int32_t>::max())
        return {};
    std::optional<std::vector<ChainStage>> chain = chain_of(model, aim);
    return chain ? AllOrders(model, std::move(*chain), aim, most, tries).answer() : AllOrdersAnswer{};
}

}  // namespace pw
