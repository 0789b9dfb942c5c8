// The block `training`.
#include "job/config/blocks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace pw {
namespace {

using Training = TrainingConfig;
constexpr auto kTraining = &Config::training;

// A transformer on a cluster is trained by another program. What only that program reads has no default, and is not
// printed unless the config has it.
bool is_said(const Config& config, std::string_view key) {
    return !is_transformer(config) || config.places.contains(fmt::format("training.{}", key));
}
constexpr KeyLimit<Config> kIfSaid{is_said, nullptr, Elsewhere::IdleUnprinted};

// The optimizers that read a key.
template <bool OptimizerFacts::*has_it>
constexpr KeyLimit<Config> kOfOptimizers{[](const Config& config, std::string_view key) {
                                             return facts_of(config.training.optimizer).*has_it && is_said(config, key);
                                         },
                                         [](std::string_view) {
                                             std::vector<std::string_view> names;
                                             for (const OptimizerFacts& facts : kOptimizers)
                                                 if (facts.*has_it)
                                                     names.push_back(name_of(facts.kind));
                                             return fmt::format("{}", fmt::join(names, ", "));
                                         },
                                         Elsewhere::IdleUnprinted};

// Clipping is printed where there is some; of a transformer, wherever the config has the key.
std::string print_clip_norm(const Config& config) {
    const double most = config.training.clip_norm;
    return most == 0 && !is_transformer(config) ? "" : print_plain(most);
}

// Another way to write `zero: 1`, which is printed.
constexpr KeyValue<Config> kShardOptimizer{{.kind = KeyKind::Flag},
                                           [](const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
                                               config.training.zero =
                                                   std::max(config.training.zero, at.boolean(false) ? 1 : 0);
                                           },
                                           [](const Config&) { return std::string(); }};

constexpr ConfigKey kTrainingKeys[] = {
    {"steps",
     integer_key<kTraining, &Training::steps>(1, 1'000'000'000),
     KeyShown::Always,
     "",
     "how often a synchronous run repeats its plan. An asynchronous plan has steps × `micro_batches` micro-batches, "
     "at most 100000000",
     {},
     KeyReader::Runs},
    {"optimizer", choice_key<kTraining, &Training::optimizer>(), KeyShown::Always, "",
     "`sgd` with momentum, or `adamw`, both as in PyTorch. `run` trains by these two. The others differ in "
     "[what they keep](metrics.md#what-training-keeps): `adamw-8bit` states in `int8`, `adamw-bf16` everything in "
     "`bf16` without master weights, `muon`, for transformers only, a momentum for the matrices of blocks"},
    {"learning_rate", number_key<kTraining, &Training::learning_rate>(0, 1e6), KeyShown::Always, "",
     "factor of an update", kIfSaid, KeyReader::Runs},
    {"anneal_steps",
     integer_key<kTraining, &Training::anneal_steps>(0, 1'000'000'000),
     KeyShown::IfSet,
     "a quarter of `steps` in pipemare, else 0",
     "with `pipeline.weights: latest`: updates in which the rate of a stage, divided by its delay at first, approaches "
     "`learning_rate` ([schedules.md](schedules.md#pipemare))",
     {},
     KeyReader::Runs},
    {"correction_decay",
     number_key<kTraining, &Training::correction_decay>(1e-9, 0.999999),
     KeyShown::IfSet,
     "",
     "with `pipeline.prediction: pipemare`: the share of a step of the weights in their average, a delay later",
     {},
     KeyReader::Runs},
    {"momentum", number_key<kTraining, &Training::momentum>(0, 1), KeyShown::Always, "",
     "share of the last update that is kept", kOfOptimizers<&OptimizerFacts::has_momentum>, KeyReader::Runs},
    {"betas", numbers_key<kTraining, &Training::betas>(0, 0.999999), KeyShown::Always, "",
     "shares of the running averages of the gradients and of their squares that are kept: two numbers",
     kOfOptimizers<&OptimizerFacts::has_averages>, KeyReader::Runs},
    {"epsilon", number_key<kTraining, &Training::epsilon>(1e-30, 1), KeyShown::Always, "",
     "added to the root of the running average of the squares", kOfOptimizers<&OptimizerFacts::has_averages>,
     KeyReader::Runs},
    {"weight_decay", number_key<kTraining, &Training::weight_decay>(0, 1e6), KeyShown::Always, "",
     "factor of the weights. `sgd` adds the product to the gradients, `adamw` subtracts the product times "
     "`learning_rate` from the weights",
     kIfSaid, KeyReader::Runs},
    {"clip_norm", printed_as(number_key<kTraining, &Training::clip_norm>(0, 1e30), print_clip_norm), KeyShown::Always,
     "0: no clipping",
     "largest L2 norm of all gradients together, not with schedules that never flush. Gradients of a larger norm are "
     "scaled down before the update ([schedules.md](schedules.md#shared-parameters-and-clipping))",
     kIfSaid},
    {"loss",
     choice_key<kTraining, &Training::loss>(),
     KeyShown::Always,
     "",
     "`mse` is the mean squared difference to 1 for the label and 0 for the remaining classes. Both losses are means "
     "over the pixels of a sample and over the samples of a mini-batch",
     {},
     KeyReader::Runs},
    {"batch_norm",
     choice_key<kTraining, &Training::batch_norm>(),
     KeyShown::Always,
     "",
     "running averages include every micro-batch, in micro-batch order. `deferred`: a whole mini-batch at once",
     {},
     KeyReader::Runs},
    {"initial",
     path_key<kTraining, &Training::initial>(),
     KeyShown::IfSet,
     "from the seed",
     "a folder of parameters to start from, each a file `NAME.npy`, as `run --save FOLDER` writes it",
     {},
     KeyReader::Runs},
    {"seed",
     integer_key<kTraining, &Training::seed>(0, std::numeric_limits<std::int64_t>::max()),
     KeyShown::Always,
     "",
     "of initial weights, synthetic data and the order of samples",
     {},
     KeyReader::Runs},
    {"precision", choice_key<kTraining, &Training::precision>(), KeyShown::Always, "",
     "analytic costs are for fp32, with `cluster.device` for any precision. Otherwise a precision but fp32 needs a "
     "profile measured in it, and `cpu` and `reference` compute in fp32",
     kPrecisions},
    {"weight_type", choice_key<kTraining, &Training::types, &KeptTypes::weights>(), KeyShown::IfSet,
     "of `precision`: fp32, else bf16",
     "type of the weights that passes read. `run` takes this key and the next four with backend `emulated` only"},
    {"gradient_type", choice_key<kTraining, &Training::types, &KeptTypes::gradients>(), KeyShown::IfSet,
     "`fp32`, of transformers as `parallel.release` sums them", "type in which gradients are kept and summed"},
    {"master_type", choice_key<kTraining, &Training::types, &KeptTypes::master>(), KeyShown::IfSet,
     "`fp32`, `none` if `precision` is fp32 or tf32",
     "type of the copy of the weights that the optimizer updates, in addition to the weights. `none`: the optimizer "
     "updates "
     "the weights"},
    {"momentum_type", choice_key<kTraining, &Training::types, &KeptTypes::momentum>(), KeyShown::IfSet,
     "`fp32`, or the optimizer's", "type of the first state of the optimizer"},
    {"variance_type", choice_key<kTraining, &Training::types, &KeptTypes::variance>(), KeyShown::IfSet,
     "`fp32`, or the optimizer's", "type of the running average of squared gradients",
     kOfOptimizers<&OptimizerFacts::has_averages>, KeyReader::All},
    {"zero", integer_key<kTraining, &Training::zero>(0, 3), KeyShown::IfSet, "",
     "what the replicas of a stage divide ([schedules.md](schedules.md#replicas)): 1 the optimizer's states (each "
     "replica updates its part), 2 also gradients, 3 also weights. `run` takes 1, everywhere but on `cuda`"},
    {"shard_optimizer", kShardOptimizer, KeyShown::IfSet, "`false`", "`true` is `zero: 1`"},
};

void finish_training(const Yaml& at, Config& config, KeyReading&) {
    if (config.training.betas.size() != 2)
        at["betas"].complain(fmt::format("'training.betas' has {} values", config.training.betas.size()),
                             "write two, such as [0.9, 0.999]");
}

}  // namespace

ConfigBlock training_block() { return {"training", kTrainingKeys, finish_training}; }

}  // namespace pw
