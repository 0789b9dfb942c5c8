#include "exec/training/training.h"

#include "exec/engine/headroom.h"
#include "exec/training/dump.h"
#include "exec/training/parameter_files.h"
#include "job/build.h"

#include <cstring>
#include <utility>

namespace pw {

Training::Training(const RunPlan& the_plan, const RunOptions& options)
    : plan(the_plan),
      job(the_plan.job),
      model(cut_in_slices(*job.model, job.plan.shape.slices)),
      data([&] {
          Dataset whole = open_dataset(job.setup, *job.model);
          whole.cut(job.plan.shape.slices);
          return whole;
      }()),
      dump_(options.dump),
      save_(options.save),
      record_(job, !dump_.empty()) {
    if (plan.resumed != nullptr) {
        for (const NamedTensor& tensor : plan.resumed->parameters)
            resumed_parameters_[tensor.name] = &tensor;
        for (const NamedTensor& tensor : plan.resumed->states)
            resumed_states_[tensor.name] = &tensor;
    }
    synchronise_ranks_ = [this](const Barrier& barrier, const std::vector<int>& others, int tag) {
        synchronise_ranks_at(barrier, others, tag);
    };
    fetches_across_ = [this](const Barrier& barrier, const std::vector<int>& others, int tag) {
        fetch_from_ranks(barrier, others, tag);
    };
}

void Training::add_devices() {
    for (int device = 0; device < job.plan.shape.devices; ++device)
        devices_.push_back(std::make_unique<TrainingDevice>(*this, device));
}

bool Training::uses_cores() const { return any_device().kernels().on_host(); }

std::int64_t Training::first_sample(int step, int microbatch) const {
    const std::int64_t before = plan.resumed == nullptr ? 0 : plan.resumed->samples;
    return before + plan.sizes.first_sample((std::int64_t{step} * job.plan.shape.microbatches + microbatch) /
                                            job.plan.shape.slices);
}

Sample Training::sample(std::int64_t index) const {
    return plan.trains() ? data.sample(index) : Sample{.place = data.place(index)};
}

void Training::leave(int send) {
    const Task& task = plan.graph.task(send);
    const int edge = plan.edge_of(task);
    const bool forward = !carries_gradients(task.op);
    if (const Bytes bytes = plan.moved[send]; bytes > 0)
        std::memcpy(plan.tensors.landed(forward, edge, task.microbatch),
                    plan.tensors.made(forward, edge, task.microbatch), static_cast<std::size_t>(bytes));
}

std::vector<NamedTensor> Training::parameters() const {
    std::vector<std::vector<NamedTensor>> all(devices_.size());
    for (const int device : plan.devices_of_rank(plan.map.own()))
        all[device] = devices_[device]->parameters();
    return without_copies(of_all_ranks(std::move(all)));
}

void Training::take_state() {
    for (const int device : plan.devices_of_rank(plan.map.own()))
        if (!devices_[device]->has_kept())
            devices_[device]->keep_state();
}

DeviceStates Training::make_state() {
    DeviceStates states;
    states.parameters.resize(devices_.size());
    states.states.resize(devices_.size());
    for (const int device : plan.devices_of_rank(plan.map.own())) {
        DeviceState state = devices_[device]->kept_state();
        states.parameters[device] = std::move(state.parameters);
        states.states[device] = std::move(state.states);
    }
    if (plan.map.own() == 0)
        return states;
    DeviceStates sent;
    write_states(sent.message, states);
    return sent;
}

void Training::save(DeviceStates all, Checkpoint& checkpoint) const {
    for (int rank = 1; rank < static_cast<int>(all.messages.size()); ++rank) {
        read_states(all.messages[rank], rank, all);
        all.messages[rank] = {};
    }
    checkpoint.parameters = without_copies(std::move(all.parameters));
    checkpoint.states =
        job.setup.training.zero > 0 ? joined_parts(std::move(all.states)) : without_copies(std::move(all.states));
}

namespace {

const Layer& owner_of_parameters(const LayerGraph& graph, int layer) {
    const std::string& owner = graph[layer].tied_to;
    return owner.empty() ? graph[layer] : graph[find_layer(graph, owner)];
}

}  // namespace

std::vector<std::vector<float>> Training::resumed_parameters(int layer) const {
    std::vector<std::vector<float>> values;
    for (const ParameterShape& parameter : parameters_of(owner_of_parameters(job.model->layers, layer)))
        values.push_back(resumed_parameters_.at(parameter.name)->values);
    return values;
}

std::vector<std::vector<float>> Training::resumed_states(int state, int layer) const {
    if (job.model->layers[layer].frozen)
        return {};
    const std::string suffix = state_suffix(facts_of(job.setup.training.optimizer), state);
    std::vector<std::vector<float>> values;
    for (const ParameterShape& parameter : parameters_of(owner_of_parameters(job.model->layers, layer))) {
        const auto found = resumed_states_.find(parameter.name + suffix);
        values.push_back(found != resumed_states_.end()
                             ? found->second->values
                             : std::vector<float>(static_cast<std::size_t>(parameter.elements())));
    }
    return values;
}

void Training::finish(RunResult& result) {
    std::vector<NamedTensor> all = parameters();
    result.weights_hash = hash_of(all);
    if (!save_.empty())
        written_ = std::move(all);
    if (record_.keeps_tensors())
        for (const auto moment : {Record::Moment::Initial, Record::Moment::Gradients, Record::Moment::Updated})
            record_.replace(moment, of_all_ranks(record_.kept(moment)));
}

void Training::write_files(const RunResult& result) {
    if (plan.map.own() != 0)
        return;
    if (!dump_.empty())
        write_dump(dump_, *this, result.losses.front());
    if (!save_.empty())
        write_parameters(save_, written_);
}

namespace {

class HostTraining : public Training {
public:
    using Training::Training;
    void begin_step(int step) override {
        if (step == 0)
            headroom_.release();
    }

private:
    Headroom headroom_;
};

}  // namespace

std::unique_ptr<Devices> make_training(const RunPlan& plan, const RunOptions& options) {
    auto work = std::make_unique<HostTraining>(plan, options);
    work->add_devices();
    return work;
}

}  // namespace pw
