#include "search/plans/plan_bound.h"

#include "workloads/bounded.h"

#include <algorithm>
#include <limits>

namespace pw {

namespace {

// Returns each holder's part of a stage's update, or of its optimizer's states.
std::int64_t shard_of(std::int64_t whole, int shards) { return (whole + shards - 1) / shards; }

// Returns a lower bound on sizes that were rounded up to this length.
Bytes least_bytes(Bytes bytes, double length) {
    return length == 1 ? bytes : static_cast<Bytes>(static_cast<double>(bytes) * length * kNoMore);
}

}  // namespace

// With more holders, fewer micro-batches add their gradients, and more holders update. Both are linear in the number of
// holders, except with ZeRO, where the holders share the updates, and with ZeRO-2 the additions.
Ns time_of_shared_work(const StepWork& work, double lengths, double speeds, double rounded) {
    const auto once_with = [&](int holders) {
        const double added = std::max(0, work.micro_batches - holders), shards = work.zero >= 2 ? holders : 1;
        return static_cast<double>(work.accumulate) * added / shards +
               static_cast<double>(work.update) * (work.zero > 0 ? 1 : holders);
    };
    const double once = std::min(once_with(1), once_with(std::min(work.holders, work.micro_batches)));
    const double time = (static_cast<double>(work.passes) * lengths + once) / speeds - rounded / 2;
    return std::max<Ns>(0, static_cast<Ns>(time));
}

Ns PlanBound::Scale::operator()(Ns time) const {
    return (speed == 1 ? time : bounded(static_cast<double>(time) / speed)) + dispatch;
}

// Every length's time is rounded by half a nanosecond, and that divided by a speed once more.
Ns PlanBound::passes(int count, const Length& length, Ns time, const Stage& stage) const {
    if (lengths_.empty())
        return count * Scale{stage.speed, dispatch_}(time);
    const double rounded = count * (0.5 / stage.speed + 1);
    const double all = static_cast<double>(time) * length.least() * kNoMore / stage.speed - rounded;
    return count * dispatch_ + std::max<Ns>(0, static_cast<Ns>(all));
}

// A pair takes the longer task and a share of the shorter one, rounded up, and one dispatch: at least B and that share
// of F.
Ns PlanBound::forwards(const PathCounts& counts, Ns time, const Stage& stage) const {
    const Length shown = {counts.forward.plain - counts.hidden_length.plain,
                          counts.forward.attention - counts.hidden_length.attention};
    const Ns alone = passes(counts.forwards - counts.hidden, shown, time, stage);
    if (counts.hidden == 0)
        return alone;
    const Ns hidden = passes(counts.hidden, counts.hidden_length, time, stage) - counts.hidden * dispatch_;
    return alone + exposed(hidden);
}

// What B takes longer than `backward`, without a dispatch of its own.
Ns PlanBound::rests(int count, const Length& length, Ns time, const Stage& stage) const {
    if (lengths_.empty() && stage.speed == 1)
        return count * time;
    const double all = static_cast<double>(time) * (lengths_.empty() ? count : length.least()) * kNoMore / stage.speed;
    return std::max<Ns>(0, static_cast<Ns>(all - count * (0.5 / stage.speed + 1)));
}

// The times of the paths from F over the later stages to the backward.
Ns PlanBound::round_trips(const PathCounts& counts, Ns time) const {
    if (lengths_.empty())
        return counts.jumps * path(time);
    const double rounded = counts.jumps * 2.0 * static_cast<double>(stages_.size()) * (0.5 / best_.speed + 1);
    return std::max<Ns>(0, static_cast<Ns>(static_cast<double>(time) * counts.jump * kNoMore / best_.speed - rounded));
}

Ns PlanBound::path(Ns time, double length, double speed) const {
    if (speed == 1 && length == 1)
        return time;
    // every stage on the path, there and back, may have been rounded down by half a nanosecond, and for its length
    const double each = length == 1 ? 1 : 2 + 1 / speed;
    const double scaled = static_cast<double>(time) * (length == 1 ? 1 : length * kNoMore) / speed;
    return std::max<Ns>(0, static_cast<Ns>(scaled) - static_cast<Ns>(each * static_cast<double>(stages_.size())) - 1);
}

Ns PlanBound::time_of(const PathCounts& counts, const Piece& piece, const Stage& stage, Ns mid) const {
    if (runs_forwards_only(piece))
        return forwards(counts, piece.forward, stage);
    const Scale scale{stage.speed, dispatch_};
    const bool split = stage.all.weights > 0;
    const int makers = any_order_ ? counts.wholes : split ? counts.weights : counts.backwards;
    const int adding = std::max(0, makers - 1);  // to earlier gradients
    const Ns own = split ? piece.weight : piece.backward, accumulate = accumulation(piece, stage.shards);
    const Ns more = lengths_.empty() && !any_order_ ? scale(own + accumulate) - scale(own)
                                                    : std::max<Ns>(0, scale(accumulate) - dispatch_ - 2);
    return forwards(counts, piece.forward, stage) + passes(counts.backwards, counts.backward, piece.backward, stage) +
           passes(counts.weights, counts.weight, piece.weight, stage) +
           rests(counts.wholes, counts.whole, piece.rest, stage) +
           passes(counts.recomputes, counts.recompute, piece.recompute, stage) + (asynchronous_ ? 0 : adding * more) +
           round_trips(counts, mid);
}

Ns PlanBound::accumulation(const Piece& piece, int shards) const {
    return zero_ >= 2 ? piece.accumulate / shards : piece.accumulate;
}

Ns PlanBound::between_updates(const Piece& piece) const {
    Ns least = std::numeric_limits<Ns>::max();
    for (const PathCounts& counts : between_updates_)
        least = std::min(least, time_of(counts, piece, stages_.back(), 0));
    return least == std::numeric_limits<Ns>::max() ? 0 : least;
}

Ns PlanBound::time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    if (asynchronous_)
        return number + 1 == static_cast<int>(stages_.size()) ? between_updates(piece) : 0;
    if (runs_forwards_only(piece))  // the micro-batch of its last F goes on
        return head(number, piece) + time_of(stage.all, piece, stage, 0) + path(piece.mid);
    const Ns update = update_time(number, piece);
    const Ns first = head(number, piece), after = std::max(tail(number, piece), update);
    Ns most = whole_time(number, piece);
    for (const PathCounts& counts : stage.paths)
        most = std::max(most, time_of(counts, piece, stage, piece.mid) + after);
    return first + most;
}

Ns PlanBound::until_last_backward(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return stage.paths.empty() || runs_forwards_only(piece) ? 0 : time_of(stage.paths.front(), piece, stage, 0);
}

Ns PlanBound::update_time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return stage.updates && !runs_forwards_only(piece)
               ? Scale{stage.speed, dispatch_}(shard_of(piece.update, stage.shards))
               : 0;
}

Ns PlanBound::whole_time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return time_of(stage.all, piece, stage, 0) + update_time(number, piece);
}

// A time that is rounded in every part may be shorter than the rounded whole.
Ns PlanBound::rounding_of(const Stage& stage, int parts) const {
    const PathCounts& all = stage.all;
    const Ns tasks = all.forwards + all.backwards + all.weights + all.recomputes + 1;
    if (!lengths_.empty())
        return static_cast<Ns>((parts + 1) * static_cast<double>(tasks) * (0.5 / stage.speed + 1)) + 1;
    return stage.speed == 1 ? 0 : (parts + 1) * tasks / 2 + 1;
}

// Which weight gradients come before the last backward depends on the stage: none are counted. Forwards of a part
// without backwards may follow the last backward of the device.
Ns PlanBound::until_last_backwards_in_parts(int number, const Piece& piece, int parts) const {
    if (piece.with_backward < piece.layers)
        return 0;
    const Stage& stage = stages_[number];
    const PathCounts& all = stage.all;
    return forwards(all, piece.forward, stage) + passes(all.backwards, all.backward, piece.backward, stage) +
           passes(all.recomputes, all.recompute, piece.recompute, stage) - rounding_of(stage, parts);
}

Ns PlanBound::whole_time_in_parts(int number, const Piece& piece, int parts) const {
    return whole_time(number, piece) - rounding_of(stages_[number], parts);
}

// Bounds the time of the holder that serves the most micro-batches, as if it were as fast as the fastest device and had
// the most memory.
Ns PlanBound::time_on(int replicas, const Piece& piece, const BestDevice& best) const {
    const Stage& any = stages_.front();
    const Ns served = (micro_batches_ + replicas - 1) / replicas;
    const bool trains = any.all.backwards > 0, split = any.all.weights > 0;
    const int shards = zero_ > 0 ? replicas : 1;
    const Bytes held = trains ? least_bytes(piece.activations, longest_bytes_) : 0;
    const HeldState state = held_of_weights(piece.weights, shard_of(piece.weights, shards), kept_, zero_);
    const Bytes to_update = any.updates ? state.gradients + state.states : 0;
    if (state.weights + frozen_part(piece, shards) + to_update + piece.statistics + held > best.memory)
        return std::numeric_limits<Ns>::max();
    const Ns update = any.updates ? shard_of(piece.update, shards) : 0;
    if (!lengths_.empty())
        return time_on_average(replicas, piece, best, update);
    const Ns passes = served * (exposed(piece.forward) + (trains ? piece.backward : 0));
    const Ns adding = trains ? (served - 1) * accumulation(piece, shards) : 0;
    const Ns whole = passes + adding + (split ? served * piece.weight : 0) + update;
    const Ns time = piece.head + std::max(whole, passes + std::max(trains ? piece.tail : 0, update));
    const Ns rounding = 3 * served + static_cast<Ns>(stages_.size()) + 2;
    return best.one_speed ? time : std::max<Ns>(0, static_cast<Ns>(static_cast<double>(time) / best.speed) - rounding);
}

// Some holder takes as long as all do on average, which counts all lengths.
Ns PlanBound::time_on_average(int replicas, const Piece& piece, const BestDevice& best, Ns update) const {
    const Stage& any = stages_.front();
    const bool trains = any.all.backwards > 0, split = any.all.weights > 0;
    const double served = least_ / replicas, tasks = 3.0 * micro_batches_ / replicas;
    const double passes = served * static_cast<double>(exposed(piece.forward) + (trains ? piece.backward : 0));
    const double adding = trains ? std::max(0.0, static_cast<double>(micro_batches_) / replicas - 1) *
                                       static_cast<double>(accumulation(piece, zero_ > 0 ? replicas : 1))
                                 : 0;
    const double whole = passes + adding + (split ? served * static_cast<double>(piece.weight) : 0);
    const auto least = [&](double time) {
        return std::max<Ns>(0, static_cast<Ns>(time * kNoMore / best.speed - tasks * (0.5 / best.speed + 1) - 1));
    };
    const Ns updated =
        best.one_speed ? update : std::max<Ns>(0, static_cast<Ns>(static_cast<double>(update) / best.speed) - 1);
    return path(piece.head, shortest_, best.speed) +
           std::max(least(whole) + updated,
                    least(passes) + std::max(trains ? path(piece.tail, shortest_, best.speed) : 0, updated));
}

Bytes PlanBound::memory(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    const HeldState state = held_of_weights(piece.weights, shard_of(piece.weights, stage.shards), kept_, zero_);
    const Bytes updated = stage.updates ? state.gradients + state.states : 0;
    const Bytes activations = lengths_.empty() ? static_cast<Bytes>(stage.held) * piece.activations
                                               : least_bytes(piece.activations, stage.held);
    return stage.versions * state.weights + frozen_part(piece, stage.shards) + updated + piece.statistics + activations;
}

Bytes PlanBound::frozen_part(const Piece& piece, int shards) const {
    return zero_ >= 3 ? shard_of(piece.frozen, shards) : piece.frozen;
}

bool PlanBound::has_speed_of_stages(int device, const Shape& shape) const {
    return std::ranges::all_of(shape.stages_of(device), [&](int stage) {
        return stages_[stage].speed == speeds_[static_cast<std::size_t>(device)];
    });
}

StepWork PlanBound::work_of(const Piece& model) const {
    if (asynchronous_)
        return {};
    const bool updates = std::ranges::any_of(stages_, &Stage::updates);
    return {.passes = passes_of(model),
            .accumulate = trains() ? model.accumulate : 0,
            .update = updates ? model.update : 0,
            .micro_batches = micro_batches_,
            .holders = most_holders_,
            .zero = zero_};
}

Ns PlanBound::passes_of(const Piece& piece) const {
    const PathCounts& counts = stages_.front().all;  // every stage has the same kinds of tasks
    return exposed(piece.forward) + (counts.backwards > 0 ? piece.backward : 0) +
           (mixed_               ? piece.rest
            : counts.weights > 0 ? piece.weight
                                 : 0);
}

Ns PlanBound::of_work(const Pieces& pieces) const {
    return time_of_shared_work(work_of(pieces.model()), least_, all_speeds_, rounded_);
}

Ns PlanBound::of_path(const Pieces& pieces) const {
    if (asynchronous_)
        return 0;
    return path(stages_.front().all.backwards > 0 ? pieces.longest_round() : pieces.longest_forward(), longest_);
}

}  // namespace pw
