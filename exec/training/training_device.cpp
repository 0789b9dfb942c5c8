#include "exec/training/training.h"

#include "exec/training/parameter_files.h"
#include "workloads/error.h"
#include "workloads/models/initial_parameters.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace pw {

// A thread that is made here may run on every core of the process, one that a device's thread makes on that device's.
TrainingDevice::TrainingDevice(Training& run, int device) : device_(device), run_(run) {
    if (run_.plan.is_here(device) && run_.sums_beside(device))
        bucket_thread_ = std::make_unique<BucketThread>(
            fmt::format("the sums of device {}", device), [this] { open_bucket_thread(); },
            [this](int node) { sum_in_buckets(node); });
}

std::shared_ptr<const Kernels> TrainingDevice::open() {
    return open_kernels(run_.job.config, device_, run_.job.plan.shape.devices);
}

template <class Value>
Value* TrainingDevice::make_notes(std::size_t count) {
    notes_.push_back(kernels_->shared(static_cast<Bytes>(count * sizeof(Value))));
    return reinterpret_cast<Value*>(notes_.back()->data());
}

void TrainingDevice::prepare() {
    const Job& job = run_.job;
    const MicroBatchSizes& sizes = run_.plan.sizes;
    const auto microbatches = static_cast<std::size_t>(job.plan.shape.microbatches);
    const std::size_t samples = microbatches * static_cast<std::size_t>(sizes.full);
    kernels_ = open();
    for (const int stage : job.plan.shape.stages_of(device_)) {
        const StageProgram& program = add_program(stage, sizes.full, programs_);
        if (!sizes.is_even())
            add_program(stage, sizes.last(), last_programs_);
        if (program.reads_data() && samples_ == nullptr) {
            kernels_->take_data(run_.data);
            samples_ = make_notes<Sample>(samples);
        }
        if (program.has_loss()) {
            labels_ = make_notes<int>(samples * static_cast<std::size_t>(run_.data.labels_per_sample()));
            losses_ = make_notes<double>(microbatches);
        }
    }
    if (run_.plan.trains() && device_ == run_.plan.devices_of_rank(run_.plan.map.own()).front())
        run_.record().lend_squares(make_notes<double>(run_.record().squares()));
    if (job.plan.shape.global_norm)
        clip_factor_ = make_notes<double>(1);
}

std::unique_ptr<Memory> TrainingDevice::reserve(Bytes bytes) {
    std::string stages;
    for (const auto& [stage, program] : programs_)
        stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
    std::unique_ptr<Memory> memory = kernels_->reserve(bytes, fmt::format("device {} (stage {})", device_, stages));
    memory_ = memory->data();
    memory_bytes_ = memory->size();
    return memory;
}

TrainingDevice::StageState& TrainingDevice::state_of(int stage) {
    const auto [found, fresh] = stages_.try_emplace(stage);
    StageState& state = found->second;
    if (!fresh)
        return state;
    const Job& job = run_.job;
    for (auto* rows : {&state.data, &state.until_input, &state.until_weight, &state.gradient_kept, &state.dropped,
                       &state.left_statistics})
        rows->assign(static_cast<std::size_t>(job.plan.shape.microbatches), nullptr);
    state.holders = job.plan.shape.devices_of(stage);
    state.parts.resize(static_cast<std::size_t>(run_.plan.gradient_parts(stage)));
    state.slots.assign(static_cast<std::size_t>(job.versions.held[stage]), nullptr);
    state.momenta = state.slots;
    state.slot_of = weight_slots(job.plan, job.versions, stage, device_);
    const std::vector<Task>& order = job.plan.order[device_];
    state.saves = std::any_of(order.begin(), order.end(),
                              [&](const Task& task) { return task.stage == stage && makes_input_gradient(task.op); });
    Places& places = state.places;
    for (auto* rows : {&places.tensor_in, &places.tensor_out, &places.gradient_in, &places.gradient_out})
        rows->assign(run_.plan.edges.size(), nullptr);
    return state;
}

void TrainingDevice::place(const Buffer& buffer, std::byte* address) {
    if (buffer.use == BufferUse::Workspace) {
        workspace_ = address;
        return;
    }
    StageState& state = state_of(buffer.stage);
    switch (buffer.use) {
        case BufferUse::Weights:
            state.slots[buffer.version] = address;
            break;
        case BufferUse::Statistics:
            state.statistics = address;
            break;
        case BufferUse::BatchStatistics:
            state.left_statistics[buffer.microbatch] = address;
            break;
        case BufferUse::Gradients:
            state.parts[buffer.part].block = address;
            break;
        case BufferUse::Optimizer:
            state.momenta[buffer.version] = address;
            break;
        case BufferUse::Predicted:
            state.predicted = address;
            break;
        case BufferUse::Data:
            state.data[buffer.microbatch] = address;
            break;
        case BufferUse::UntilInput:
            state.until_input[buffer.microbatch] = address;
            break;
        case BufferUse::UntilWeight:
            state.until_weight[buffer.microbatch] = address;
            break;
        case BufferUse::GradientKept:
            state.gradient_kept[buffer.microbatch] = address;
            break;
        case BufferUse::Dropped:
            state.dropped[buffer.microbatch] = address;
            break;
        default:
            break;
    }
}

StageProgram::Values TrainingDevice::initial_values() const {
    const TrainingConfig& training = run_.job.config.training;
    const LayerGraph& graph = run_.job.model->layers;
    return [&](int layer) {
        if (run_.plan.resumed != nullptr)
            return run_.resumed_parameters(layer);
        return training.initial.empty() ? initial_parameters(graph, layer, training.seed)
                                        : read_parameters(training.initial, graph, layer);
    };
}

void TrainingDevice::begin() {
    for (const auto& [stage, program] : programs_) {
        program->set_layout(run_.layouts().full[stage]);
        StageState& state = state_of(stage);
        list_parts(stage);
        list_buckets(stage);
        if (state.slots[0] == nullptr)  // a stage without parameters has none
            continue;
        if (run_.plan.resumed != nullptr && state.momenta[0] != nullptr)
            resume_momenta(stage);  // statistics come with the parameters
        program->initialise(initial_values(), state.slots[0], state.statistics);
    }
    for (const auto& [stage, program] : last_programs_) {
        program->set_layout(run_.layouts().last[stage]);
        check_last_program(stage);
    }
    if (run_.record().keeps_tensors())
        run_.record().keep(Record::Moment::Initial, device_, parameters());
}

// All devices have placed their buffers.
void TrainingDevice::list_statistics() {
    std::vector<int> samples;
    for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
        samples.push_back(run_.plan.sizes.of(mb));
    for (auto& [stage, state] : stages_)
        if (state.statistics != nullptr && state.parts.front().block != nullptr)
            state.batches = StatisticsTable(*kernels_, readable_statistics(stage), samples);
}

// By micro-batch, with places here for those that are to be fetched.
std::vector<std::byte*> TrainingDevice::readable_statistics(int stage) {
    StageState& state = stages_.at(stage);
    std::vector<std::byte*> places;
    for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
        places.push_back(run_.kernel_device(run_.plan.graph.holder(stage, mb)).statistics_of(stage, mb));
    const Bytes bytes = run_.layouts().full[stage].statistics;
    const auto is_elsewhere = [&](std::size_t mb) {
        return places[mb] != nullptr && !reads(run_.plan.graph.holder(stage, static_cast<int>(mb)));
    };
    Bytes room = 0;
    for (std::size_t mb = 0; mb < places.size(); ++mb)
        room += is_elsewhere(mb) ? bytes : 0;
    if (room == 0)
        return places;
    state.statistics_room = kernels_->reserve(room, fmt::format("device {}, for statistics of other devices", device_));
    state.fetched_statistics.assign(places.size(), nullptr);
    std::byte* next = state.statistics_room->data();
    for (std::size_t mb = 0; mb < places.size(); ++mb)
        if (is_elsewhere(mb))
            places[mb] = state.fetched_statistics[mb] = std::exchange(next, next + bytes);
    return places;
}

// Before gather_statistics().
void TrainingDevice::take_statistics(const Task& closing) {
    const StageState& state = stages_.at(closing.stage);
    const Shape& shape = run_.job.plan.shape;
    const int mini_batch = shape.mini_batch_of(closing.microbatch);
    for (int mb = shape.first_of(mini_batch); !state.fetched_statistics.empty() && mb <= shape.last_of(mini_batch);
         ++mb)
        if (std::byte* here = state.fetched_statistics[mb]; here != nullptr) {
            const int holder = run_.plan.graph.holder(closing.stage, mb);
            take(holder, run_.kernel_device(holder).statistics_of(closing.stage, mb), here,
                 run_.layouts().full[closing.stage].statistics);
        }
}

// The running averages take in the mini-batch that `closing`, S or U, ends. Several holders do it at S: only there all
// of them have run their micro-batches and none goes on.
void TrainingDevice::gather_statistics(const Task& closing) {
    StageState& state = stages_.at(closing.stage);
    if (state.statistics == nullptr)
        return;
    const Shape& shape = run_.job.plan.shape;
    const int mini_batch = shape.mini_batch_of(closing.microbatch);
    programs_[closing.stage]->gather_statistics(
        state.batches.of(shape.first_of(mini_batch), shape.last_of(mini_batch),
                         run_.job.config.training.batch_norm == TrainingConfig::BatchNorm::Deferred),
        state.statistics);
}

void TrainingDevice::begin_step(int step) {
    step_ = step;
    if (step == 0) {
        list_statistics();
        make_room();
    }
    if (!run_.job.plan.asynchronous)
        for (auto& [stage, state] : stages_)
            state.newest = 0;
    if (samples_ == nullptr && labels_ == nullptr)
        return;
    const MicroBatchSizes& sizes = run_.plan.sizes;
    const auto labels = static_cast<std::size_t>(run_.data.labels_per_sample());
    for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
        for (int k = 0; k < sizes.of(mb); ++k) {
            const Sample sample = run_.sample(run_.first_sample(step, mb) + k);
            const int at = mb * sizes.full + k;
            if (samples_ != nullptr)
                samples_[at] = sample;
            if (labels_ != nullptr)
                run_.data.labels_at(sample, {labels_ + static_cast<std::size_t>(at) * labels, labels});
        }
}

void TrainingDevice::end_step() {
    for (const auto& [stage, program] : programs_)
        if (program->has_loss())
            for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
                if (run_.plan.graph.holder(stage, mb) == device_)
                    run_.record().take_loss(mb, losses_[mb]);
}

void TrainingDevice::run(const Task& task, int node) {
    if (task.op == Op::Update)
        update(task, node);
    else if (task.op == Op::SumGradients)
        sum_gradients(node);
    else
        compute(task, node);
}

GradientPart& TrainingDevice::part_of(const Task& task) {
    return stages_.at(task.stage).parts[run_.plan.gradient_part(task.stage, task.microbatch)];
}

// Without momentum there is no direction to predict in: the version itself.
const std::byte* TrainingDevice::weights_for(const Task& task, int version) {
    const StageState& state = stages_.at(task.stage);
    const TrainingConfig& training = run_.job.config.training;
    const int slot = state.slot_of[version], ahead = ahead_of(task, run_.job.versions);
    if (ahead == 0 || training.momentum == 0 || state.predicted == nullptr)
        return state.slots[slot];
    programs_[task.stage]->predict(state.slots[slot], state.momenta[slot], ahead * training.learning_rate,
                                   state.predicted);
    return state.predicted;
}

const Places& TrainingDevice::bind(const Task& task, int version) {
    StageState& state = stages_.at(task.stage);
    Places& places = state.places;
    const int mb = task.microbatch;
    places.data = state.data[mb];
    places.until_input = state.until_input[mb];
    places.until_weight = state.until_weight[mb];
    if (std::byte* dropped = state.dropped[mb]; dropped != nullptr && task.op == Op::Forward) {
        places.until_input = dropped;
        places.until_weight = dropped + program_of(task).layout().until_input;
    }
    places.gradient_kept = state.gradient_kept[mb];
    places.workspace = workspace_;
    places.weights = weights_for(task, version);
    places.statistics = state.saves ? state.left_statistics[mb] : state.statistics;
    places.gradients = part_of(task).block;
    places.labels = of_microbatch(labels_, run_.data.labels_per_sample(), mb);
    places.training_seed = run_.job.config.training.seed;
    places.first_sample = run_.first_sample(step_, mb);
    places.loss = losses_ == nullptr ? nullptr : losses_ + mb;
    const EdgeBuffers& tensors = run_.plan.tensors;
    for (int edge = 0; edge < static_cast<int>(run_.plan.edges.size()); ++edge) {
        const bool in = run_.plan.edges[edge].to == task.stage, out = run_.plan.edges[edge].from == task.stage;
        places.tensor_in[edge] = in ? tensors.landed(true, edge, mb) : nullptr;
        places.tensor_out[edge] = out ? tensors.made(true, edge, mb) : nullptr;
        places.gradient_in[edge] = out ? tensors.landed(false, edge, mb) : nullptr;
        places.gradient_out[edge] = in ? tensors.made(false, edge, mb) : nullptr;
    }
    return places;
}

template <class Note>
std::span<const Note> TrainingDevice::of_microbatch(const Note* all, int per_sample, int microbatch) const {
    const MicroBatchSizes& sizes = run_.plan.sizes;
    const std::ptrdiff_t first = std::ptrdiff_t{microbatch} * sizes.full * per_sample;
    return all == nullptr ? std::span<const Note>{}
                          : std::span(all + first, static_cast<std::size_t>(sizes.of(microbatch) * per_sample));
}

void TrainingDevice::load_data(int microbatch, std::byte* to) const {
    kernels_->load_data(run_.data, of_microbatch(samples_, 1, microbatch), to);
}

void TrainingDevice::compute(const Task& task, int node) {
    const Job& job = run_.job;
    const StageProgram& program = program_of(task);
    const StageState& state = stages_.at(task.stage);
    GradientPart& part = part_of(task);
    const int mb = task.microbatch;
    const Places& places = bind(task, version_of(task, job.versions, job.plan));
    const double scale = 1.0 / static_cast<double>(run_.plan.samples_of(job.plan.shape.mini_batch_of(mb)));
    const Begun begun = part.begun;
    // The thread beside reads it while it sums.
    part.begun.input = begun.input || makes_input_gradient(task.op);
    part.begun.weight = begun.weight || makes_weight_gradient(task.op);
    std::optional<Filling> filling;
    if (const auto sum = sums_behind_.find(node); sum != sums_behind_.end()) {
        bucket_thread_->begin(sum->second);
        filling.emplace(program_of(task), job.model->layers, *bucket_thread_);
    }
    switch (task.op) {
        case Op::Forward:
            if (places.data != nullptr)
                load_data(mb, places.data);
            program.forward(places, state.saves);
            if (program.has_loss() && works_at_once() && !job.config.run.allow_nan && !std::isfinite(losses_[mb]))
                run_.refuse_loss(step_, mb);
            break;
        case Op::Recompute:
            program.recompute(places);
            break;
        case Op::Backward:
        case Op::BackwardInput:
            program.backward(places, scale, begun, task.op == Op::Backward);
            break;
        case Op::BackwardWeight:
            program.backward_weight(places, begun);
            break;
        case Op::Update:
        case Op::SumGradients:
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
            fail_with(ExitCode::RunFailed, "devices do not run {}", print(task));
    }
}

std::vector<NamedTensor> TrainingDevice::named(int stage, const std::byte* weights, bool trained_only) const {
    return programs_.at(stage)->named(weights, stages_.at(stage).statistics, trained_only);
}

}  // namespace pw
