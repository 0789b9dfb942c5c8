// The block `run`.
#include "job/config/blocks.h"

namespace pw {
namespace {

using Run = RunConfig;
constexpr auto kRun = &Config::run;

void read_transport(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.run.transport = at.choice(RunConfig::Transport::Auto);
}

constexpr KeyValue<Config> with_auto(KeyValue<Config> transport) {
    transport.read = read_transport;
    return transport;
}

constexpr KeyValue<Config> earlier_name_of_precision() {
    auto precision = if_given(choice_key<&Config::training, &TrainingConfig::precision>());
    precision.print = nullptr;
    return precision;
}

constexpr ConfigKey kRunKeys[] = {
    {"backend", choice_key<kRun, &Run::backend>(), KeyShown::Always, "", "`pipewright list backends` describes them"},
    {"transport",
     with_auto(choice_key<kRun, &Run::transport>()),
     KeyShown::Always,
     "`auto`",
     "`threads` passes tensors by pointer, `mpi` is for devices of several processes ([ranks.md](ranks.md)), `link` "
     "is like `threads` but takes the time of `cluster.link`, `nccl` is between GPUs in one process or several, and "
     "`auto` is `mpi` (with cuda `nccl`) if a launcher has started several processes, else `threads`. `mpi` and "
     "`link` are for cpu and reference, `nccl` is for cuda",
     {},
     KeyReader::All},
    {"threads_per_device", integer_key<kRun, &Run::threads_per_device>(1, 4096), KeyShown::Always, "",
     "pinned cores of each device"},
    {"timeout", time_key<kRun, &Run::timeout>(1'000'000), KeyShown::Always, "",
     "after this time without progress a device counts as silent, and the run ends with exit code 5, see below"},
    {"gradient_order", choice_key<kRun, &Run::gradient_order>(), KeyShown::Always, "", "only `plan` in this version"},
    {"fan_out_gradients", choice_key<kRun, &Run::fan_out_gradients>(), KeyShown::IfSet, "",
     "how the gradients of a tensor with several readers are summed, in predictions, runs and `search` "
     "([schedules.md](schedules.md#tensors-with-several-readers)). `stage`: each stage sums the gradients of its own "
     "layers and sends back one gradient, `layer`: gradients are summed in reverse layer order over all stages, so "
     "that every split gives the same bits, at the price of more transfers"},
    {"allow_nan", flag_key<kRun, &Run::allow_nan>(), KeyShown::IfSet, "",
     "continue when a loss or a gradient norm is not finite. Otherwise the run ends with exit code 1"},
    {"precision", earlier_name_of_precision(), KeyShown::IfSet, "`training.precision`",
     "the earlier name of `training.precision`", kOnGpus},
    {"deterministic", flag_key<kRun, &Run::deterministic>(), KeyShown::Always, "",
     "algorithms chosen by shape, so that bits repeat. `false`: the fastest algorithms by timing or by "
     "`cluster.profile`, and sums between GPUs in [an order of NCCL's](gpu.md#sums)",
     kOnGpus},
    {"gpus", integers_key<kRun, &Run::gpus>(0, 1023), KeyShown::Always, "spread over all GPUs",
     "the GPU of each device, as in `[0, 0, 1, 1]`", kOnGpus},
    {"sms", integers_key<kRun, &Run::sms>(8, 65'536), KeyShown::Always, "equal shares",
     "multiprocessors of each device on its GPU, multiples of 8", kOnGpus},
    {"graph", choice_key<kRun, &Run::graph>(), KeyShown::IfSet, "`task` if tasks repeat, else `none`",
     "what is launched as one CUDA graph from the second step on: each `task` that computes, the whole `step`, or "
     "`none`, see [gpu.md](gpu.md#keys)",
     kOnGpus},
};

void finish_run(const Yaml& at, Config& config, KeyReading&) {
    if (config.run.gradient_order != RunConfig::GradientOrder::Plan)
        not_in_this_version(at["gradient_order"], "gradient_order: micro_batch", "write gradient_order: plan");
}

}  // namespace

ConfigBlock run_block() { return {"run", kRunKeys, finish_run, BlockShown::Always, KeyReader::Runs}; }

}  // namespace pw
