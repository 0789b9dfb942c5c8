// Calibration: it runs the whole model as one stage on one device and times every kernel call in its place, so that
// caches are as warm or cold as in a real pass.
#include "exec/engine/mailbox.h"
#include "exec/engine/pin.h"
#include "exec/execute.h"
#include "exec/system/threads.h"
#include "exec/training/stop_watch.h"
#include "exec/yardstick.h"
#include "job/build.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>
#include <optional>

namespace pw {

namespace {

// Mini-batches are timed alone and beside computing neighbours in turns, so that both find the machine as fast.
constexpr int kTurns = 4, kLeastInTurn = 2, kMostInTurn = 10;
constexpr Ns kLongestTurn = 1'250'000'000;
constexpr int kMicroBatches = 3;  // in flight, so that activations are not in the cache by accident
constexpr int kOfNeighbours = 1;  // in flight: each holds the whole model, and no more activations than it must

bool is_host(const Kernels& kernels) { return dynamic_cast<const HostKernels*>(&kernels) != nullptr; }

StageSplit whole(const Model& model) { return split_at(model.layers, {}); }

// One stage with memory for some micro-batches in flight, and a loop over its passes.
class Bench {
public:
    Bench(const Config& config, const Model& model, const Dataset& data, const Kernels& kernels, int samples,
          int in_flight)
        : data_(data),
          kernels_(kernels),
          samples_(samples),
          in_flight_(in_flight),
          program_(model, whole(model), 0, kernels_, samples),
          watch_(kernels) {
        for (const int layer : program_.layers())
            bytes_.push_back(program_.bytes_of(layer));
        layout_ = layout_stage(model.layers, whole(model), 0, bytes_, kernels_.data_bytes(model.input, samples));
        program_.set_layout(layout_);
        program_.set_observer(&watch_);
        sizes_ = stage_bytes(layout_);
        const Bytes workspace = std::max(sizes_.forward_workspace, sizes_.backward_workspace);
        const Bytes per_microbatch = sizes_.data + sizes_.until_input + sizes_.until_weight;
        memory_ = kernels_.reserve(3 * sizes_.weights + sizes_.statistics + workspace + in_flight_ * per_microbatch,
                                   "the profile");
        lend_memory(workspace);
        lend_notes();
        program_.initialise(config.training.seed, weights_, places_[0].statistics);
        run_mini_batch(nullptr);
        measure_marks();
    }

    void run_mini_batch(PassTimes* times) {
        const double scale = 1.0 / (in_flight_ * samples_);
        std::vector<std::pair<Mark, Mark>> loads;
        for (int mb = 0; mb < in_flight_; ++mb) {
            const Mark start = kernels_.mark();
            kernels_.load_data(data_, {shown_ + mb * samples_, static_cast<std::size_t>(samples_)}, places_[mb].data);
            loads.emplace_back(start, kernels_.mark());
            watch_.begin_pass();
            program_.forward(places_[mb], true);
        }
        for (int mb = 0; mb < in_flight_; ++mb) {
            watch_.begin_pass();
            program_.backward(places_[mb], scale, {mb > 0, mb > 0}, true);
        }
        const Sgd still{0, 0, 0};  // the weights stay where they are
        watch_.begin_pass();
        program_.update(still, weights_, places_[0].gradients, momentum_, weights_, squares_);
        if (times)
            for (const auto& [start, end] : loads)
                times->add_data(watch_.time_between(start, end));
        watch_.collect(times);
        kernels_.finish();
    }

    void take_turn(PassTimes& times) {
        const Ns start = clock_now();
        core_clock_.start();
        for (int done = 0; done < kLeastInTurn || (done < kMostInTurn && clock_now() - start < kLongestTurn); ++done)
            run_mini_batch(&times);
        core_clock_.stop();
    }

    double cpu_share() const { return core_clock_.share(); }

    void store(const PassTimes& alone, const PassTimes* busy, Profile& profile) const {
        for (std::size_t k = 0; k < bytes_.size(); ++k) {
            const auto layer = static_cast<int>(k);
            const double share =
                static_cast<double>(bytes_[k].weights) / static_cast<double>(std::max<Bytes>(sizes_.weights, 1));
            profile.layers[k].times[samples_] = alone.times(layer);
            if (busy)
                profile.layers[k].busy[samples_] = busy->times(layer);
            profile.layers[k].bytes[samples_] = bytes_[k];
            profile.layers[k].update = alone.update(layer, share);
        }
        profile.data[samples_] = alone.data();
        profile.dispatch = watch_.cost_of_marks();  // a task is timed between two marks, too
        profile.data_bytes[samples_] = sizes_.data;
    }

private:
    std::byte* take(Bytes bytes) {
        std::byte* address = memory_->data() + used_;
        used_ += bytes;
        return address;
    }

    void lend_memory(Bytes workspace) {
        weights_ = take(sizes_.weights);
        momentum_ = take(sizes_.weights);
        Places common;
        common.weights = weights_;
        common.gradients = take(sizes_.weights);
        common.statistics = take(sizes_.statistics);
        common.workspace = take(workspace);
        for (int mb = 0; mb < in_flight_; ++mb) {
            places_.push_back(common);
            places_.back().data = take(sizes_.data);
            places_.back().until_input = take(sizes_.until_input);
            places_.back().until_weight = take(sizes_.until_weight);
        }
    }

    // The data set; samples, labels, the loss and the squares of the gradients.
    void lend_notes() {
        const std::size_t all = static_cast<std::size_t>(in_flight_) * static_cast<std::size_t>(samples_);
        const auto positions = static_cast<std::size_t>(data_.labels_per_sample());
        kernels_.take_data(data_);
        notes_ = kernels_.shared(static_cast<Bytes>(all * (sizeof(Sample) + positions * sizeof(int)) +
                                                    (1 + bytes_.size()) * sizeof(double)));
        auto* numbers = reinterpret_cast<double*>(notes_->data());
        squares_ = numbers + 1;
        shown_ = reinterpret_cast<Sample*>(squares_ + bytes_.size());
        int* labels = reinterpret_cast<int*>(shown_ + all);
        for (std::size_t k = 0; k < all; ++k) {
            shown_[k] = data_.sample(static_cast<std::int64_t>(k));
            data_.labels_at(shown_[k], {labels + k * positions, positions});
        }
        for (std::size_t mb = 0; mb < places_.size(); ++mb) {
            places_[mb].loss = numbers;
            places_[mb].first_sample = static_cast<std::int64_t>(mb) * samples_;
            const std::size_t count = static_cast<std::size_t>(samples_) * positions;
            places_[mb].labels = {labels + mb * count, count};
        }
    }

    // Of a device with a queue: what lies between two marks in a row, while it is as busy as between two layers. On the
    // host a mark only reads the clock.
    void measure_marks() {
        if (is_host(kernels_))
            return;
        constexpr int kPairs = 201;
        program_.set_observer(nullptr);
        program_.forward(places_[0], true);
        std::vector<std::pair<Mark, Mark>> pairs;
        for (int k = 0; k < kPairs; ++k) {
            const Mark start = kernels_.mark();
            pairs.emplace_back(start, kernels_.mark());
        }
        std::vector<Ns> times;
        for (const auto& [start, end] : pairs)
            times.push_back(kernels_.time_between(start, end));
        watch_.set_cost_of_marks(median_of(std::move(times)));
        kernels_.finish();
        program_.set_observer(&watch_);
    }

    const Dataset& data_;
    const Kernels& kernels_;
    const int samples_, in_flight_;
    StageProgram program_;
    StopWatch watch_;
    std::vector<LayerBytes> bytes_;
    StageLayout layout_;
    StageBytes sizes_;
    std::unique_ptr<Memory> memory_, notes_;
    Bytes used_ = 0;
    std::byte *weights_ = nullptr, *momentum_ = nullptr;
    double* squares_ = nullptr;
    Sample* shown_ = nullptr;  // [micro-batch][sample]
    std::vector<Places> places_;
    CoreClock core_clock_;
};

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16] = {};
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
    return text;
}

// Devices 1, 2, .. on threads of their own, which compute while they are told to.
class Neighbours {
public:
    // They have warmed up, and rest, when this returns.
    Neighbours(const Config& config, const Model& model, const Dataset& data, const CorePlan& cores, int samples)
        : count_(static_cast<int>(cores.cores.size()) - 1) {
        const auto neighbour = [&config, &model, &data, &cores, this, samples](int device) {
            const auto compute = [&] {
                pin_this_thread(cores.cores[device]);
                const std::shared_ptr<const Kernels> kernels = open_kernels(config, device, count_ + 1);
                Bench bench(config, model, data, *kernels, samples, kOfNeighbours);
                while (rest())
                    while (is_told(Told::Compute))
                        bench.run_mini_batch(nullptr);
            };
            failure_.guard(compute, [this] { tell(Told::End); });
        };
        const auto start_all = [&] {
            for (int device = 1; device <= count_; ++device)
                threads_.push_back(start_thread(fmt::format("device {}", device), [=] { neighbour(device); }));
        };
        failure_.guard(start_all, [] {});
        wait_until_resting(count_);
    }
    ~Neighbours() { end(); }
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

    void start() {
        tell(Told::Compute);
        wait_until_resting(0);
    }
    void stop() {
        tell(Told::Rest);
        wait_until_resting(count_);
    }

private:
    enum class Told { Rest, Compute, End };

    void tell(Told what) {
        const std::lock_guard lock(mutex_);
        told_ = what;
        changed_.notify_all();
    }
    bool is_told(Told what) {
        const std::lock_guard lock(mutex_);
        return told_ == what;
    }
    // Of a neighbour. Returns whether it is to compute, not to end.
    bool rest() {
        std::unique_lock lock(mutex_);
        ++resting_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return told_ != Told::Rest; });
        --resting_;
        changed_.notify_all();
        return told_ == Told::Compute;
    }
    void wait_until_resting(int count) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return resting_ == count || failure_.happened(); });
        }
        if (failure_.happened())
            end();
        failure_.rethrow();
    }
    void end() {
        tell(Told::End);
        for (Thread& thread : threads_)
            if (thread.joinable())
                thread.join();
    }

    const int count_;
    Mutex mutex_;
    Condition changed_;
    Told told_ = Told::Rest;
    int resting_ = 0;
    FirstFailure failure_;
    std::vector<Thread> threads_;
};

Profile described(const Config& config, const Model& model, const HandOver& hand_over, const Kernels& kernels) {
    Profile profile;
    profile.model = model.name;
    profile.backend = name_of(config.run.backend);
    profile.machine = kernels.machine();
    profile.date = today();
    profile.input = model.input;
    profile.classes = model.classes;
    profile.threads_per_device = config.run.threads_per_device;
    profile.precision = config.run.precision;
    profile.link = hand_over.link;
    profile.between_hosts = hand_over.between_hosts;
    profile.sums = hand_over.sums;
    profile.sent_copies = hand_over.sent_copies;
    for (std::size_t layer = 0; layer < boost::num_vertices(model.layers); ++layer)
        profile.layers.push_back({.name = model.layers[layer].name});
    return profile;
}

// The whole model on one device, through the engine, for about a second.
Job job_of_one_device(Config config, const Model& model, const Profile& profile, int samples) {
    constexpr int kInStep = 2, kMostSteps = 20;
    constexpr double kSecond = 1e9;
    const std::vector<Ns> layers = layer_times(profile, samples);
    const double step = kInStep * std::accumulate(layers.begin(), layers.end(), 1.0);
    config.cluster = {};
    config.cluster.devices.resize(1);
    config.pipeline = {};
    config.pipeline.schedule = "naive";
    config.pipeline.stages = 1;
    config.pipeline.micro_batches = kInStep;
    config.pipeline.micro_batch_size = samples;
    config.pipeline.mini_batch = std::int64_t{kInStep} * samples;
    config.transfer = {};
    config.sum_bucket = 0;
    config.mover_share = 0;
    config.training.shard_optimizer = false;
    config.training.learning_rate = 0;
    config.training.steps = static_cast<int>(std::clamp(kSecond / step, 2.0, double{kMostSteps}));
    config.run.transport = RunConfig::Transport::Threads;
    Notices ignored;
    return make_job(std::move(config), model, ignored);
}

// What the engine takes between two tasks of a device, when the second waits for nothing else.
Measured measure_dispatch(const Config& config, const Model& model, const Profile& profile, int samples) {
    const Trace trace = run(job_of_one_device(config, model, profile, samples), {}).trace;
    std::vector<Ns> gaps;
    const TraceEvent* before = nullptr;
    for (const TraceEvent& event : trace.events) {
        if (before && before->step == event.step && event.step > 0 && is_compute(event.task.op))
            gaps.push_back(event.start - before->end);
        before = &event;
    }
    return median_of(std::move(gaps));
}

Profile measure(const Config& config, const Model& model, const std::vector<int>& samples,
                const std::function<void(int, int)>& progress) {
    const int devices = std::max<int>(1, static_cast<int>(config.cluster.devices.size()));
    const CorePlan cores = plan_cores(devices, config.run.threads_per_device, numa_nodes(config, devices));
    const HandOver hand_over = measure_hand_over(config);  // its two devices need the cores of two
    pin_this_thread(cores.cores[0]);
    const std::shared_ptr<const Kernels> kernels = open_kernels(config, 0, devices);
    const Dataset data = open_dataset(config, model);
    Profile profile = described(config, model, hand_over, *kernels);
    Yardstick yardstick;
    const auto look_at_the_machine = [&] {
        if (is_host(*kernels))
            yardstick.times.push_back(yardstick_time(cores));
    };
    look_at_the_machine();
    for (std::size_t size = 0; size < samples.size(); ++size) {
        if (progress)
            progress(static_cast<int>(size), static_cast<int>(samples.size()));
        Bench bench(config, model, data, *kernels, samples[size], kMicroBatches);
        std::optional<Neighbours> neighbours;
        if (devices > 1 && !cores.shared && kernels->has_neighbours())
            neighbours.emplace(config, model, data, cores, samples[size]);
        PassTimes alone(profile.layers.size()), busy = alone;
        for (int turn = 0; turn < kTurns; ++turn) {
            bench.take_turn(alone);
            if (!neighbours)
                continue;
            neighbours->start();
            bench.take_turn(busy);
            neighbours->stop();
        }
        bench.store(alone, neighbours ? &busy : nullptr, profile);
        if (is_host(*kernels))
            profile.cpu_share = std::min(profile.cpu_share, std::round(1000 * bench.cpu_share()) / 1000);
        look_at_the_machine();
    }
    if (is_host(*kernels))
        profile.dispatch = measure_dispatch(config, model, profile, samples.front());
    profile.reference = {yardstick.median(), yardstick.spread()};
    profile.convolutions = kernels->convolutions();
    return profile;
}

}  // namespace

Profile measure_profile(const Config& config, const Model& model, const std::vector<int>& samples,
                        const std::function<void(int done, int all)>& progress) {
    Profile profile;
    FirstFailure failure;
    Thread device = start_thread("the profile", [&] {  // so that the caller keeps its cores
        failure.guard([&] { profile = measure(config, model, samples, progress); }, [] {});
    });
    device.join();
    failure.rethrow();
    return profile;
}

}  // namespace pw
