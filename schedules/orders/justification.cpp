#include "schedules/orders/justification.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// What a pass takes (positive) or frees, and what is held while it runs, beyond what is before or after it.
struct Change {
    OrderModel::Amounts amount{}, beyond{};
    bool takes() const {
        return std::ranges::any_of(amount, [](std::int64_t own) { return own > 0; });
    }
};

// Time may run backwards: then all times are negative, and I and W take what F frees.
struct PlacedPass {
    OrderPass pass;
    Ns start, end;
    Change change;
    OrderModel::Amounts held;  // while it runs
};

// The passes of a device by time, as far as they have been placed.
class DeviceLine {
public:
    explicit DeviceLine(const OrderModel::Amounts& room) : room_(room) {}

    const std::vector<PlacedPass>& passes() const { return passes_; }

    // Places a pass at the first time from `from` on at which the device is idle for its length and has room for it,
    // also during later passes. Returns its end, or none if there is no such time.
    std::optional<Ns> place(OrderPass pass, Ns from, Ns length, const Change& change) {
        const OrderModel::Amounts& amount = change.amount;
        std::size_t at = 0;
        if (change.takes())
            for (at = passes_.size(); at > 0 && has_room(passes_[at - 1].held, amount);)
                --at;
        if (at > 0)
            from = std::max(from, passes_[at - 1].end);
        const auto after =
            std::ranges::partition_point(passes_.begin() + static_cast<std::ptrdiff_t>(at), passes_.end(),
                                         [&](const PlacedPass& placed) { return placed.end <= from; });
        at = static_cast<std::size_t>(after - passes_.begin());
        OrderModel::Amounts held = held_during(at, change);
        for (; at < passes_.size() && (passes_[at].start < from + length || !has_room(held, {})); ++at) {
            from = std::max(from, passes_[at].end);
            held = held_during(at + 1, change);
        }
        if (!has_room(held, {}))
            return {};
        const PlacedPass placed{pass, from, from + length, change, held};
        for (std::size_t limit = 0; limit < amount.size(); ++limit)
            for (std::size_t later = at; later < passes_.size(); ++later)
                passes_[later].held[limit] += amount[limit];
        passes_.insert(passes_.begin() + static_cast<std::ptrdiff_t>(at), placed);
        return placed.end;
    }

private:
    bool has_room(const OrderModel::Amounts& held, const OrderModel::Amounts& amount) const {
        return held[0] + amount[0] <= room_[0] && held[1] + amount[1] <= room_[1];
    }
    // Returns what is held while a pass runs there.
    OrderModel::Amounts held_during(std::size_t at, const Change& change) const {
        OrderModel::Amounts held{};
        for (std::size_t limit = 0; limit < held.size(); ++limit) {
            if (at > 0) {
                const PlacedPass& before = passes_[at - 1];
                held[limit] = before.held[limit] - before.change.beyond[limit] +
                              std::min<std::int64_t>(before.change.amount[limit], 0);
            }
            held[limit] += std::max<std::int64_t>(change.amount[limit], 0) + change.beyond[limit];
        }
        return held;
    }

    const OrderModel::Amounts& room_;
    std::vector<PlacedPass> passes_;
};

class Justification {
public:
    Justification(const OrderModel& model, OrderTimer& timer, const PassLists& lists, Aim aim)
        : model_(model),
          length_(static_cast<std::size_t>(model.passes()), kAbsent),
          times_(length_.size(), 0),
          bound_(lists.size()) {
        const StepTimes all = timer.times(lists);
        is_possible_ = all.step != StepTimes{}.step;
        for (std::size_t device = 0; is_possible_ && device < lists.size(); ++device) {
            bound_[device] = aim == Aim::Step ? all.step : timer.begin(static_cast<int>(device)) + all.span;
            for (const OrderPass pass : lists[device]) {
                length_[pass.number()] = model.time(pass);
                times_[pass.number()] = timer.end(pass.number());
                passes_.push_back(pass);
            }
        }
    }

    PassLists lists() {
        if (!is_possible_ || !place_all(true) || !place_all(false))
            return {};
        PassLists lists;
        for (const DeviceLine& line : lines_) {
            std::vector<OrderPass>& list = lists.emplace_back();
            for (const PlacedPass& placed : line.passes())
                list.push_back(placed.pass);
        }
        return lists;
    }

private:
    static constexpr Ns kAbsent = -1;  // the W of a B

    // Orders passes that begin and end at the same time.
    int depth(OrderPass pass) const {
        const int stage = model_.stage_of(pass.number()), kind = pass.kind();
        return kind == OrderPass::F   ? stage
               : kind == OrderPass::I ? 2 * model_.stages() - stage
                                      : 2 * model_.stages() + 1;
    }
    Change change_of(OrderPass pass, bool backwards) const {
        const OrderModel::Held& held = model_.held(pass.number());
        Change change;
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
            const std::int64_t amount = held.change(pass, limit);
            change.amount[limit] = backwards ? -amount : amount;
            change.beyond[limit] = held.needed(pass, limit) - std::max<std::int64_t>(amount, 0);
        }
        return change;
    }

    // Places all passes anew: backwards, by their ends, or forwards, by their starts. Sets times_ to the starts, or to
    // the ends.
    bool place_all(bool backwards) {
        std::ranges::stable_sort(passes_, [&](OrderPass one, OrderPass other) {
            const auto key = [&](OrderPass pass) {
                const Ns time = times_[pass.number()], length = length_[pass.number()];
                return backwards ? std::tuple(-time, length - time, -depth(pass))
                                 : std::tuple(time, time + length, depth(pass));
            };
            return key(one) < key(other);
        });
        lines_.clear();
        for (int device = 0; device < model_.devices(); ++device)
            lines_.emplace_back(model_.room(device));
        std::vector<Ns> from(length_.size(), 0);
        std::vector<bool> is_placed(length_.size(), false);
        std::vector<int> missing = model_.inputs();
        for (const OrderPass pass : passes_) {
            const int number = pass.number(), device = model_.device_of(number);
            Ns first = backwards ? -bound_[device] : from[number];
            for (const OrderModel::Message& message : model_.messages(number)) {
                if (!backwards || length_[message.reader] == kAbsent)
                    continue;
                if (!is_placed[message.reader])
                    return false;
                first = std::max(first, message.time() - times_[message.reader]);
            }
            if (!backwards && missing[number] > 0)
                return false;
            const std::optional<Ns> end =
                lines_[device].place(pass, first, length_[number], change_of(pass, backwards));
            if (!end)
                return false;
            is_placed[number] = true;
            times_[number] = backwards ? -*end : *end;
            for (const OrderModel::Message& message : model_.messages(number)) {
                from[message.reader] = std::max(from[message.reader], *end + message.time());
                --missing[message.reader];
            }
        }
        return true;
    }

    const OrderModel& model_;
    std::vector<Ns> length_, times_;  // by number
    std::vector<Ns> bound_;           // by device: the latest end
    std::vector<OrderPass> passes_;
    std::vector<DeviceLine> lines_;
    bool is_possible_ = false;
};

}  // namespace

PassLists justified(const OrderModel& model, OrderTimer& timer, const PassLists& lists, Aim aim) {
    return Justification(model, timer, lists, aim).lists();
}

}  // namespace pw
