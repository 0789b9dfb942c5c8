#include "schedules/orders/list_scheduling.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

// The passes of a stage on a device. Each kind takes the micro-batches in order.
struct StageQueue {
    int stage;
    std::vector<int> microbatches;
    std::size_t forwards = 0, inputs = 0, weights = 0;  // passes that have begun
    int most_ahead = 0;                                 // as Device::most_ahead

    bool has_forward() const { return forwards < microbatches.size(); }
    bool has_input() const { return inputs < forwards; }
    bool has_weight() const { return weights < inputs; }
};

struct Device {
    std::vector<StageQueue> stages;
    std::vector<int> left;                   // by micro-batch: stages on which it is not done
    int oldest = 0;                          // the first micro-batch that is not done
    std::vector<int> forwards_left;          // by micro-batch: stages on which F has not begun
    std::vector<OrderModel::Amounts> taken;  // by micro-batch: by its F that have begun
    int filling = 0;                         // the first micro-batch with such stages
    OrderModel::Amounts younger{};           // taken by micro-batches after it
    OrderModel::Amounts spare_for_passes{};
    OrderModel::Amounts used{};
    int ahead = 0, most_ahead = 0;  // activations before their I
    std::size_t at_kept = 0;        // position in the list whose order is kept
    int left_over = 0, lag = 0;     // W that could run, and how many of them wait for the end
    Ns free_at = 0, waited = 0;     // since its first pass
};

struct Choice {
    Ns start = kNever;
    std::size_t queue = 0;
    int kind = 0;  // of the pass: 0, 1 or 2
};

struct Options {
    Choice best, excepted;    // excepted: of any kind; best: F or I
    bool lacks_room = false;  // of an F that could begin
};

// Returns the first micro-batch from `at` on that has some left.
int first_of(const std::vector<int>& left, int at) {
    const auto found = std::find_if(left.begin() + at, left.end(), [](int count) { return count > 0; });
    return static_cast<int>(found - left.begin());
}

void note_forward(Device& own, int microbatch, const OrderModel::Amounts& taken) {
    for (std::size_t limit = 0; limit < taken.size(); ++limit) {
        own.taken[microbatch][limit] += taken[limit];
        own.younger[limit] += microbatch > own.filling ? taken[limit] : 0;
    }
    --own.forwards_left[microbatch];
    for (const int next = first_of(own.forwards_left, own.filling); own.filling < next;) {
        ++own.filling;
        for (std::size_t limit = 0; own.filling < std::ssize(own.taken) && limit < taken.size(); ++limit)
            own.younger[limit] -= own.taken[own.filling][limit];
    }
}

class ListScheduling {
public:
    ListScheduling(const OrderModel& model, const OrderRules& rules, const Exceptions* exceptions,
                   const PassLists* kept);
    PassLists lists();

private:
    void prepare(int device, const std::vector<Ns>& trips);
    void limit_stages(Device& own, int device, const std::vector<Ns>& trips) const;
    Choice choice_of(int device) const;
    Options by_rules(int device) const;
    Options by_kept_order(int device) const;
    Choice weight_of(const Device& own) const;
    // Returns the first position from `at` on of an F or I in the list whose order is kept.
    std::size_t kept_from(int device, std::size_t at) const {
        const std::vector<OrderPass>& list = (*kept_)[device];
        while (at < list.size() && list[at].kind() == 2)
            ++at;
        return at;
    }
    void choose(int device) {
        choices_[device] = choice_of(device);
        starts_[device] = choices_[device].start;
    }
    bool may_run_ahead(const Device& own, const StageQueue& queue) const;
    const OrderModel::Amounts& room(const Device& own) const { return model_.room(device_of(own)); }
    int device_of(const Device& own) const { return static_cast<int>(&own - devices_.data()); }
    bool has_room(const Device& own, const StageQueue& queue) const;
    bool has_room_for(const Device& own, int number) const;
    bool leaves_room_for_older(const Device& own, const StageQueue& queue) const;
    bool comes_before(const Device& own, const Choice& one, const Choice& other) const;
    void run(int device, const Choice& choice);
    bool ends_lag();
    void send(int number, Ns end);
    int number_of(const StageQueue& queue, int kind) const {
        const std::size_t at = kind == 0 ? queue.forwards : kind == 1 ? queue.inputs : queue.weights;
        return model_.number(queue.stage, queue.microbatches[at], kind);
    }
    // Returns the pace at which F reaches and leaves a stage.
    Ns slowest_forward(int stage) const {
        Ns slowest = 1;
        for (int before = 0; before <= stage; ++before)
            slowest = std::max(slowest, model_.time(OrderPass(model_.number(before, 0, 0))));
        return slowest;
    }
    int weight_kind() const { return rules_.whole ? 1 : 2; }

    const OrderModel& model_;
    const OrderRules& rules_;
    const Exceptions* const exceptions_;
    const PassLists* const kept_;  // an order of F and I
    std::vector<Device> devices_;
    std::vector<Choice> choices_;
    std::vector<Ns> starts_;  // of the choices
    std::vector<int> missing_;
    std::vector<Ns> ready_, lane_;
    PassLists lists_;
    Ns longest_path_ = 0, longest_wait_ = 0;
};

ListScheduling::ListScheduling(const OrderModel& model, const OrderRules& rules, const Exceptions* exceptions,
                               const PassLists* kept)
    : model_(model),
      rules_(rules),
      exceptions_(exceptions),
      kept_(kept),
      devices_(static_cast<std::size_t>(model.devices())),
      choices_(devices_.size()),
      starts_(devices_.size(), kNever),
      missing_(model.inputs()),
      ready_(missing_.size(), 0),
      lane_(static_cast<std::size_t>(model.lanes()), 0),
      lists_(devices_.size()) {
    const std::vector<Ns> trips = model.round_trips(0);
    for (int stage = 0; stage < model.stages(); ++stage)
        longest_path_ = std::max(longest_path_, model.time(OrderPass(model.number(stage, 0, 0))) + trips[stage] +
                                                    model.time(OrderPass(model.number(stage, 0, 1))));
    for (int device = 0; device < model.devices(); ++device)
        prepare(device, trips);
}

void ListScheduling::prepare(int device, const std::vector<Ns>& trips) {
    Device& own = devices_[device];
    own.left.assign(static_cast<std::size_t>(model_.microbatches()), 0);
    own.forwards_left = own.left;
    own.taken.assign(own.left.size(), {});
    double ahead = 0;
    for (const int stage : model_.stages_on(device)) {
        StageQueue queue{stage, {}};
        for (int mb = 0; mb < model_.microbatches(); ++mb)
            if (model_.device_of(model_.number(stage, mb, 0)) == device) {
                queue.microbatches.push_back(mb);
                ++own.left[mb];
                ++own.forwards_left[mb];
            }
        own.stages.push_back(std::move(queue));
        const int number = model_.number(stage, 0, 0);
        const Ns own_path = model_.time(OrderPass(number)) + trips[stage] + model_.time(OrderPass(number + 1));
        const Ns weight = std::max<Ns>(1, model_.time(OrderPass(number + 2)));
        own.lag +=
            static_cast<int>(rules_.lag * static_cast<double>(longest_path_ - own_path) / static_cast<double>(weight));
        const auto trip = static_cast<double>(trips[stage]);
        ahead +=
            1 + (rules_.undelayed ? std::floor(rules_.ahead * trip / static_cast<double>(slowest_forward(stage)) + 1e-9)
                                  : std::ceil(rules_.ahead * trip / static_cast<double>(model_.slowest_work()) - 1e-9));
    }
    own.spare_for_passes = model_.spare_for_passes(device);
    own.most_ahead = static_cast<int>(std::min(ahead, 1e9));
    own.oldest = own.filling = first_of(own.left, 0);
    limit_stages(own, device, trips);
    own.at_kept = kept_ == nullptr ? 0 : kept_from(device, 0);
}

// Sets how far each stage may run ahead by itself: less than the rules allow if there is no room for all of them.
void ListScheduling::limit_stages(Device& own, int device, const std::vector<Ns>& trips) const {
    const auto work = static_cast<double>(model_.slowest_work());
    OrderModel::Amounts largest{};
    double sum = 0;
    for (const StageQueue& queue : own.stages) {
        sum += static_cast<double>(trips[queue.stage]) / work;
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
            for (const int mb : queue.microbatches)
                largest[limit] =
                    std::max(largest[limit], model_.held(model_.number(queue.stage, mb, 0)).after_forward[limit]);
    }
    double ahead = rules_.ahead;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        if (largest[limit] > 0 && sum > 0) {
            const std::int64_t room = model_.room(device)[limit] - own.spare_for_passes[limit];
            const auto most = static_cast<double>(room / largest[limit] - std::ssize(own.stages));
            ahead = std::min(ahead, std::max(most, 0.0) / sum);
        }
    for (StageQueue& queue : own.stages) {
        const double most = 1 + std::ceil(ahead * static_cast<double>(trips[queue.stage]) / work - 1e-9);
        queue.most_ahead = static_cast<int>(std::min(most, 1e9));
    }
}

bool ListScheduling::may_run_ahead(const Device& own, const StageQueue& queue) const {
    if (queue.microbatches[queue.forwards] == own.oldest)
        return true;
    const bool apart = rules_.stages == OrderRules::Stages::Apart || rules_.stages == OrderRules::Stages::LastApart;
    return apart ? static_cast<int>(queue.forwards - queue.inputs) < queue.most_ahead : own.ahead < own.most_ahead;
}

// A younger micro-batch leaves the room of a whole one to each before it that has F left.
bool ListScheduling::has_room(const Device& own, const StageQueue& queue) const {
    const int microbatch = queue.microbatches[queue.forwards];
    const OrderModel::Amounts& needed = model_.held(number_of(queue, 0)).after_forward;
    const bool is_younger = microbatch != own.filling;
    OrderModel::Amounts whole{};
    if (is_younger)
        whole = model_.whole(device_of(own), own.filling, microbatch - 1);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        const std::int64_t room = this->room(own)[limit] - own.spare_for_passes[limit];
        if (own.used[limit] + needed[limit] > room ||
            (is_younger && own.younger[limit] + needed[limit] + whole[limit] > room))
            return false;
    }
    return rules_.stages != OrderRules::Stages::InOrder || !is_younger || leaves_room_for_older(own, queue);
}

bool ListScheduling::has_room_for(const Device& own, int number) const {
    const OrderModel::Held& held = model_.held(number);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        if (own.used[limit] + held.needed(OrderPass(number), limit) > room(own)[limit])
            return false;
    return true;
}

bool ListScheduling::leaves_room_for_older(const Device& own, const StageQueue& queue) const {
    const int microbatch = queue.microbatches[queue.forwards];
    OrderModel::Amounts needed = own.used;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        needed[limit] += own.spare_for_passes[limit];
    for (const StageQueue& other : own.stages) {
        const auto add = [&](int mb, std::ptrdiff_t times) {
            const OrderModel::Held& held = model_.held(model_.number(other.stage, mb, 0));
            for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
                needed[limit] += times * held.after_forward[limit];
        };
        const auto first = other.microbatches.begin() + static_cast<std::ptrdiff_t>(other.forwards);
        const auto end = std::lower_bound(first, other.microbatches.end(), microbatch);
        if (model_.has_equal_microbatches())
            add(microbatch, end - first);
        else
            std::for_each(first, end, [&](int mb) { add(mb, 1); });
        if (&other == &queue)
            add(microbatch, 1);
    }
    return needed[0] <= room(own)[0] && needed[1] <= room(own)[1];
}

bool ListScheduling::comes_before(const Device& own, const Choice& one, const Choice& other) const {
    if (one.start != other.start)
        return one.start < other.start;
    if (one.kind != other.kind)
        return (one.kind == 0) == rules_.forward_first;
    const StageQueue &first = own.stages[one.queue], &second = own.stages[other.queue];
    const auto microbatch = [&](const StageQueue& queue) {
        return queue.microbatches[one.kind == 0 ? queue.forwards : queue.inputs];
    };
    if (one.kind == 0 && rules_.stages == OrderRules::Stages::LastApart)
        return first.stage > second.stage;
    return microbatch(first) != microbatch(second) ? microbatch(first) < microbatch(second)
                                                   : first.stage > second.stage;
}

// Whether the device has F or I left.
bool has_more(const Device& own) {
    return std::any_of(own.stages.begin(), own.stages.end(),
                       [](const StageQueue& queue) { return queue.inputs < queue.microbatches.size(); });
}

Options ListScheduling::by_rules(int device) const {
    const Device& own = devices_[device];
    Options options;
    const PassKind exception = exceptions_ == nullptr ? kByRules : (*exceptions_)[device][lists_[device].size()];
    for (std::size_t at = 0; at < own.stages.size(); ++at) {
        const StageQueue& queue = own.stages[at];
        const auto consider = [&](int kind) {
            const int number = number_of(queue, kind);
            if (missing_[number] > 0)
                return;
            const Choice choice{std::max(own.free_at, ready_[number]), at, kind};
            if (comes_before(own, choice, options.best))
                options.best = choice;
            if (kind + 3 * static_cast<int>(at) == exception)
                options.excepted = choice;
        };
        if (queue.has_forward() && may_run_ahead(own, queue)) {
            const bool room = has_room(own, queue);
            if (room)
                consider(0);
            const int number = number_of(queue, 0);
            options.lacks_room =
                options.lacks_room || (!room && missing_[number] == 0 && ready_[number] <= own.free_at);
        }
        if (queue.has_input()) {
            const int number = number_of(queue, 1);
            if (has_room_for(own, number))
                consider(1);
            else
                options.lacks_room = options.lacks_room || missing_[number] == 0;
        }
        if (!rules_.whole && queue.has_weight() && 2 + 3 * static_cast<int>(at) == exception)
            options.excepted = {own.free_at, at, 2};
    }
    return options;
}

Options ListScheduling::by_kept_order(int device) const {
    const Device& own = devices_[device];
    const std::vector<OrderPass>& list = (*kept_)[device];
    if (own.at_kept == list.size())
        return {};
    const int kept = list[own.at_kept].number(), stage = model_.stage_of(kept), kind = kept % 3;
    const auto queue = std::ranges::find_if(own.stages, [&](const StageQueue& one) { return one.stage == stage; });
    const int number = number_of(*queue, kind);
    if (!has_room_for(own, number))
        return {{}, {}, true};
    if (missing_[number] > 0)
        return {};
    const Choice next{std::max(own.free_at, ready_[number]), static_cast<std::size_t>(queue - own.stages.begin()),
                      kind};
    return {next, {}};
}

// Returns the oldest W that could run.
Choice ListScheduling::weight_of(const Device& own) const {
    Choice weight;
    int oldest = model_.microbatches();
    for (std::size_t at = 0; at < own.stages.size(); ++at)
        if (const StageQueue& queue = own.stages[at];
            queue.has_weight() && queue.microbatches[queue.weights] < oldest) {
            oldest = queue.microbatches[queue.weights];
            weight = {own.free_at, at, 2};
        }
    return weight;
}

Choice ListScheduling::choice_of(int device) const {
    const Device& own = devices_[device];
    const Options options = kept_ == nullptr ? by_rules(device) : by_kept_order(device);
    if (options.excepted.start != kNever)
        return options.excepted;
    const Choice& best = options.best;
    const Choice weight = rules_.whole ? Choice{} : weight_of(own);
    if (weight.start == kNever || (own.left_over <= own.lag && !options.lacks_room && has_more(own)))
        return best;
    const Ns time = model_.time(OrderPass(number_of(own.stages[weight.queue], 2)));
    const auto delay = static_cast<Ns>(rules_.patience * static_cast<double>(time));
    const bool fills = best.start == kNever || own.free_at + time <= best.start + delay ||
                       (rules_.level && own.waited + best.start - own.free_at > longest_wait_);
    return fills || (rules_.forward_first && options.lacks_room) ? weight : best;
}

void ListScheduling::send(int number, Ns end) {
    for (const OrderModel::Message& message : model_.messages(number)) {
        Ns arrival = end;
        if (message.lane >= 0) {
            Ns& lane = lane_[message.lane];
            lane = std::max(lane, end) + message.occupied;
            arrival = lane + message.latency;
        }
        ready_[message.reader] = std::max(ready_[message.reader], arrival);
        if (--missing_[message.reader] == 0)
            if (const int device = model_.device_of(message.reader); device != model_.device_of(number))
                choose(device);
    }
}

void ListScheduling::run(int device, const Choice& choice) {
    Device& own = devices_[device];
    StageQueue& queue = own.stages[choice.queue];
    const int number = number_of(queue, choice.kind);
    if (!lists_[device].empty())
        own.waited += choice.start - own.free_at;
    longest_wait_ = std::max(longest_wait_, own.waited);
    const OrderPass pass(number, choice.kind == 1 && rules_.whole);
    lists_[device].push_back(pass);
    Ns end = choice.start + model_.time(pass), update = 0;
    const OrderModel::Held& held = model_.held(number);
    const bool frees = choice.kind == weight_kind();
    if (frees) {
        end += queue.weights > 0 ? model_.added(pass) : 0;
        update = model_.update_after(queue.stage, device, static_cast<int>(queue.weights));
    }
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        own.used[limit] += held.change(pass, limit);
    if (kept_ != nullptr && choice.kind != 2)
        own.at_kept = kept_from(device, own.at_kept + 1);
    own.left_over += choice.kind == 1 ? 1 : choice.kind == 2 ? -1 : 0;
    own.ahead += choice.kind == 0 ? 1 : choice.kind == 1 ? -1 : 0;
    queue.forwards += choice.kind == 0;
    queue.inputs += choice.kind == 1;
    if (frees) {
        --own.left[queue.microbatches[queue.weights]];
        ++queue.weights;
        own.oldest = first_of(own.left, own.oldest);
    }
    if (choice.kind == 0)
        note_forward(own, queue.microbatches[queue.forwards - 1], held.after_forward);
    own.free_at = end + update;
    send(number, end);
    choose(device);
}

// If all devices wait, a device runs its W. Returns false if no device has any.
bool ListScheduling::ends_lag() {
    for (int device = 0; device < model_.devices(); ++device)
        if (Device& own = devices_[device]; own.left_over > 0 && own.lag > 0) {
            own.lag = own.left_over - 1;
            choose(device);
            if (choices_[device].start != kNever)
                return true;
        }
    return false;
}

PassLists ListScheduling::lists() {
    for (int device = 0; device < model_.devices(); ++device)
        choose(device);
    for (;;) {
        const auto first = std::min_element(starts_.begin(), starts_.end());
        if (*first == kNever) {
            if (!ends_lag())
                return std::move(lists_);
            continue;
        }
        const auto device = static_cast<int>(first - starts_.begin());
        run(device, Choice(choices_[device]));
    }
}

}  // namespace

PassLists scheduled(const OrderModel& model, const OrderRules& rules, const Exceptions* exceptions) {
    return ListScheduling(model, rules, exceptions, nullptr).lists();
}

PassLists refilled(const OrderModel& model, const OrderRules& rules, const PassLists& lists) {
    PassLists filled = ListScheduling(model, rules, nullptr, &lists).lists();
    std::ptrdiff_t passes = 0;
    for (const std::vector<OrderPass>& list : filled)
        passes += std::ssize(list);
    return passes == model.passes() ? filled : PassLists{};
}

}  // namespace pw
