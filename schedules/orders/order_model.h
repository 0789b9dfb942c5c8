// The order of a plan's passes as numbers: how long a step with it takes, and whether the memory suffices. The model
// counts times of passes, latencies, and messages that take turns in their lanes. The simulator has the remaining
// rules, too. B and I of a recomputed stage include R, which does not wait for gradients: gradients arrive earlier by
// its time.
#pragma once

#include "schedules/orders/order_costs.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/rows.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pw {

// A pass of an order: F, I or W of a stage and a micro-batch, or B, which runs I and W together in place of I.
class OrderPass {
public:
    enum Kind : std::uint8_t { F, I, W };

    OrderPass() = default;
    // `number` is the number of the (stage, micro-batch) pair times three, plus the kind.
    constexpr explicit OrderPass(int number, bool is_whole = false) : code_(2 * number + (is_whole ? 1 : 0)) {}

    constexpr int number() const { return code_ / 2; }
    constexpr int kind() const { return number() % 3; }
    constexpr bool whole() const { return code_ % 2 == 1; }  // a B
    constexpr std::size_t index() const { return static_cast<std::size_t>(code_); }
    auto operator<=>(const OrderPass&) const = default;

private:
    int code_ = 0;
};
using PassLists = std::vector<std::vector<OrderPass>>;  // by device

using Aim = ScheduleOptions::Aim;
constexpr Ns main_time(const StepTimes& times, Aim aim) { return aim == Aim::Step ? times.step : times.span; }
// The other time decides between orders that are equally long by the aim.
constexpr bool is_shorter(const StepTimes& one, const StepTimes& other, Aim aim) {
    const Ns first = main_time(one, aim), second = main_time(other, aim);
    if (first != second || first == StepTimes{}.step)  // StepTimes{} is of no order
        return first < second;
    return one.step + one.span / 4 < other.step + other.span / 4;
}

// By device: bytes of its room that are not used, and the most activations.
struct SparedRoom {
    std::vector<Bytes> bytes = {};
    std::vector<std::int64_t> most = {};
};

class OrderModel {
public:
    // Two limits on what a device holds from F on: of activations, each of a stage, and of bytes.
    static constexpr std::size_t kLimits = 2;
    using Amounts = std::array<std::int64_t, kLimits>;
    struct Held {
        Amounts after_forward{}, after_input{};  // until I, or B, and until W
        // The room that a pass needs in addition to what is held before it. For F, `after_forward` is also held.
        Amounts by_forward{}, by_input{}, by_backward{};
        std::int64_t needed(OrderPass pass, std::size_t limit) const;  // 0 for W
        // Returns how much more is held when a pass has ended.
        std::int64_t change(OrderPass pass, std::size_t limit) const;
    };
    struct Message {
        int reader;            // the number of the pass that reads it
        int lane;              // -1 on one device
        Ns occupied, latency;  // latency: may be negative for gradients, see above
        Ns time() const { return occupied + latency; }
    };

    // Takes a placed shape with costs. A device always has room for a micro-batch. Without a limit in the options or a
    // known memory, a device has room for as many micro-batches as there are devices, as the first device of 1F1B.
    explicit OrderModel(const Request& request);

    int devices() const { return devices_; }
    int microbatches() const { return microbatches_; }
    int stages() const { return stages_; }
    int passes() const { return 3 * stages_ * microbatches_; }
    int lanes() const { return lanes_; }
    int number(int stage, int microbatch, int kind) const { return 3 * (stage * microbatches_ + microbatch) + kind; }
    int stage_of(int number) const { return number / 3 / microbatches_; }
    int microbatch_of(int number) const { return number / 3 % microbatches_; }
    int device_of(int number) const { return device_[static_cast<std::size_t>(number) / 3]; }
    // Returns the time of a pass whose gradients are not added to earlier gradients.
    Ns time(OrderPass pass) const { return times_[pass.index()]; }
    // Returns the additional time of a B or W that adds to gradients: of all but the first of a stage on a device.
    Ns added(OrderPass pass) const { return added_[pass.index()]; }
    // Returns the time of the update that follows the k-th B or W of a stage on a device, counted from 0: of the last.
    Ns update_after(int stage, int device, int k) const {
        const auto at = static_cast<std::size_t>(stage * devices_ + device);
        return k + 1 == served_[at] ? update_[at] : 0;
    }
    // Returns the least time of updates between the passes of a device: the stage that ends last has its update after
    // them, and so have stages that sum gradients, and all stages with a global norm.
    Ns updates_between_passes(int device) const { return between_[static_cast<std::size_t>(device)]; }
    // Whether the update of each stage follows the stage's last B or W on the device.
    bool updates_follow_passes() const { return updates_follow_; }
    // Return the least time of I alone or B, and of I and W together or B.
    Ns least_input(int input) const { return std::min(time(OrderPass(input)), time(OrderPass(input, true))); }
    Ns least_backward(int input) const {
        return std::min(time(OrderPass(input)) + time(OrderPass(input + 1)), time(OrderPass(input, true)));
    }
    // Returns the least that is added to the gradients of a micro-batch, by B or by W.
    Ns least_added(int input) const { return std::min(added(OrderPass(input, true)), added(OrderPass(input + 1))); }
    Ns slowest_work() const { return slowest_work_; }  // of a device for a micro-batch, at least 1
    const std::vector<Message>& messages(int number) const { return messages_[static_cast<std::size_t>(number)]; }
    const std::vector<int>& inputs() const { return inputs_; }  // by number: how many messages it waits for
    // Returns what the micro-batch of a pass holds on its stage.
    const Held& held(int number) const { return held_[held_at_[static_cast<std::size_t>(number) / 3]]; }
    bool has_equal_microbatches() const { return classes_ == 1; }
    // The least number of micro-batches that uses all the room there is, and a limit to a smaller number.
    int levels() const;
    void limit_to(int microbatches, const SparedRoom& spared = {});
    // Spares the memory that an order lacks, by device. With recomputation, where F holds little else, tensors that a
    // device receives early are spared where they are made.
    void spare(const PassLists& lists, std::vector<Bytes> missing, SparedRoom& spared) const;
    bool limits_bytes() const { return limits_bytes_; }
    bool recomputes() const { return !costs_.recomputed.empty(); }
    const Amounts& room(int device) const { return room_[static_cast<std::size_t>(device)]; }
    // Returns the most that F of a micro-batch from `first` to `last` take on all its stages on a device.
    Amounts whole(int device, int first, int last) const;
    // Returns the most room that a pass needs on a device in addition. An F leaves it free, so that an I can follow
    // when all W have run.
    const Amounts& spare_for_passes(int device) const { return spare_for_passes_[static_cast<std::size_t>(device)]; }
    const std::vector<int>& stages_on(int device) const { return stages_on_[static_cast<std::size_t>(device)]; }
    // Returns whether a device chooses among stages.
    bool has_several_stages() const;

    // Returns by stage the least time from the end of F to the start of I.
    std::vector<Ns> round_trips(int microbatch) const;

    PassLists lists_of(const std::vector<Tasks>& order) const;
    std::vector<Tasks> order_of(const PassLists& lists) const;

private:
    void connect(const Shape& shape);
    void set_times(int forward, const OrderCosts::Times& times);
    void set_updates(const Shape& shape);
    void limit(const Request& request);
    void add_microbatch(int device);
    Amounts forwards_of(int device, int microbatch) const;
    // Whether some micro-batch goes between the two holders.
    bool exchange(const OrderCosts::Holder& one, const OrderCosts::Holder& other) const;
    void spare_early_messages(const PassLists& lists, std::vector<Bytes>& missing, SparedRoom& spared) const;

    const OrderCosts& costs_;
    int devices_, stages_, microbatches_, lanes_ = 0;
    bool limits_bytes_ = false, updates_follow_ = true;
    std::vector<int> device_, served_;
    std::vector<std::vector<int>> stages_on_;
    std::size_t classes_;
    std::vector<Ns> update_;         // by stage and device, as served_
    std::vector<Ns> between_;        // by device
    std::vector<Ns> times_, added_;  // by pass
    Ns slowest_work_ = 1;
    std::vector<std::vector<Message>> messages_;
    std::vector<int> inputs_;
    std::vector<Held> held_;            // by stage and class
    std::vector<std::size_t> held_at_;  // by stage and micro-batch: the position there
    // By device: what a micro-batch takes on all its stages there after F, and after F or I, whichever is more. Then
    // what a pass needs in addition.
    std::vector<Amounts> one_, level_, spare_for_passes_;
    std::vector<Amounts> all_room_, room_;
    std::vector<std::vector<Amounts>> whole_;  // by device and micro-batch, or empty if all are equal
};

// Times lists again and again. Keeps a reference to the model.
class OrderTimer {
public:
    explicit OrderTimer(const OrderModel& model);
    // Returns the largest times for lists that wait for each other in a cycle.
    StepTimes times(const PassLists& lists);
    // These are of the lists timed last, by number of a pass. An update comes after the end of its pass.
    Ns end(int number) const { return end_[static_cast<std::size_t>(number)]; }
    Ns update(int number) const { return update_[static_cast<std::size_t>(number)]; }
    Ns ready(int number) const { return ready_[static_cast<std::size_t>(number)]; }
    int last_sender(int number) const { return sender_[static_cast<std::size_t>(number)]; }
    Ns begin(int device) const { return begin_[static_cast<std::size_t>(device)]; }
    // The numbers of all passes, each after the passes that it waits for.
    const std::vector<int>& sequence() const { return sequence_; }

private:
    void run(int device, const std::vector<OrderPass>& list);
    void send(int number, Ns end);

    const OrderModel& model_;
    std::vector<int> missing_, weights_;  // by number, and by stage and device
    std::vector<Ns> ready_, end_, update_, lane_, free_at_, begin_;
    std::vector<int> sequence_;
    std::vector<std::size_t> next_;       // by device: the position in its list
    std::vector<int> sender_;             // by number: the pass whose message came last, or -1
    std::vector<int> waiting_, devices_;  // by device: the number that it waits for. Devices to continue
};

// Returns whether a device's list keeps its limits.
bool fits(const OrderModel& model, int device, const std::vector<OrderPass>& list);
bool fits(const OrderModel& model, const PassLists& lists);

}  // namespace pw
