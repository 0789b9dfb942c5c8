#include "exec/host/kernel_work.h"

#include "exec/dump.h"
#include "workloads/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pw {

std::shared_ptr<const Kernels> KernelDevice::open() {
    return open_kernels(run_.job.config, device_, run_.job.plan.shape.devices);
}

template <class Value>
Value* KernelDevice::make_notes(std::size_t count) {
    notes_.push_back(kernels_->shared(static_cast<Bytes>(count * sizeof(Value))));
    return reinterpret_cast<Value*>(notes_.back()->data());
}

void KernelDevice::prepare() {
    const Job& job = run_.job;
    const auto microbatches = static_cast<std::size_t>(job.plan.shape.microbatches);
    const std::size_t samples = microbatches * static_cast<std::size_t>(job.config.pipeline.micro_batch_size);
    kernels_ = open();
    for (const int stage : job.plan.shape.stages_of(device_)) {
        programs_[stage] = std::make_unique<StageProgram>(*job.model, job.split, stage, *kernels_,
                                                          job.config.pipeline.micro_batch_size);
        const StageProgram& program = *programs_[stage];
        for (const int layer : program.layers())
            run_.layer_bytes[layer] = program.bytes_of(layer);
        if (program.reads_data() && samples_ == nullptr) {
            kernels_->take_data(run_.data);
            samples_ = make_notes<Sample>(samples);
        }
        if (program.has_loss()) {
            labels_ = make_notes<int>(samples * static_cast<std::size_t>(run_.data.labels_per_sample()));
            losses_ = make_notes<double>(microbatches);
        }
    }
    if (run_.plan.trains())
        squares_ = make_notes<double>(static_cast<std::size_t>(job.plan.shape.updates()) * run_.layer_bytes.size());
}

std::unique_ptr<Memory> KernelDevice::reserve(Bytes bytes) {
    std::string stages;
    for (const auto& [stage, program] : programs_)
        stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
    return kernels_->reserve(bytes, fmt::format("device {} (stage {})", device_, stages));
}

KernelDevice::StageState& KernelDevice::state_of(int stage) {
    const auto [found, fresh] = stages_.try_emplace(stage);
    StageState& state = found->second;
    if (!fresh)
        return state;
    const Job& job = run_.job;
    for (auto* rows : {&state.data, &state.until_input, &state.until_weight, &state.gradient_kept, &state.dropped})
        rows->assign(static_cast<std::size_t>(job.plan.shape.microbatches), nullptr);
    state.slots.assign(static_cast<std::size_t>(job.versions.held[stage]), nullptr);
    state.slot_of = weight_slots(job.plan, job.versions, stage, device_);
    const std::vector<Task>& order = job.plan.order[device_];
    state.saves = std::any_of(order.begin(), order.end(), [&](const Task& task) {
        return task.stage == stage && (task.op == Op::Backward || task.op == Op::BackwardInput);
    });
    Places& places = state.places;
    for (auto* rows : {&places.tensor_in, &places.tensor_out, &places.gradient_in, &places.gradient_out})
        rows->assign(run_.plan.edges.size(), nullptr);
    return state;
}

void KernelDevice::place(const Buffer& buffer, std::byte* address) {
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
        case BufferUse::Gradients:
            state.gradients = address;
            break;
        case BufferUse::Optimizer:
            state.momentum = address;
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

void KernelDevice::begin() {
    for (const auto& [stage, program] : programs_) {
        program->set_layout(run_.layouts[stage]);
        StageState& state = state_of(stage);
        if (state.slots[0] != nullptr)  // a stage without parameters has none
            program->initialise(run_.job.config.training.seed, state.slots[0], state.statistics);
    }
    if (run_.dumps())
        run_.initial[device_] = parameters();
}

void KernelDevice::begin_step(int step) {
    step_ = step;
    if (!run_.job.plan.asynchronous)
        for (auto& [stage, state] : stages_)
            state.newest = 0;
    if (samples_ == nullptr && labels_ == nullptr)
        return;
    const int samples = run_.job.config.pipeline.micro_batch_size;
    const auto labels = static_cast<std::size_t>(run_.data.labels_per_sample());
    for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
        for (int k = 0; k < samples; ++k) {
            const Sample sample = run_.sample(run_.first_sample(step, mb) + k);
            const int at = mb * samples + k;
            if (samples_ != nullptr)
                samples_[at] = sample;
            if (labels_ != nullptr)
                run_.data.labels_at(sample, {labels_ + static_cast<std::size_t>(at) * labels, labels});
        }
}

void KernelDevice::end_step() {
    const Shape& shape = run_.job.plan.shape;
    if (losses_ != nullptr)
        std::copy_n(losses_, shape.microbatches, run_.losses[step_].begin());
    if (squares_ == nullptr)
        return;
    for (int update = 0; update < shape.updates(); ++update)
        for (const auto& [stage, program] : programs_)
            for (const int layer : program->layers()) {
                const auto place = static_cast<std::size_t>(update) * run_.layer_bytes.size();
                run_.squares[step_ * shape.updates() + update][layer] = squares_[place + static_cast<std::size_t>(layer)];
            }
}

void KernelDevice::run(const Task& task, int) {
    if (task.op == Op::Update)
        update(task);
    else
        compute(task);
}

const Places& KernelDevice::bind(const Task& task, int version) {
    StageState& state = stages_.at(task.stage);
    Places& places = state.places;
    const int mb = task.microbatch;
    places.data = state.data[mb];
    places.until_input = state.until_input[mb];
    places.until_weight = state.until_weight[mb];
    if (std::byte* dropped = state.dropped[mb]; dropped != nullptr && task.op == Op::Forward) {
        places.until_input = dropped;
        places.until_weight = dropped + run_.layouts[task.stage].until_input;
    }
    places.gradient_kept = state.gradient_kept[mb];
    places.workspace = workspace_;
    places.weights = state.slots[state.slot_of[version]];
    places.statistics = state.statistics;
    places.gradients = state.gradients;
    places.labels = of_microbatch(labels_, run_.data.labels_per_sample(), mb);
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
std::span<const Note> KernelDevice::of_microbatch(const Note* all, int per_sample, int microbatch) const {
    const auto count = static_cast<std::size_t>(run_.job.config.pipeline.micro_batch_size * per_sample);
    return all == nullptr ? std::span<const Note>{}
                          : std::span(all + static_cast<std::size_t>(microbatch) * count, count);
}

void KernelDevice::compute(const Task& task) {
    const Job& job = run_.job;
    const StageProgram& program = *programs_[task.stage];
    StageState& state = stages_.at(task.stage);
    const int mb = task.microbatch;
    const Places& places = bind(task, version_of(task, job.versions, job.plan));
    const double scale = 1.0 / (static_cast<double>(job.config.pipeline.micro_batch_size) * run_.plan.per_update());
    switch (task.op) {
        case Op::Forward:
            if (places.data != nullptr)
                kernels_->load_data(run_.data, of_microbatch(samples_, 1, mb), places.data);
            program.forward(places, state.saves);
            break;
        case Op::Recompute:
            program.recompute(places);
            break;
        case Op::Backward:
        case Op::BackwardInput:
            program.backward(places, scale, state.input_begun, task.op == Op::Backward);
            state.input_begun = true;
            state.weight_begun = state.weight_begun || task.op == Op::Backward;
            break;
        case Op::BackwardWeight:
            program.backward_weight(places, state.weight_begun);
            state.weight_begun = true;
            break;
        default:
            fail_with(ExitCode::RunFailed, "devices do not run {}", print(task));
    }
}

void KernelDevice::update(const Task& task) {
    const Job& job = run_.job;
    StageState& state = stages_.at(task.stage);
    const int number = task.microbatch / run_.plan.per_update();
    const bool dumped = run_.dumps() && step_ == 0 && number == 0;
    state.input_begun = state.weight_begun = false;
    if (state.gradients == nullptr)
        return;
    std::byte* old_weights = state.slots[state.slot_of[state.newest]];
    std::byte* new_weights = state.slots[state.slot_of[state.newest + 1]];
    const TrainingConfig& training = job.config.training;
    const Sgd sgd{training.learning_rate, training.momentum, training.weight_decay};
    StageProgram& program = *programs_[task.stage];
    const auto keep = [&](std::vector<NamedTensor>& kept, const std::byte* weights, bool trained_only) {
        const std::vector<NamedTensor> tensors = program.named(weights, state.statistics, trained_only);
        kept.insert(kept.end(), tensors.begin(), tensors.end());
    };
    if (dumped)
        keep(run_.gradients[device_], state.gradients, true);
    program.update(sgd, old_weights, state.gradients, state.momentum, new_weights,
                   squares_ + static_cast<std::size_t>(number) * run_.layer_bytes.size());
    ++state.newest;
    if (dumped)
        keep(run_.updated[device_], new_weights, false);
}

std::vector<NamedTensor> KernelDevice::parameters() const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, program] : programs_) {
        const StageState& state = stages_.at(stage);
        const std::byte* weights = state.slots[state.slot_of[state.newest]];
        if (weights == nullptr)
            continue;
        const std::vector<NamedTensor> tensors = program->named(weights, state.statistics, false);
        all.insert(all.end(), tensors.begin(), tensors.end());
    }
    return all;
}

KernelWork::KernelWork(const HostPlan& the_plan, const RunOptions& options)
    : plan(the_plan),
      job(the_plan.job),
      data(open_dataset(job.config, *job.model)),
      layer_bytes(boost::num_vertices(job.model->layers)),
      dump_(options.dump) {
    const Shape& shape = job.plan.shape;
    const auto steps = static_cast<std::size_t>(job.steps), devices = static_cast<std::size_t>(shape.devices);
    losses.assign(steps, std::vector<double>(static_cast<std::size_t>(shape.microbatches), 0));
    if (plan.trains())
        squares.assign(steps * static_cast<std::size_t>(shape.updates()), std::vector<double>(layer_bytes.size(), 0));
    initial.resize(devices);
    gradients.resize(devices);
    updated.resize(devices);
}

void KernelWork::add_devices() {
    for (int device = 0; device < job.plan.shape.devices; ++device)
        devices_.push_back(std::make_unique<KernelDevice>(*this, device));
}

std::int64_t KernelWork::first_sample(int step, int microbatch) const {
    return (std::int64_t{step} * job.plan.shape.microbatches + microbatch) * job.config.pipeline.micro_batch_size;
}

Sample KernelWork::sample(std::int64_t index) const {
    return plan.trains() ? data.sample(index) : Sample{.place = data.place(index)};
}

// The backend's own sizes, no times: tensors are handed over by pointer.
Costs KernelWork::costs() {
    Costs costs;
    costs.edges = edge_bytes(job.model->layers, job.split, layer_bytes);
    costs.sent_copies = false;
    const Bytes input = devices_.front()->kernels().data_bytes(job.model->input, job.config.pipeline.micro_batch_size);
    for (int stage = 0; stage < job.split.stages(); ++stage) {
        layouts.push_back(layout_stage(job.model->layers, job.split, stage, layer_bytes, input));
        costs.bytes.push_back(stage_bytes(layouts.back(), splits_backward(job.plan)));
    }
    return costs;
}

void KernelWork::leave(int send) {
    const Task& task = plan.graph.task(send);
    const int edge = plan.edge_of(task);
    const bool forward = task.op == Op::SendForward;
    if (const Bytes bytes = bytes_moved(task, plan.edges); bytes > 0)
        std::memcpy(plan.tensors.landed(forward, edge, task.microbatch),
                    plan.tensors.made(forward, edge, task.microbatch), static_cast<std::size_t>(bytes));
}

void KernelWork::finish(RunResult& result) {
    std::vector<NamedTensor> parameters;
    for (const auto& device : devices_) {
        const std::vector<NamedTensor> own = device->parameters();
        parameters.insert(parameters.end(), own.begin(), own.end());
    }
    result.weights_hash = hash_of(std::move(parameters));
    for (const std::vector<double>& row : squares) {
        double sum = 0;
        for (const double square : row)
            sum += square;
        result.gradient_norms.push_back(std::sqrt(sum));
    }
    if (dumps())
        write_dump(dump_, *this, result.losses.front());
}

std::unique_ptr<HostWork> make_kernel_work(const HostPlan& plan, const RunOptions& options) {
    auto work = std::make_unique<KernelWork>(plan, options);
    work->add_devices();
    return work;
}

}  // namespace pw
