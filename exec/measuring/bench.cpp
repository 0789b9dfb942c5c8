#include "exec/measuring/bench.h"

#include "exec/engine/headroom.h"
#include "exec/training/optimizer.h"
#include "job/plan.h"
#include "workloads/clock.h"

#include <algorithm>
#include <optional>

namespace pw {

namespace {

constexpr int kLeastInTurn = 2, kMostInTurn = 10;  // mini-batches
constexpr Ns kLongestTurn = 1'250'000'000;

StageSplit whole(const Model& model) { return split_at(model.layers, {}); }

UpdateRule without_change(TrainingConfig training) {
    training.learning_rate = training.momentum = training.weight_decay = 0;
    return update_rule(training, 1);
}

}  // namespace

Bench::Bench(const Setup& setup, const Model& model, const Dataset& data, const Kernels& kernels, int samples,
             int in_flight)
    : data_(data),
      kernels_(kernels),
      samples_(samples),
      in_flight_(in_flight),
      states_(facts_of(setup.training.optimizer).states),
      no_change_(without_change(setup.training)),
      program_(model, whole(model), 0, kernels_, samples),
      stop_watch_(kernels, model.layers) {
    std::optional<Headroom> headroom;
    if (kernels_.on_host())
        headroom.emplace();
    for (const int layer : program_.layers())
        bytes_.push_back(program_.bytes_of(layer));
    layout_ = layout_stage(model.layers, whole(model), 0, bytes_, kernels_.data_bytes(model.input, samples));
    program_.set_layout(layout_);
    sizes_ = stage_bytes(layout_);
    memory_ = kernels_.reserve(memory_with(in_flight_), "the profile");
    place_memory();
    place_shared();
    program_.initialise(setup.training.seed, weights_, places_[0].statistics);
    headroom.reset();
    queue_mini_batch(true);  // libraries load their code and make plans
    kernels_.finish();
    const bool as_one = setup.run.graph != RunConfig::Graph::None && !schedule_of(setup).asynchronous();
    measure_marks(as_one);
    const auto repeated = [&](bool watched) {
        const auto queue = [this, watched] { queue_mini_batch(watched); };
        return as_one ? kernels_.as_one(queue) : std::make_unique<RepeatedCalls>(queue);
    };
    watched_ = repeated(true);
    if (!kernels_.on_host())
        unwatched_ = repeated(false);
}

Bytes Bench::workspace() const { return std::max(sizes_.forward_workspace, sizes_.backward_workspace); }

Bytes Bench::memory_with(int in_flight) const {
    const Bytes per_microbatch = sizes_.data + sizes_.until_input + sizes_.until_weight + sizes_.first_until_again +
                                 sizes_.first_until_input + sizes_.first_until_weight;
    return (2 + states_) * sizes_.weights + sizes_.statistics + workspace() + in_flight * per_microbatch;
}

void Bench::queue_mini_batch(bool watched) {
    const double scale = 1.0 / (in_flight_ * samples_);
    program_.set_observer(watched ? &stop_watch_ : nullptr);
    (watched ? loads_ : passes_).clear();
    if (watched)
        stop_watch_.begin();
    const auto run_pass = [&](const auto& pass) {
        const Mark start = watched ? 0 : kernels_.mark();
        if (watched)
            stop_watch_.begin_pass();
        pass();
        if (!watched)
            passes_.emplace_back(start, kernels_.mark());
    };
    for (int mb = 0; mb < in_flight_; ++mb) {
        const Mark start = kernels_.mark();
        kernels_.load_data(data_, {batch_samples_ + mb * samples_, static_cast<std::size_t>(samples_)},
                           places_[mb].data);
        if (watched)
            loads_.emplace_back(start, kernels_.mark());
        run_pass([&] { program_.forward(places_[mb], true); });
    }
    for (int mb = 0; mb < in_flight_; ++mb)
        run_pass([&] { program_.backward(places_[mb], scale, {mb > 0, mb > 0}, true); });
    run_pass([&] {
        program_.update(no_change_, weights_, places_[0].gradients, {optimizer_, sizes_.weights}, weights_, squares_);
    });
}

void Bench::run_mini_batch(PassTimes* times) {
    (times || !unwatched_ ? watched_ : unwatched_)->run();
    kernels_.finish();
    if (!times)
        return;
    for (const auto& [start, end] : loads_)
        times->add_data(stop_watch_.time_between(start, end));
    const StopWatch::Calls calls = stop_watch_.collect(*times);
    if (!unwatched_)
        return;
    unwatched_->run();
    kernels_.finish();
    Ns whole = 0;
    for (const auto& [start, end] : passes_)
        whole += stop_watch_.time_between(start, end);
    times->add_excess((calls.time - whole) / std::max(1, calls.number));
}

void Bench::take_turn(PassTimes& times) {
    const Ns start = clock_now();
    core_clock_.start();
    for (int done = 0; done < kLeastInTurn || (done < kMostInTurn && clock_now() - start < kLongestTurn); ++done)
        run_mini_batch(&times);
    core_clock_.stop();
}

void Bench::store(const PassTimes& alone, const PassTimes* busy, Profile& profile) const {
    const std::vector<LayerTimes> times = alone.all_times(),
                                  while_busy = busy ? busy->all_times() : std::vector<LayerTimes>();
    for (std::size_t k = 0; k < bytes_.size(); ++k) {
        const double share =
            static_cast<double>(bytes_[k].weights) / static_cast<double>(std::max<Bytes>(sizes_.weights, 1));
        profile.layers[k].times[samples_] = times[k];
        if (busy)
            profile.layers[k].busy[samples_] = while_busy[k];
        profile.layers[k].bytes[samples_] = bytes_[k];
        profile.layers[k].update = alone.update(static_cast<int>(k), share);
    }
    profile.data[samples_] = alone.data();
    profile.dispatch = dispatch_;  // a run times a task between two marks, too
    profile.data_bytes[samples_] = sizes_.data;
}

std::byte* Bench::take(Bytes bytes) {
    std::byte* address = memory_->data() + used_;
    used_ += bytes;
    return address;
}

void Bench::place_memory() {
    weights_ = take(sizes_.weights);
    optimizer_ = take(states_ * sizes_.weights);
    Places common;
    common.weights = weights_;
    common.gradients = take(sizes_.weights);
    common.statistics = take(sizes_.statistics);
    common.workspace = take(workspace());
    for (int mb = 0; mb < in_flight_; ++mb) {
        places_.push_back(common);
        places_.back().data = take(sizes_.data);
        places_.back().until_input = take(sizes_.until_input);
        places_.back().until_weight = take(sizes_.until_weight);
        places_.back().first_until_again = take(sizes_.first_until_again);
        places_.back().first_until_input = take(sizes_.first_until_input);
        places_.back().first_until_weight = take(sizes_.first_until_weight);
    }
}

// Places the samples, labels, the loss and the squares of the gradients in shared memory.
void Bench::place_shared() {
    const std::size_t all = static_cast<std::size_t>(in_flight_) * static_cast<std::size_t>(samples_);
    const auto positions = static_cast<std::size_t>(data_.labels_per_sample());
    kernels_.take_data(data_);
    shared_memory_ = kernels_.shared(
        static_cast<Bytes>(all * (sizeof(Sample) + positions * sizeof(int)) + (1 + bytes_.size()) * sizeof(double)));
    auto* numbers = reinterpret_cast<double*>(shared_memory_->data());
    squares_ = numbers + 1;
    batch_samples_ = reinterpret_cast<Sample*>(squares_ + bytes_.size());
    int* labels = reinterpret_cast<int*>(batch_samples_ + all);
    for (std::size_t k = 0; k < all; ++k) {
        batch_samples_[k] = data_.sample(static_cast<std::int64_t>(k));
        data_.labels_at(batch_samples_[k], {labels + k * positions, positions});
    }
    for (std::size_t mb = 0; mb < places_.size(); ++mb) {
        places_[mb].loss = numbers;
        places_[mb].first_sample = static_cast<std::int64_t>(mb) * samples_;
        const std::size_t count = static_cast<std::size_t>(samples_) * positions;
        places_[mb].labels = {labels + mb * count, count};
    }
}

// The device is then as busy as between two layers.
void Bench::measure_marks(bool as_one) {
    if (kernels_.on_host())
        return;
    program_.set_observer(nullptr);
    program_.forward(places_[0], true);
    dispatch_ = cost_of_marks(kernels_);
    program_.forward(places_[0], true);
    stop_watch_.set_cost_of_marks(as_one ? cost_of_marks(kernels_, true) : dispatch_);
    program_.set_observer(&stop_watch_);
}

}  // namespace pw
