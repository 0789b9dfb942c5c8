#include "exec/training/training_device.h"

#include "exec/backends.h"
#include "exec/training/parameter_files.h"
#include "exec/training/training.h"
#include "workloads/error.h"
#include "workloads/models/initial_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace pw {

// The bucket thread and the threads of copies are made here, so that they may run on every core of the process. A
// thread made by a device's thread runs on that device's cores only.
TrainingDevice::TrainingDevice(Training& run, int device)
    : device_(device), run_(run), trains_(run.plan.trains()), batch_(run.data, run.plan.sizes, run.job.plan.shape) {
    const std::vector<Task>& order = run_.job.plan.order[device_];
    for (const int stage : run_.job.plan.shape.stages_of(device_))
        stages_.try_emplace(stage, HeldStage{{run_.job, device_, stage, run_.plan.gradient_parts(stage)}});
    if (run_.plan.is_here(device) &&
        std::ranges::any_of(stages_, [&](const auto& held) { return may_sum_in_buckets(run_.job, held.first); }))
        bucket_thread_ = std::make_unique<BucketThread>(
            fmt::format("the sums of device {}", device), [this] { open_bucket_thread(); },
            [this](int node) { buckets_->sum(node); });
    if (run_.plan.is_here(device) && has_copies(order) && run_.job.setup.run.backend != RunConfig::Backend::Cuda)
        copies_ = std::make_unique<CopyThreads>(run_.plan.graph, order, device, run_.job.mode, [this](int node) {
            for (const HostBlocks::Block& block : host_blocks().moved_by(node))
                std::memcpy(block.to, block.from, static_cast<std::size_t>(block.bytes));
        });
}

std::shared_ptr<const Kernels> TrainingDevice::open() {
    return open_kernels(run_.job.setup, run_.job.plan.shape.devices)(device_);
}

// Opens the kernels with one thread.
void TrainingDevice::open_bucket_thread() const {
    Setup setup = run_.job.setup;
    setup.run.threads_per_device = 1;
    (void)open_kernels(setup, run_.job.plan.shape.devices)(device_);
}

void TrainingDevice::prepare() {
    const Job& job = run_.job;
    const MicroBatchSizes& sizes = run_.plan.sizes;
    kernels_ = open();
    for (auto& [stage, held] : stages_) {
        const auto program = [&, stage = stage](int samples) {
            return std::make_unique<StageProgram>(run_.model, job.split, stage, *kernels_, samples);
        };
        held.program = program(sizes.full);
        if (!sizes.is_even())
            held.last = program(sizes.last());
        if (held.program->reads_data())
            batch_.add_samples(*kernels_);
        if (held.program->has_loss())
            batch_.add_labels(*kernels_);
    }
    if (trains_ && device_ == run_.plan.devices_of_rank(run_.plan.map.own()).front()) {
        squares_ = {*kernels_, run_.record().squares()};
        run_.record().set_squares_memory(squares_.data());
    }
}

std::unique_ptr<Memory> TrainingDevice::reserve(Bytes bytes) {
    std::string stages;
    for (const auto& [stage, held] : stages_)
        stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
    std::unique_ptr<Memory> memory = kernels_->reserve(bytes, fmt::format("device {} (stage {})", device_, stages));
    memory_ = memory->data();
    memory_bytes_ = memory->size();
    return memory;
}

void TrainingDevice::place(const Buffer& buffer, std::byte* address) {
    if (buffer.use == BufferUse::Workspace)
        workspace_ = address;
    else
        memory(buffer.stage).place(buffer, address);
}

StageProgram::Values TrainingDevice::initial_values() const {
    const TrainingConfig& training = run_.job.setup.training;
    const LayerGraph& graph = run_.job.model->layers;
    return [&](int layer) {
        if (run_.plan.resumed != nullptr)
            return run_.resumed_parameters(layer);
        return training.initial.empty() ? initial_parameters(graph, layer, training.seed)
                                        : read_parameters(training.initial, graph, layer);
    };
}

void TrainingDevice::begin() {
    const DeviceScope on{run_.plan, run_.layouts(), *kernels_, device_, stages_, *this};
    for (auto& [stage, held] : stages_) {
        held.program->set_layout(on.layouts.full[stage]);
        held.share = share_of_stage(on.plan, on.layouts, device_, stage, run_.record().keeps_tensors());
        Places& places = held.places;
        for (auto* rows : {&places.tensor_in, &places.tensor_out, &places.gradient_in, &places.gradient_out})
            rows->assign(on.plan.edges.size(), nullptr);
    }
    if (has_copies(run_.job.plan.order[static_cast<std::size_t>(device_)]))
        host_blocks_.emplace(run_.plan, device_, stages_, *kernels_);
    statistics_.emplace(on);
    sums_.emplace(on);
    optimizer_.emplace(on, *sums_, *statistics_, run_.record());
    kept_.emplace(*kernels_, device_, stages_, run_.job);
    if (bucket_thread_)
        buckets_.emplace(on, *sums_, *bucket_thread_, run_.synchronise_ranks(), run_.fetches_across());
    const int states = facts_of(run_.job.setup.training.optimizer).states;
    for (const auto& [stage, held] : stages_) {
        if (!held.memory.has_weights())  // a stage without parameters
            continue;
        if (on.plan.resumed != nullptr && held.memory.states(0) != nullptr)
            for (int state = 0; state < states + (run_.job.versions.corrects(stage) ? 1 : 0); ++state)
                optimizer_->resume(stage, state, [&](int layer) { return run_.resumed_states(state, layer); });
        // Loading states also writes statistics. The right statistics come with the parameters.
        held.program->initialise(initial_values(), held.memory.slots[0], held.memory.statistics);
    }
    for (const auto& [stage, held] : stages_)
        if (held.last) {
            held.last->set_layout(on.layouts.last[stage]);
            check_last_program(stage);
        }
    if (run_.record().keeps_tensors())
        run_.record().keep(Record::Moment::Initial, device_, parameters());
}

// Kernels for two sizes share a block of parameters, so both must read the same values in it.
void TrainingDevice::check_last_program(int stage) const {
    const HeldStage& held = stages_.at(stage);
    const StageProgram &all = *held.program, &last = *held.last;
    const auto check = [&](bool same, const std::string& what) {
        if (!same)
            fail_with(ExitCode::RunFailed,
                      "{}: backend {} stores it in another format for micro-batches of {} than of {}\n  help: choose "
                      "pipeline.mini_batch and micro_batch_size so that the last micro-batch is as large as the others",
                      what, kernels_->name(), run_.plan.sizes.last(), run_.plan.sizes.full);
    };
    for (const int layer : all.layers()) {
        const LayerBytes one = all.bytes_of(layer), other = last.bytes_of(layer);
        check(one.weights == other.weights && one.frozen == other.frozen && one.statistics == other.statistics,
              run_.job.model->layers[layer].name);
    }
    if (!held.memory.has_weights())
        return;
    const std::vector<NamedTensor> values = all.named(held.memory.slots[0], held.memory.statistics, false);
    const std::vector<NamedTensor> others = last.named(held.memory.slots[0], held.memory.statistics, false);
    for (std::size_t k = 0; k < values.size(); ++k)
        check(values[k].values == others[k].values, values[k].name);
}

void TrainingDevice::begin_step(int step) {
    step_ = step;
    if (step == 0) {
        statistics_->list();
        sums_->reserve();
    }
    if (!run_.job.plan.asynchronous)
        for (auto& [stage, held] : stages_)
            held.memory.newest = 0;
    batch_.set([&](int mb, int number) {
        Sample sample = run_.sample(run_.first_sample(step, mb) + number);
        sample.first = run_.job.plan.shape.slice_of(mb) * run_.model.input.height;
        return sample;
    });
}

void TrainingDevice::end_step() {
    for (const auto& [stage, held] : stages_)
        if (held.program->has_loss())
            for (int mb = 0; mb < run_.job.plan.shape.microbatches; ++mb)
                if (run_.plan.graph.holder(stage, mb) == device_)
                    run_.record().take_loss(mb, *batch_.loss(mb));
    for (const auto& [stage, held] : stages_)
        if (trains_ && run_.job.plan.shape.runs_forwards_only(stage))
            optimizer_->end_step(stage, step_);
}

DeviceState TrainingDevice::kept_state() {
    if (works_at_once())
        open_bucket_thread();
    return kept_->take();
}

LayerBytes TrainingDevice::bytes_of(int layer, bool last) const {
    const HeldStage& held = stages_.at(run_.job.split.stage_of[layer]);
    return (last ? held.last : held.program)->bytes_of(layer);
}

void TrainingDevice::wait_at_barrier(const Task& task, int node) {
    if (!run_.plan.barriers->begins(node))
        return;
    if (task.op == Op::SumGradients)
        if (BucketedSum* const buckets = buckets_of_sum(task))
            return buckets->wait_for_last(node);
    if (task.op == Op::Update)
        optimizer_->measure(task);
    arrive(node, 0);
}

void TrainingDevice::run(const Task& task, int node) {
    if (task.op == Op::Update)
        optimizer_->update(task, node, step_);
    else if (task.op == Op::SumGradients)
        sums_->sum(node, *statistics_, buckets_of_sum(task));
    else
        compute(task, node);
}

void TrainingDevice::has_run(int node) {
    if (buckets_)
        buckets_->end_pass(node);
}

StageProgram& TrainingDevice::program_of(const Task& task) const {
    const HeldStage& held = stages_.at(task.stage);
    return held.last && run_.job.plan.shape.is_in_last_of_mini_batch(task.microbatch) ? *held.last : *held.program;
}

GradientPart& TrainingDevice::part_of(const Task& task) {
    return memory(task.stage).parts[run_.plan.gradient_part(task.stage, task.microbatch)];
}

// Without momentum there is no direction to predict in: it returns the version itself.
const std::byte* TrainingDevice::weights_for(const Task& task, int version) {
    const HeldStage& held = stages_.at(task.stage);
    const StageMemory& memory = held.memory;
    const TrainingConfig& training = run_.job.setup.training;
    if (const double back = back_of(task, run_.job.versions, run_.job.plan);
        back > 0 && memory.predicted != nullptr && memory.states(0) != nullptr) {
        held.program->predict(memory.weights(version), held.step_average(facts_of(training.optimizer)), back,
                              memory.predicted);
        return memory.predicted;
    }
    const int ahead = ahead_of(task, run_.job.versions);
    if (ahead == 0 || training.momentum == 0 || memory.predicted == nullptr)
        return memory.weights(version);
    held.program->predict(memory.weights(version), memory.states(version), ahead * training.learning_rate,
                          memory.predicted);
    return memory.predicted;
}

// The bucket thread reads these flags while it sums.
void TrainingDevice::note_gradients(const Task& task) {
    Begun& begun = part_of(task).begun;
    begun.input = begun.input || makes_input_gradient(task.op);
    begun.weight = begun.weight || makes_weight_gradient(task.op);
}

const Places& TrainingDevice::bind(const Task& task, int version) {
    HeldStage& held = stages_.at(task.stage);
    const StageMemory& memory = held.memory;
    Places& places = held.places;
    const int mb = task.microbatch;
    places.data = memory.data[mb];
    places.until_input = memory.until_input[mb];
    places.until_weight = memory.until_weight[mb];
    if (std::byte* dropped = memory.dropped[mb]; dropped != nullptr && task.op == Op::Forward) {
        places.until_input = dropped;
        places.until_weight = dropped + program_of(task).layout().until_input;
    }
    places.first_until_again = memory.first_until_again[mb];
    places.first_until_input = memory.first_until_input[mb];
    places.first_until_weight = memory.first_until_weight[mb];
    const bool is_back = task.op != Op::Forward && run_.plan.graph.find({Op::Reload, task.stage, mb}) >= 0;
    places.offloaded_until_input = (is_back ? memory.reloaded_until_input : memory.offloaded_until_input)[mb];
    places.offloaded_until_weight = (is_back ? memory.reloaded_until_weight : memory.offloaded_until_weight)[mb];
    places.gradient_kept = memory.gradient_kept[mb];
    places.slice_gradients = memory.slice_gradients[mb];
    places.workspace = workspace_;
    places.weights = weights_for(task, version);
    places.statistics = trains_ ? memory.left_statistics[mb] : memory.statistics;
    places.gradients = part_of(task).block;
    places.labels = batch_.labels(mb);
    places.training_seed = run_.job.setup.training.seed;
    places.first_sample = run_.first_sample(step_, mb);
    places.loss = batch_.loss(mb);
    bind_earlier(task);
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

// Later slices read the inputs of earlier slices, which stay until the backwards of the earlier slices.
void TrainingDevice::bind_earlier(const Task& task) {
    HeldStage& held = stages_.at(task.stage);
    const StageMemory& memory = held.memory;
    const int slices = run_.job.plan.shape.slice_of(task.microbatch);
    held.places.earlier.resize(static_cast<std::size_t>(slices));
    for (int slice = 0; slice < slices; ++slice) {
        Places& places = held.places.earlier[static_cast<std::size_t>(slice)];
        const int mb = task.microbatch - slices + slice;
        places.until_input = memory.until_input[mb];
        places.until_weight = memory.until_weight[mb];
        places.slice_gradients = memory.slice_gradients[mb];
        places.tensor_in.resize(run_.plan.edges.size());
        for (int edge = 0; edge < static_cast<int>(run_.plan.edges.size()); ++edge)
            places.tensor_in[edge] =
                run_.plan.edges[edge].to == task.stage ? run_.plan.tensors.landed(true, edge, mb) : nullptr;
    }
}

void TrainingDevice::compute(const Task& task, int node) {
    const Job& job = run_.job;
    StageProgram& program = program_of(task);
    const int mb = task.microbatch;
    const Places& places = bind(task, version_of(task, job.versions, job.plan));
    const double scale = 1.0 / static_cast<double>(run_.plan.samples_of(job.plan.shape.mini_batch_of(mb)));
    const Begun begun = part_of(task).begun;
    note_gradients(task);
    std::optional<FillObserver> filling;
    if (buckets_)
        buckets_->begin_pass(node, program, filling);
    switch (task.op) {
        case Op::Forward:
            if (places.data != nullptr)
                kernels_->load_data(run_.data, batch_.samples(mb), places.data);
            program.forward(places, trains_);
            if (program.has_loss() && works_at_once() && !job.setup.run.allow_nan && !std::isfinite(*places.loss))
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
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
            fail_with(ExitCode::RunFailed, "devices do not run {}", print(task));
    }
}

const StageMemory& TrainingDevice::memory_of(int device, int stage) const {
    return run_.kernel_device(device).memory(stage);
}

void TrainingDevice::arrive(int node, int) { run_.plan.barriers->arrive(node, run_.synchronise_ranks()); }

void TrainingDevice::copy(int device, const std::byte* from, std::byte* to, Bytes bytes) {
    if (reads(device))
        kernels_->copy(from, to, bytes);
    else if (bytes > 0)
        fetches_.push_back({device, device_, from, to, bytes});
}

}  // namespace pw
