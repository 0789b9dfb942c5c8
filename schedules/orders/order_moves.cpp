#include "schedules/orders/order_moves.h"

#include "workloads/random.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kHistory = 64;
constexpr int kFarthest = 6;

class Moves {
public:
    Moves(const OrderModel& model, OrderTimer& timer, TimedOrder order, Aim aim)
        : model_(model),
          timer_(timer),
          aim_(aim),
          current_(std::move(order)),
          best_(current_),
          history_(kHistory, current_.times),
          position_(static_cast<std::size_t>(model.passes())) {
        for (int device = 0; device < model.devices(); ++device)
            note_positions(device);
        find_critical();
    }

    void move();
    const TimedOrder& best() const { return best_; }

private:
    std::size_t draw(std::size_t below) { return static_cast<std::size_t>(mixed(++drawn_) % below); }
    void note_positions(int device);
    void find_critical();
    void add_critical(int device);

    const OrderModel& model_;
    OrderTimer& timer_;
    Aim aim_;
    TimedOrder current_, best_;
    std::vector<StepTimes> history_;
    std::size_t moved_ = 0;
    std::uint64_t drawn_ = 0;
    std::vector<int> position_;  // by number, in the list of its device
    std::vector<int> critical_;  // numbers of passes on a longest path
    std::vector<Pass> kept_;
};

void Moves::note_positions(int device) {
    const std::vector<Pass>& list = current_.lists[device];
    for (std::size_t at = 0; at < list.size(); ++at)
        position_[list[at] / 2] = static_cast<int>(at);
}

// Follows a longest path back from the last pass of a device: the previous pass of the list, or the message that came
// last.
void Moves::add_critical(int device) {
    int number = current_.lists[device].back() / 2;
    for (;;) {
        critical_.push_back(number);
        const std::vector<Pass>& list = current_.lists[model_.device_of(number)];
        const int at = position_[number];
        const int before = at > 0 ? list[at - 1] / 2 : -1;
        const Ns ready = timer_.ready(number);
        if (before >= 0 && timer_.end(before) >= ready) {
            number = before;
            continue;
        }
        const int sender = timer_.last_sender(number);
        if (sender < 0)
            return;
        number = sender;
    }
}

void Moves::find_critical() {
    critical_.clear();
    Ns last = 0;
    int at = 0;
    for (int device = 0; device < model_.devices(); ++device) {
        const std::vector<Pass>& list = current_.lists[device];
        if (list.empty())
            continue;
        const Ns begin = aim_ == Aim::Step ? 0 : timer_.begin(device);
        if (const Ns time = timer_.end(list.back() / 2) - begin; time > last) {
            last = time;
            at = device;
        }
    }
    add_critical(at);
}

// Takes a pass of the longest path to another place in its list, a few positions away.
void Moves::move() {
    const int number = critical_[draw(critical_.size())], device = model_.device_of(number);
    std::vector<Pass>& list = current_.lists[device];
    const int from = position_[number], size = static_cast<int>(list.size());
    const int distance = 1 + static_cast<int>(draw(draw(3) == 0 ? kFarthest : 2));
    const int to = std::clamp(draw(2) == 0 ? from - distance : from + distance, 0, size - 1);
    const StepTimes before = current_.times;
    StepTimes& earlier = history_[moved_++ % kHistory];
    if (to != from) {
        kept_ = list;
        const auto first = list.begin();
        if (from < to)
            std::rotate(first + from, first + from + 1, first + to + 1);
        else
            std::rotate(first + to, first + from, first + from + 1);
        StepTimes times;
        if (fits(model_, device, list))
            times = timer_.times(current_.lists);
        if (is_shorter(earlier, times, aim_) && is_shorter(before, times, aim_)) {
            list = kept_;
        } else {
            current_.times = times;
            note_positions(device);
            find_critical();
            if (is_shorter(times, best_.times, aim_))
                best_ = current_;
        }
    }
    earlier = current_.times;
}

}  // namespace

TimedOrder improved(const OrderModel& model, OrderTimer& timer, TimedOrder order, const StepTimes& least, Aim aim,
                    int moves) {
    order.times = timer.times(order.lists);
    Moves search(model, timer, std::move(order), aim);
    for (int k = 0; k < moves && main_time(search.best().times, aim) > main_time(least, aim); ++k)
        search.move();
    return search.best();
}

}  // namespace pw
