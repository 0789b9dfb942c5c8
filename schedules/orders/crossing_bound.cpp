#include "schedules/orders/crossing_bound.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr Ns kLongAgo = std::numeric_limits<Ns>::min() / 4;
constexpr Ns kNoTime = std::numeric_limits<Ns>::max();
// Times that are computed. No bound is known when they do not suffice.
constexpr double kMostComputed = 1e7;
constexpr double kMostStates = 200;  // of a layer
// The share of a step that micro-batches take to go forward and back, as many at once as there is room for. With less,
// the work of a device says more.
constexpr double kLeastShare = 0.75;

// A stage with the shortest passes of all micro-batches.
struct LineStage {
    Ns forward = kNoTime, input = kNoTime, hold = kNoTime;  // hold: from the start of I until W has ended
    Ns added = kNoTime;                                     // to the hold of all but the first
    Ns down = 0, up = 0;                                    // of the messages to and from the next stage
    std::int64_t most = 0, most_held = 0;                   // micro-batches from F to the end of I, and to the end of W
};

// Sets how many micro-batches the room of a stage's device holds at most, if all are as small as the smallest.
void limit_by_room(const OrderModel& model, int stage, LineStage& own) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    own.most = own.most_held = model.microbatches();
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        std::int64_t all = kMost, later = kMost, more = kMost;
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const OrderModel::Held& held = model.held(model.number(stage, mb, 0));
            all = std::min(all, held.after_forward[limit]);
            later = std::min({later, held.after_forward[limit], held.after_input[limit]});
            more = std::min(more, held.by_forward[limit]);
        }
        const std::int64_t room = model.room(model.device_of(model.number(stage, 0, 0)))[limit] - more;
        if (all > 0)
            own.most = std::min(own.most, room / all);
        if (all > 0 && later > 0)
            own.most_held = std::min(own.most_held, 1 + (room - all) / later);
    }
}

// Returns the stages in order if they are a line. Otherwise returns none.
std::vector<LineStage> line_of(const OrderModel& model) {
    if (model.stages() != model.devices())
        return {};
    std::vector<LineStage> line(static_cast<std::size_t>(model.stages()));
    for (int stage = 0; stage < model.stages(); ++stage) {
        LineStage& own = line[stage];
        own.down = own.up = stage + 1 < model.stages() ? kNoTime : 0;
        const int device = model.device_of(model.number(stage, 0, 0));
        if (model.stages_on(device).size() != 1)
            return {};
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const int forward = model.number(stage, mb, 0), input = forward + 1;
            if (model.device_of(forward) != device)
                return {};
            own.forward = std::min(own.forward, model.time(OrderPass(forward)));
            own.input = std::min(own.input, model.least_input(input));
            own.hold = std::min(own.hold, model.least_backward(input));
            own.added = std::min(own.added, model.least_added(input));
            if (stage + 1 == model.stages())
                continue;
            const int next = model.number(stage + 1, mb, 0);
            const auto to = [&model](int from, int reader) {
                for (const OrderModel::Message& message : model.messages(from))
                    if (message.reader == reader)
                        return message.time();
                return kNoTime;
            };
            own.down = std::min(own.down, to(forward, next));
            own.up = std::min(own.up, to(next + 1, input));
        }
        if (own.down == kNoTime || own.up == kNoTime)
            return {};
        limit_by_room(model, stage, own);
    }
    return line;
}

// The choices for some micro-batches, with the earliest times that they allow.
struct State {
    std::vector<Ns> inputs;    // by micro-batch under way, from the oldest, and by stage: the start of I
    std::vector<Ns> forwards;  // by stage: the end of F of the newest
    std::vector<int> passed;   // by stage: the newest micro-batch whose I runs before the next F
    Ns least = 0;              // until the end of the last pass on the first stage
};

class Crossings {
public:
    Crossings(const OrderModel& model, std::vector<LineStage> line, Ns found)
        : line_(std::move(line)),
          stages_(line_.size()),
          microbatches_(model.microbatches()),
          window_(static_cast<int>(std::min<std::int64_t>(microbatches_, line_[0].most_held))),
          found_(found),
          least_(found),
          rest_(stages_),
          start_(stages_),
          passed_(stages_) {
        Ns back = line_[0].hold;
        for (std::size_t stage = 1; stage < stages_; ++stage)
            back += line_[stage].input + line_[stage - 1].up;
        for (std::size_t stage = stages_; stage-- > 0;) {
            back += line_[stage].forward + line_[stage].down;
            rest_[stage] = back;
        }
    }

    Ns bound() {
        const LineStage& first = line_[0];
        const double of_all = microbatches_;
        const double held = of_all / static_cast<double>(first.most_held) * static_cast<double>(rest_[0]);
        const double kept =
            of_all / static_cast<double>(first.most) * static_cast<double>(rest_[0] - first.hold + first.input);
        if (std::max(held, kept) < kLeastShare * static_cast<double>(found_))
            return 0;
        std::vector<State> states(1);
        states[0].inputs.assign(stages_ * static_cast<std::size_t>(window_), kLongAgo);
        states[0].forwards.assign(stages_, kLongAgo);
        states[0].passed.assign(stages_, -1 - window_);
        for (newest_ = 0; newest_ < microbatches_; ++newest_) {
            const double before = computed_;
            next_.clear();
            for (const State& state : states)
                add_choices(state, 0);
            if (computed_ > kMostComputed)
                return 0;
            if (next_.empty())
                return least_;
            const double each = (computed_ - before) / static_cast<double>(states.size());
            const double left = (kMostComputed - computed_) / std::max(1, microbatches_ - 1 - newest_);
            merge_beyond(static_cast<std::size_t>(std::clamp(left / each, 1.0, kMostStates)));
            states.swap(next_);
        }
        for (const State& state : states)
            least_ = std::min(least_, state.least);
        return least_;
    }

private:
    // Returns the time of the k-th I and W of a stage.
    Ns hold(std::size_t stage, int k) const { return line_[stage].hold + (k > 0 ? line_[stage].added : 0); }
    std::size_t row_of(int microbatch) const {
        return static_cast<std::size_t>(microbatch - newest_ + window_) * stages_;
    }

    // Returns the least time to the end if I of a micro-batch starts at a time on the first stage. The micro-batches
    // after it for which there is no room at once go forward and back sequentially.
    Ns least_end(int microbatch, Ns start) const {
        const LineStage& first = line_[0];
        const int others = microbatches_ - 1 - microbatch;
        const Ns end = start + hold(0, microbatch);
        if (others == 0)
            return end;
        const Ns held = end + others / first.most_held * (rest_[0] + first.added);
        const Ns kept = start + first.hold + others / first.most * (rest_[0] - first.hold + first.input);
        return std::max(held, kept);
    }

    // Chooses for each stage from this one on which I run before F of the newest micro-batch.
    void add_choices(const State& state, std::size_t stage) {
        if (++computed_ > kMostComputed)
            return;
        if (stage == stages_) {
            add(state);
            return;
        }
        const LineStage& own = line_[stage];
        Ns start = stage == 0 ? 0 : start_[stage - 1] + line_[stage - 1].forward + line_[stage - 1].down;
        start = std::max(start, state.forwards[stage]);
        if (own.most_held <= window_ && newest_ >= own.most_held) {
            const auto oldest = static_cast<int>(newest_ - own.most_held);
            start = std::max(start, state.inputs[row_of(oldest) + stage] + hold(stage, oldest));
        }
        int passed = std::max(newest_ - window_, state.passed[stage]);
        passed = std::max(passed, static_cast<int>(newest_ - std::min<std::int64_t>(own.most, window_)));
        if (stage > 0)
            passed = std::max(passed, passed_[stage - 1]);
        for (; passed < newest_; ++passed) {
            if (passed >= 0)
                start = std::max(start, state.inputs[row_of(passed) + stage] + own.input);
            if (least_end(newest_, start + rest_[stage] - line_[0].hold) >= found_)
                return;
            start_[stage] = start;
            passed_[stage] = passed;
            add_choices(state, stage + 1);
        }
    }

    // Adds the state after the choices.
    void add(const State& state) {
        State after;
        after.forwards.resize(stages_);
        for (std::size_t stage = 0; stage < stages_; ++stage)
            after.forwards[stage] = start_[stage] + line_[stage].forward;
        after.passed = passed_;
        after.inputs.resize(state.inputs.size());
        after.least = state.least;
        const Ns* before = state.inputs.data();  // of the micro-batch before
        for (int microbatch = newest_ - window_ + 1; microbatch <= newest_; ++microbatch) {
            Ns* const inputs = &after.inputs[row_of(microbatch) - stages_];
            for (std::size_t stage = stages_; stage-- > 0;) {
                const LineStage& own = line_[stage];
                Ns start = kLongAgo;
                if (microbatch < newest_)
                    start = state.inputs[row_of(microbatch) + stage];
                else if (stage + 1 == stages_)
                    start = after.forwards[stage];
                if (microbatch >= 0) {
                    if (stage + 1 < stages_)
                        start = std::max(start, inputs[stage + 1] + line_[stage + 1].input + own.up);
                    start = std::max(start, before[stage] + own.input);
                    if (microbatch < newest_ && microbatch > passed_[stage])
                        start = std::max(start, after.forwards[stage]);
                }
                inputs[stage] = start;
            }
            if (microbatch >= 0)
                after.least = std::max(after.least, least_end(microbatch, inputs[0]));
            before = inputs;
        }
        computed_ += static_cast<double>(after.inputs.size());
        if (after.least < found_)
            next_.push_back(std::move(after));
    }

    // Returns whether what can follow `other` can follow `one` too, and sooner.
    static bool is_better(const State& one, const State& other) {
        const auto no_more = [](const auto& of_one, const auto& of_other) {
            return std::equal(of_one.begin(), of_one.end(), of_other.begin(), std::less_equal());
        };
        return no_more(one.inputs, other.inputs) && no_more(one.forwards, other.forwards) &&
               no_more(one.passed, other.passed);
    }

    // Leaves out states if a kept state is better. If more than `most` states remain, merges the states with the
    // longest steps into a single state.
    void merge_beyond(std::size_t most) {
        std::stable_sort(next_.begin(), next_.end(),
                         [](const State& one, const State& other) { return one.least < other.least; });
        std::vector<State> kept;
        for (State& state : next_) {
            if (std::any_of(kept.begin(), kept.end(), [&](const State& other) { return is_better(other, state); }))
                continue;
            if (kept.size() < most) {
                kept.push_back(std::move(state));
                continue;
            }
            State& merged = kept.back();
            const auto take_least = [](auto& into, const auto& from) {
                std::transform(into.begin(), into.end(), from.begin(), into.begin(),
                               [](auto one, auto other) { return std::min(one, other); });
            };
            take_least(merged.inputs, state.inputs);
            take_least(merged.forwards, state.forwards);
            take_least(merged.passed, state.passed);
        }
        next_ = std::move(kept);
    }

    const std::vector<LineStage> line_;
    const std::size_t stages_;
    const int microbatches_, window_;  // window: the most micro-batches that are under way with the newest
    const Ns found_;
    Ns least_;
    std::vector<Ns> rest_;  // by stage: from the start of F to the end of W on the first stage
    int newest_ = 0;
    std::vector<Ns> start_;    // by stage: of F of the newest, by the choices so far
    std::vector<int> passed_;  // the choices so far
    std::vector<State> next_;
    double computed_ = 0;
};

}  // namespace

Ns least_time_by_crossings(const OrderModel& model, Ns found) {
    std::vector<LineStage> line = line_of(model);
    return line.size() < 2 ? 0 : Crossings(model, std::move(line), found).bound();
}

}  // namespace pw
