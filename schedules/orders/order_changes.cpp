#include "schedules/orders/order_changes.h"

#include "workloads/random.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kHistory = 100;
constexpr std::size_t kExceptedStages = 40;  // of a device: more kinds would not fit a PassKind

struct ListPosition {
    int device, at;  // in the device's list
};

class MadeExceptions {
public:
    MadeExceptions(const OrderModel& model, OrderTimer& timer, TimedOrder order, Aim aim, const OrderRules& rules)
        : model_(model), timer_(timer), aim_(aim), rules_(rules), current_(std::move(order)) {
        current_.times = timer_.times(current_.lists);
        best_ = current_;
        history_.assign(kHistory, current_.times);
        find_critical();
        for (const std::vector<OrderPass>& list : lists())
            exceptions_.emplace_back(list.size() + 1, kByRules);
    }

    const TimedOrder& best() const { return best_; }

    // Makes an exception for a position, on the longest path or anywhere, or ends an exception.
    void change() {
        ListPosition where = draw_critical();
        if (draw(2) == 0) {
            where.device = static_cast<int>(draw(lists().size()));
            if (lists()[where.device].empty())
                return;
            where.at = static_cast<int>(draw(lists()[where.device].size()));
        }
        PassKind& exception = exceptions_[where.device][where.at];
        const PassKind before = exception;
        exception = before != kByRules && draw(2) == 0 ? kByRules : other_kind(where);
        PassLists changed = scheduled(model_, rules_, &exceptions_);
        const StepTimes times = timer_.times(changed);
        if (!take(std::move(changed), times))
            exception = before;
    }

private:
    // Draws a kind that does not run there now.
    PassKind other_kind(const ListPosition& where) {
        const int number = lists()[where.device][where.at].number();
        const std::vector<int>& stages = model_.stages_on(where.device);
        const auto stage = std::ranges::find(stages, model_.stage_of(number)) - stages.begin();
        const std::size_t kinds = 3 * std::min(stages.size(), kExceptedStages);
        const std::size_t kind = static_cast<std::size_t>(number % 3 + 3 * stage) % kinds;
        return static_cast<PassKind>((kind + 1 + draw(kinds - 1)) % kinds);
    }

    std::size_t draw(std::size_t below) { return static_cast<std::size_t>(mixed(++drawn_) % below); }
    ListPosition draw_critical() { return critical_[draw(critical_.size())]; }
    const PassLists& lists() const { return current_.lists; }

    // Keeps lists or not, whose times the timer found last.
    bool take(PassLists lists, const StepTimes& times) {
        StepTimes& earlier = history_[taken_++ % kHistory];
        const bool keeps = !is_shorter(earlier, times, aim_) || !is_shorter(current_.times, times, aim_);
        if (keeps) {
            current_ = {std::move(lists), times};
            find_critical();
            if (is_shorter(times, best_.times, aim_))
                best_ = current_;
        }
        earlier = current_.times;
        return keeps;
    }

    void find_critical();

    const OrderModel& model_;
    OrderTimer& timer_;
    Aim aim_;
    OrderRules rules_;
    Exceptions exceptions_;
    TimedOrder current_, best_;
    std::vector<StepTimes> history_;
    std::size_t taken_ = 0;
    std::uint64_t drawn_ = 0;
    std::vector<int> position_;           // by number of a pass
    std::vector<ListPosition> critical_;  // the passes on a longest path
};

void MadeExceptions::find_critical() {
    position_.resize(static_cast<std::size_t>(model_.passes()));
    int number = 0;
    Ns longest = 0;
    for (int device = 0; device < model_.devices(); ++device) {
        const std::vector<OrderPass>& list = current_.lists[device];
        if (list.empty())
            continue;
        for (std::size_t at = 0; at < list.size(); ++at)
            position_[list[at].number()] = static_cast<int>(at);
        const Ns begin = aim_ == Aim::Step ? 0 : timer_.begin(device);
        if (const Ns time = timer_.end(list.back().number()) - begin; time > longest) {
            longest = time;
            number = list.back().number();
        }
    }
    // A pass waits for the previous one of its list, or for the message that came last.
    critical_.clear();
    while (number >= 0) {
        const int device = model_.device_of(number), at = position_[number];
        critical_.push_back({device, at});
        const int before = at > 0 ? current_.lists[device][at - 1].number() : -1;
        number = before >= 0 && timer_.end(before) >= timer_.ready(number) ? before : timer_.last_sender(number);
    }
}

}  // namespace

TimedOrder with_exceptions(const OrderModel& model, OrderTimer& timer, TimedOrder order, const OrderRules& rules,
                           const StepTimes& least, Aim aim, int changes) {
    MadeExceptions search(model, timer, std::move(order), aim, rules);
    for (int k = 0; k < changes && main_time(search.best().times, aim) > main_time(least, aim); ++k)
        search.change();
    return search.best();
}

}  // namespace pw
