// Calibration: it runs the whole model as one stage on one device and times every kernel call in its place, so that
// caches are as warm or cold as in a real pass.
#include "exec/engine/mailbox.h"
#include "exec/engine/pin.h"
#include "exec/execute.h"
#include "exec/system/threads.h"
#include "exec/training/stage_program.h"
#include "exec/yardstick.h"
#include "job/build.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>

namespace pw {

namespace {

constexpr int kLeastRepeats = 5, kMostRepeats = 40;
constexpr Ns kEnough = 5'000'000'000;  // per micro-batch size
constexpr int kMicroBatches = 3;       // in flight, so that activations are not in the cache by accident

Measured summary(std::vector<Ns> values) {
    if (values.empty())
        return {};
    std::sort(values.begin(), values.end());
    const auto at = [&](double quantile) {
        return values[static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1) + 0.5)];
    };
    return {at(0.5), at(0.9) - at(0.1)};
}

bool is_host(const Kernels& kernels) { return dynamic_cast<const HostKernels*>(&kernels) != nullptr; }

// Times by layer and pass; weight gradients that are added apart from those that are written.
class StopWatch : public PassObserver {
public:
    StopWatch(const Kernels& kernels, std::size_t layers) : kernels_(kernels), layers_(layers) {}

    void before(int, Pass, const LayerArgs&) override { start_ = kernels_.mark(); }
    void after(int layer, Pass pass, const LayerArgs& args) override {
        calls_.push_back({layer, pass, args.accumulate, start_, kernels_.mark()});
    }

    // After a mini-batch: reads what the marks say.
    void collect() {
        for (const Call& call : calls_)
            add(call, time_between(call.start, call.end));
        calls_.clear();
    }
    // Without what the marks take themselves.
    Ns time_between(Mark from, Mark to) const {
        return std::max<Ns>(0, kernels_.time_between(from, to) - cost_of_marks_.median);
    }
    void set_cost_of_marks(Measured cost) { cost_of_marks_ = cost; }
    Measured cost_of_marks() const { return cost_of_marks_; }
    void forget() {
        layers_.assign(layers_.size(), {});
        whole_update_.clear();
    }

    LayerTimes times(int layer) const {
        const Row& row = layers_[layer];
        LayerTimes times;
        times.forward = summary(row.forward);
        times.backward_input = summary(row.input);
        const std::size_t passes = row.input.size() + row.input_added.size();
        if (passes > 0)  // a layer may have several sums in a pass
            times.backward_input.median +=
                summary(row.sum).median * static_cast<Ns>(row.sum.size()) / static_cast<Ns>(passes);
        times.backward_weight = summary(row.weight);
        times.backward = {times.backward_input.median + times.backward_weight.median,
                          times.backward_input.spread + times.backward_weight.spread};
        const Ns more = summary(row.input_added).median - summary(row.input).median + summary(row.weight_added).median -
                        times.backward_weight.median;
        times.accumulate.median = std::max<Ns>(0, more);
        times.recompute = times.forward;
        return times;
    }
    // Of all layers in one call, a layer has the `share` of its parameters.
    Measured update(int layer, double share) const {
        if (whole_update_.empty())
            return summary(layers_[layer].update);
        const Measured whole = summary(whole_update_);
        const auto part = [&](Ns time) { return std::llround(share * static_cast<double>(time)); };
        return {part(whole.median), part(whole.spread)};
    }

private:
    struct Row {
        std::vector<Ns> forward, input, input_added, weight, weight_added, sum, update;
    };
    struct Call {
        int layer;
        Pass pass;
        bool accumulate;
        Mark start, end;
    };

    void add(const Call& call, Ns time) {
        if (call.layer == kAllLayers) {
            whole_update_.push_back(time);
            return;
        }
        Row& row = layers_[call.layer];
        switch (call.pass) {
            case Pass::Forward:
                row.forward.push_back(time);
                break;
            case Pass::Input:
                (call.accumulate ? row.input_added : row.input).push_back(time);
                break;
            case Pass::Weight:
                (call.accumulate ? row.weight_added : row.weight).push_back(time);
                break;
            case Pass::Sum:
                row.sum.push_back(time);
                break;
            case Pass::Update:
                row.update.push_back(time);
                break;
        }
    }

    const Kernels& kernels_;
    std::vector<Row> layers_;
    std::vector<Ns> whole_update_;
    std::vector<Call> calls_;
    Measured cost_of_marks_;
    Mark start_ = 0;
};

StageSplit whole(const Model& model) { return split_at(model.layers, {}); }

// One stage with memory for a few micro-batches, and a loop over its passes.
class Bench {
public:
    Bench(const Config& config, const Model& model, const Dataset& data, const Kernels& kernels, int samples)
        : data_(data),
          kernels_(kernels),
          samples_(samples),
          program_(model, whole(model), 0, kernels_, samples),
          watch_(kernels, boost::num_vertices(model.layers)) {
        for (const int layer : program_.layers())
            bytes_.push_back(program_.bytes_of(layer));
        layout_ = layout_stage(model.layers, whole(model), 0, bytes_, kernels_.data_bytes(model.input, samples));
        program_.set_layout(layout_);
        program_.set_observer(&watch_);
        sizes_ = stage_bytes(layout_);
        const Bytes workspace = std::max(sizes_.forward_workspace, sizes_.backward_workspace);
        const Bytes per_microbatch = sizes_.data + sizes_.until_input + sizes_.until_weight;
        memory_ = kernels_.reserve(3 * sizes_.weights + sizes_.statistics + workspace + kMicroBatches * per_microbatch,
                                   "the profile");
        lend_memory(workspace);
        lend_notes();
        program_.initialise(config.training.seed, weights_, places_[0].statistics);
    }

    // What slows others down while they are measured.
    void run_until(const std::atomic<bool>& stop, std::atomic<int>& warm) {
        one_mini_batch();
        ++warm;
        while (!stop)
            one_mini_batch();
    }

    void run() {
        one_mini_batch();
        measure_marks();
        watch_.forget();  // the first was the warm-up
        data_times_.clear();
        const Ns start = clock_now();
        core_clock_.start();
        for (int repeat = 0; repeat < kMostRepeats; ++repeat) {
            one_mini_batch();
            if (repeat + 1 >= kLeastRepeats && clock_now() - start > kEnough)
                break;
        }
        core_clock_.stop();
    }

    double cpu_share() const { return core_clock_.share(); }

    void store_busy(Profile& profile) const {
        for (std::size_t layer = 0; layer < bytes_.size(); ++layer)
            profile.layers[layer].busy[samples_] = watch_.times(static_cast<int>(layer));
    }

    void store(Profile& profile) const {
        for (std::size_t layer = 0; layer < bytes_.size(); ++layer) {
            profile.layers[layer].times[samples_] = watch_.times(static_cast<int>(layer));
            profile.layers[layer].bytes[samples_] = bytes_[layer];
            profile.layers[layer].update =
                watch_.update(static_cast<int>(layer), static_cast<double>(bytes_[layer].weights) /
                                                           static_cast<double>(std::max<Bytes>(sizes_.weights, 1)));
        }
        profile.data[samples_] = summary(data_times_);
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
        for (int mb = 0; mb < kMicroBatches; ++mb) {
            places_.push_back(common);
            places_.back().data = take(sizes_.data);
            places_.back().until_input = take(sizes_.until_input);
            places_.back().until_weight = take(sizes_.until_weight);
        }
    }

    // The data set; samples, labels, the loss and the squares of the gradients.
    void lend_notes() {
        const std::size_t all = static_cast<std::size_t>(kMicroBatches) * static_cast<std::size_t>(samples_);
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
        watch_.set_cost_of_marks(summary(times));
        kernels_.finish();
        program_.set_observer(&watch_);
    }

    void one_mini_batch() {
        const double scale = 1.0 / (kMicroBatches * samples_);
        std::vector<std::pair<Mark, Mark>> loads;
        for (int mb = 0; mb < kMicroBatches; ++mb) {
            const Mark start = kernels_.mark();
            kernels_.load_data(data_, {shown_ + mb * samples_, static_cast<std::size_t>(samples_)}, places_[mb].data);
            loads.emplace_back(start, kernels_.mark());
            program_.forward(places_[mb], true);
        }
        for (int mb = 0; mb < kMicroBatches; ++mb)
            program_.backward(places_[mb], scale, {mb > 0, mb > 0}, true);
        const Sgd still{0, 0, 0};  // the weights stay where they are
        program_.update(still, weights_, places_[0].gradients, momentum_, weights_, squares_);
        for (const auto& [start, end] : loads)
            data_times_.push_back(watch_.time_between(start, end));
        watch_.collect();
        kernels_.finish();
    }

    const Dataset& data_;
    const Kernels& kernels_;
    const int samples_;
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
    std::vector<Ns> data_times_;
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

// Devices 1, 2, .. computing on threads of their own until this goes.
class Neighbours {
public:
    Neighbours(const Config& config, const Model& model, const Dataset& data, const CorePlan& cores, int samples) {
        const int devices = static_cast<int>(cores.cores.size());
        const auto neighbour = [&, this, devices, samples](int device) {
            const auto compute = [&] {
                pin_this_thread(cores.cores[device]);
                const std::shared_ptr<const Kernels> kernels = open_kernels(config, device, devices);
                Bench(config, model, data, *kernels, samples).run_until(stop_, warm_);
            };
            failure_.guard(compute, [&] { ++warm_; });
        };
        const auto start_all = [&] {
            for (int device = 1; device < devices; ++device)
                threads_.push_back(start_thread(fmt::format("device {}", device), [=] { neighbour(device); }));
        };
        failure_.guard(start_all, [] {});
        while (!failure_.happened() && warm_ + 1 < devices)
            let_others_run();
        if (failure_.happened())
            end();
        failure_.rethrow();
    }
    ~Neighbours() { end(); }
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

private:
    void end() {
        stop_ = true;
        for (Thread& thread : threads_)
            if (thread.joinable())
                thread.join();
    }

    std::atomic<bool> stop_{false};
    std::atomic<int> warm_{0};
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
            yardstick.times.push_back(yardstick_time(devices, config.run.threads_per_device));
    };
    look_at_the_machine();
    for (std::size_t size = 0; size < samples.size(); ++size) {
        if (progress)
            progress(static_cast<int>(size), static_cast<int>(samples.size()));
        Bench bench(config, model, data, *kernels, samples[size]);
        bench.run();
        bench.store(profile);
        if (is_host(*kernels))
            profile.cpu_share = std::min(profile.cpu_share, std::round(1000 * bench.cpu_share()) / 1000);
        look_at_the_machine();
        if (devices == 1 || cores.shared || !kernels->has_neighbours())
            continue;
        const Neighbours busy(config, model, data, cores, samples[size]);
        bench.run();
        bench.store_busy(profile);
    }
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
