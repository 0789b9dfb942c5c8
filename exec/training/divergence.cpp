// The diagnosis of a run whose numbers are no longer finite. It begins only when a loss or a norm is not finite.
#include "exec/backends.h"
#include "exec/training/training.h"
#include "workloads/error.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace pw {

namespace {

constexpr const char* kHelpNotFinite = "\n  help: lower training.learning_rate, or set run.allow_nan: true to continue";

bool are_finite(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Finds the first layer of an F whose output is not finite.
class FirstNotFinite : public PassObserver {
public:
    explicit FirstNotFinite(const StageProgram& program) : program_(program) {}
    void before(int, Pass, const LayerArgs&) override {}
    void after(int layer, Pass, const LayerArgs& args) override {
        if (found < 0 && args.output != nullptr && !are_finite(program_.kernel(layer).read_output(args.output)))
            found = layer;
    }
    int found = -1;

private:
    const StageProgram& program_;
};

}  // namespace

// Runs F once more, in memory of its own except for the weights and the data's samples.
int TrainingDevice::first_not_finite(const Task& forward, const std::vector<std::byte*>& tensors) {
    StageProgram& program = program_of(forward);
    const StageLayout& layout = program.layout();
    Places places = bind(forward, version_of(forward, run_.job.versions, run_.job.plan));
    std::vector<std::unique_ptr<Memory>> taken;
    const auto take = [&](Bytes bytes) {
        taken.push_back(kernels_->reserve(std::max<Bytes>(bytes, 64), "the layer that is not finite"));
        return taken.back()->data();
    };
    places.data = take(layout.data);
    places.until_input = take(layout.until_input);
    places.until_weight = take(layout.until_weight);
    places.first_until_again = take(layout.first_until_again);
    places.first_until_input = take(layout.first_until_input);
    places.first_until_weight = take(layout.first_until_weight);
    places.offloaded_until_input = take(layout.offloaded_until_input);
    places.offloaded_until_weight = take(layout.offloaded_until_weight);
    places.workspace = take(layout.forward_workspace);
    places.tensor_in = places.tensor_out = tensors;
    if (trains_)
        places.statistics = take(layout.statistics);
    if (program.reads_data())
        kernels_->load_data(run_.data, batch_.samples(forward.microbatch), places.data);
    FirstNotFinite first(program);
    program.set_observer(&first);
    program.forward(places, trains_);
    program.set_observer(nullptr);
    return first.found;
}

bool TrainingDevice::has_finite_parameters(const Task& forward, int layer) {
    const std::byte* weights = bind(forward, version_of(forward, run_.job.versions, run_.job.plan)).weights;
    const std::byte* statistics = memory(forward.stage).statistics;
    const StageProgram& program = program_of(forward);
    if (const LayerBytes bytes = program.bytes_of(layer); bytes.weights + bytes.frozen == 0)
        return true;
    const StageLayout& layout = program.layout();
    return std::ranges::all_of(
        program.kernel(layer).store(weights + layout.weight_offset[layer],
                                    statistics == nullptr ? nullptr : statistics + layout.statistics_offset[layer]),
        are_finite);
}

void Training::refuse_loss(int step, int microbatch) {
    const std::lock_guard lock(not_finite_mutex_);
    if (!not_finite_ || microbatch < *not_finite_)
        not_finite_ = microbatch;
    step_not_finite_ = step;
    fail_with(ExitCode::RunFailed, "the loss of micro-batch {} is not finite",
              number_of(job.plan.shape.task(Op::Forward, 0, microbatch)));
}

// The step is the repeat of a synchronous plan, and the mini-batch of an asynchronous one.
std::string Training::place_of(int step, int microbatch) const {
    const int number = job.plan.asynchronous ? job.plan.shape.mini_batch_of(microbatch) : step;
    return fmt::format("step {}", number + 1);
}

void Training::explain() {
    if (!not_finite_)
        return;
    const int microbatch = *not_finite_, devices = job.plan.shape.devices;
    const std::string fact =
        fmt::format("{}: the loss of micro-batch {} is not finite", place_of(step_not_finite_, microbatch),
                    number_of(job.plan.shape.task(Op::Forward, 0, microbatch)));
    if (plan.map.size() > 1)
        fail_with(ExitCode::RunFailed, "{}; the first such layer cannot be found across ranks{}", fact, kHelpNotFinite);
    std::vector<std::unique_ptr<Memory>> taken;
    std::vector<std::byte*> tensors;
    for (const EdgeBytes& edge : plan.edges) {
        taken.push_back(any_device().kernels().reserve(std::max<Bytes>(edge.forward, 64), "a tensor"));
        tensors.push_back(taken.back()->data());
    }
    for (int stage = 0; stage < job.plan.shape.stages; ++stage) {
        const int device = plan.graph.holder(stage, microbatch);
        (void)open_kernels(job.setup, devices)(device);  // for this thread
        const Task forward = job.plan.shape.task(Op::Forward, stage, microbatch);
        const int layer = devices_[device]->first_not_finite(forward, tensors);
        if (layer < 0)
            continue;
        const bool weights = devices_[device]->has_finite_parameters(forward, layer);
        fail_with(ExitCode::RunFailed, "{}: the first output that is not finite is that of layer '{}'{}{}", fact,
                  job.model->layers[layer].name,
                  weights ? ", whose parameters are finite" : ", whose parameters are not finite either",
                  kHelpNotFinite);
    }
    fail_with(ExitCode::RunFailed, "{}; with the current weights, the outputs of all layers are finite{}", fact,
              kHelpNotFinite);
}

void Training::check_numbers(int step) const {
    if (job.setup.run.allow_nan)
        return;
    const std::vector<double>& losses = record_.losses();
    for (std::size_t mb = 0; mb < losses.size(); ++mb)
        if (!std::isfinite(losses[mb]))  // the queue has continued: the weights have changed since then
            fail_with(ExitCode::RunFailed,
                      "{}: the loss of micro-batch {} is not finite; the first such layer cannot be found on {}{}\n"
                      "  help: run.backend: cpu finds it",
                      place_of(step, static_cast<int>(mb)), mb, name_of(job.setup.run.backend), kHelpNotFinite);
    for (int update = 0; update < record_.updates(); ++update) {
        const std::span<const double> squares = record_.squares_of(update);
        for (std::size_t layer = squares.size(); layer-- > 0;)
            if (!std::isfinite(squares[layer]))
                fail_with(ExitCode::RunFailed,
                          "{}: the gradient norm is not finite. In the order of the backward, the first layer whose "
                          "parameters have such gradients is '{}'{}",
                          place_of(step, job.plan.shape.last_of(update)), job.model->layers[layer].name,
                          kHelpNotFinite);
    }
}

}  // namespace pw
