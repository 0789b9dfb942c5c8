#include "exec/host/host_device.h"

#include <algorithm>

namespace pw {

SharedRun::SharedRun(const Job& the_job, const HostKernels& the_kernels, const Dataset& the_data)
    : job(the_job),
      kernels(the_kernels),
      data(the_data),
      graph(the_job.plan),
      mailbox(graph, the_job.config.run.timeout),
      layer_bytes(boost::num_vertices(the_job.model.layers)) {
    const auto steps = static_cast<std::size_t>(job.steps);
    losses.assign(steps, std::vector<double>(static_cast<std::size_t>(job.plan.shape.microbatches), 0));
    squares.assign(steps * static_cast<std::size_t>(job.plan.shape.updates()),
                   std::vector<double>(layer_bytes.size(), 0));
    const auto devices = static_cast<std::size_t>(job.plan.shape.devices);
    initial.resize(devices);
    gradients.resize(devices);
    updated.resize(devices);
}

int SharedRun::per_update() const {
    const Shape& shape = job.plan.shape;
    return shape.per_update == 0 ? shape.microbatches : shape.per_update;
}

std::int64_t SharedRun::first_sample(int step, int microbatch) const {
    return (std::int64_t{step} * job.plan.shape.microbatches + microbatch) * job.config.pipeline.micro_batch_size;
}

HostDevice::HostDevice(SharedRun& shared, int device) : shared_(shared), device_(device) {}

void HostDevice::make_programs() {
    const Job& job = shared_.job;
    for (const int stage : job.plan.shape.stages_of(device_)) {
        programs_[stage] = std::make_unique<StageProgram>(job.model, job.split, stage, shared_.kernels,
                                                          job.config.pipeline.micro_batch_size);
        for (const int layer : programs_[stage]->layers())
            shared_.layer_bytes[layer] = programs_[stage]->bytes_of(layer);
    }
}

void HostDevice::make_memory() {
    const Job& job = shared_.job;
    const auto microbatches = static_cast<std::size_t>(job.plan.shape.microbatches);
    const std::size_t length = job.plan.order[device_].size();
    arena_.emplace(shared_.packing.arena[device_]);
    born_.resize(length);
    dies_.resize(length);
    intervals_.resize(length);
    samples_.reserve(length * static_cast<std::size_t>(job.steps) + 1);
    labels_.resize(static_cast<std::size_t>(job.config.pipeline.micro_batch_size));
    for (const auto& [stage, program] : programs_) {
        StageState& state = stages_[stage];
        for (auto* rows : {&state.data, &state.until_input, &state.until_weight, &state.gradient_kept})
            rows->assign(microbatches, nullptr);
        state.slots.assign(static_cast<std::size_t>(job.versions.held[stage]), nullptr);
        state.slot_of = weight_slots(job.plan, job.versions, stage, device_);
        Places& places = state.places;
        for (auto* rows : {&places.tensor_in, &places.tensor_out, &places.gradient_in, &places.gradient_out})
            rows->assign(shared_.edges.size(), nullptr);
    }
    for (int k = 0; k < static_cast<int>(shared_.buffers.size()); ++k) {
        const Buffer& buffer = shared_.buffers[k];
        if (buffer.device != device_)
            continue;
        born_[buffer.first].push_back(k);
        dies_[buffer.last].push_back(k);
        place_buffer(buffer, arena_->address(shared_.packing.offset[k]));
    }
    for (const auto& [stage, program] : programs_) {
        StageState& state = stages_[stage];
        if (state.slots[0] != nullptr)  // a stage without parameters has none
            program->initialise(job.config.training.seed, state.slots[0], state.statistics);
    }
    if (shared_.dump)
        shared_.initial[device_] = parameters();
}

void HostDevice::place_buffer(const Buffer& buffer, std::byte* address) {
    switch (buffer.use) {
        case BufferUse::Weights:
            stages_[buffer.stage].slots[buffer.version] = address;
            break;
        case BufferUse::Statistics:
            stages_[buffer.stage].statistics = address;
            break;
        case BufferUse::Gradients:
            stages_[buffer.stage].gradients = address;
            break;
        case BufferUse::Optimizer:
            stages_[buffer.stage].momentum = address;
            break;
        case BufferUse::Workspace:
            workspace_ = address;
            break;
        case BufferUse::Data:
            stages_[buffer.stage].data[buffer.microbatch] = address;
            break;
        case BufferUse::UntilInput:
            stages_[buffer.stage].until_input[buffer.microbatch] = address;
            break;
        case BufferUse::UntilWeight:
            stages_[buffer.stage].until_weight[buffer.microbatch] = address;
            break;
        case BufferUse::GradientKept:
            stages_[buffer.stage].gradient_kept[buffer.microbatch] = address;
            break;
        case BufferUse::LandingForward:
            shared_.landing_forward[buffer.edge][buffer.microbatch] = address;
            break;
        case BufferUse::LandingBackward:
            shared_.landing_backward[buffer.edge][buffer.microbatch] = address;
            break;
        case BufferUse::SentForward:
        case BufferUse::SentBackward:
            break;  // pointer hand-over has no copies
    }
}

void HostDevice::begin_step(int step) {
    step_ = step;
    if (!shared_.job.plan.asynchronous)
        for (auto& [stage, state] : stages_)
            state.newest = 0;
}

// Buffers that live across the whole list are lent once and never given back.
void HostDevice::lend(int position) {
    for (const int k : born_[position]) {
        const Buffer& buffer = shared_.buffers[k];
        const bool persistent = buffer.first == 0 && buffer.last + 1 == static_cast<int>(dies_.size());
        if (!persistent || step_ == 0)
            (void)arena_->lend(shared_.packing.offset[k], buffer.bytes, buffer.kind);
    }
}

void HostDevice::give_back(int position, Ns now) {
    if (position == 0 || samples_.empty() || samples_.back().use != arena_->lent())
        samples_.push_back({step_, device_, now, arena_->lent()});
    for (const int k : dies_[position]) {
        const Buffer& buffer = shared_.buffers[k];
        if (buffer.first != 0 || buffer.last + 1 != static_cast<int>(dies_.size()))
            arena_->give_back(buffer.bytes, buffer.kind);
    }
}

Ticket HostDevice::launch(const Task& task, int position, std::span<const Ticket> after) {
    const int first = shared_.graph.node(device_, 0);
    for (const Ticket ticket : after)
        if (const int node = first + ticket; is_recv(shared_.graph.task(node).op))
            intervals_[ticket] = shared_.mailbox.wait(shared_.graph.inputs(node).front(), step_, node);
    lend(position);
    intervals_[position] = run_task(task, first + position);
    give_back(position, intervals_[position].start);
    return position;
}

Interval HostDevice::run_task(const Task& task, int node) {
    Interval interval{clock_now(), 0};
    if (is_compute(task.op))
        compute(task);
    else if (task.op == Op::Update)
        update(task);
    interval.end = is_transfer(task.op) ? interval.start : clock_now();
    if (is_send(task.op))
        shared_.mailbox.publish(node, step_, interval);
    return interval;
}

const Places& HostDevice::bind(const Task& task, int version) {
    StageState& state = stages_[task.stage];
    Places& places = state.places;
    const int mb = task.microbatch;
    places.data = state.data[mb];
    places.until_input = state.until_input[mb];
    places.until_weight = state.until_weight[mb];
    places.gradient_kept = state.gradient_kept[mb];
    places.workspace = workspace_;
    places.weights = state.slots[state.slot_of[version]];
    places.statistics = state.statistics;
    places.gradients = state.gradients;
    for (std::size_t edge = 0; edge < shared_.edges.size(); ++edge) {
        const bool in = shared_.edges[edge].to == task.stage, out = shared_.edges[edge].from == task.stage;
        places.tensor_in[edge] = in ? shared_.landing_forward[edge][mb] : nullptr;
        places.tensor_out[edge] = out ? shared_.landing_forward[edge][mb] : nullptr;
        places.gradient_in[edge] = out ? shared_.landing_backward[edge][mb] : nullptr;
        places.gradient_out[edge] = in ? shared_.landing_backward[edge][mb] : nullptr;
    }
    return places;
}

void HostDevice::compute(const Task& task) {
    const Job& job = shared_.job;
    const StageProgram& program = *programs_[task.stage];
    StageState& state = stages_[task.stage];
    const int mb = task.microbatch, samples = job.config.pipeline.micro_batch_size;
    const bool forward = task.op == Op::Forward || task.op == Op::Recompute;
    const int version = (forward ? job.versions.forward : job.versions.backward)[task.stage][mb];
    const Places& places = bind(task, version);
    const std::int64_t first = shared_.first_sample(step_, mb);
    const double scale = 1.0 / (static_cast<double>(samples) * shared_.per_update());
    for (int k = 0; k < samples; ++k)
        labels_[k] = shared_.data.label(first + k);
    switch (task.op) {
        case Op::Forward:
            if (places.data != nullptr)
                shared_.kernels.load_data(shared_.data, first, samples, places.data);
            if (const double loss = program.forward(places, labels_, true); program.has_loss())
                shared_.losses[step_][mb] = loss;
            break;
        case Op::Backward:
        case Op::BackwardInput:
            program.backward(places, labels_, scale, state.input_begun, task.op == Op::Backward);
            state.input_begun = true;
            state.weight_begun = state.weight_begun || task.op == Op::Backward;
            break;
        case Op::BackwardWeight:
            program.backward_weight(places, state.weight_begun);
            state.weight_begun = true;
            break;
        default:
            fail_with(ExitCode::RunFailed, "host devices do not run {}", print(task));
    }
}

void HostDevice::update(const Task& task) {
    const Job& job = shared_.job;
    StageState& state = stages_[task.stage];
    const int number = step_ * job.plan.shape.updates() + task.microbatch / shared_.per_update();
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
    if (shared_.dump && number == 0)
        keep(shared_.gradients[device_], state.gradients, true);
    program.update(sgd, old_weights, state.gradients, state.momentum, new_weights, shared_.squares[number]);
    ++state.newest;
    if (shared_.dump && number == 0)
        keep(shared_.updated[device_], new_weights, false);
}

std::vector<NamedTensor> HostDevice::parameters() const {
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

}  // namespace pw
