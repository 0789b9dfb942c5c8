// The block `parallel`: how the devices of a cluster share a transformer.
#include "job/config/blocks.h"
#include "job/config/degree_values.h"
#include "job/setup/rank_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace pw {
namespace {

constexpr auto kParallel = &Config::parallel;
constexpr auto kOfAll = &ParallelConfig::degrees;
constexpr double kHighestSkew = 10;

// Prints one value, or a list with a value for each device of the pipeline.
std::string print_degree_of(const Config& config, Degree degree) {
    const auto print = [&](int value) { return print_degree(degree, value); };
    const std::vector<int> values = values_of(degree, config.parallel.degrees, config.parallel.of_stages);
    return values.size() == 1 ? print(values.front()) : print_list(values, print);
}

template <Degree degree>
std::string schema_of_stages() {
    const std::string value = schema_of_degree(facts_of(degree));
    return fmt::format(R"({{"anyOf": [{}, {{"type": "array", "minItems": 1, "items": {}}}]}})", value, value);
}

// A degree that may differ between stages: finish_parallel() reads lists.
template <Degree degree>
constexpr KeyValue<Config> degrees_key() {
    return {special("a number, or a list with a number for each device of the pipeline", "%", schema_of_stages<degree>),
            [](const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
                const DegreeFacts& facts = facts_of(degree);
                if (at.present() && !at.is_list())
                    facts.set(config.parallel.degrees, read_degree(at, facts));
            },
            [](const Config& config) { return print_degree_of(config, degree); }};
}

void read_recomputed(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    Parallel& parallel = config.parallel.degrees;
    if (!at.present() || at.is_list())
        return;
    const DegreeFacts& facts = facts_of(Degree::Recompute);
    if (!at.is_map()) {
        facts.set(parallel, read_degree(at, facts));
        return;
    }
    std::vector<std::string_view> keys = {"kind"};
    for (const BlockRuleFacts& rule : kBlockRules)
        keys.push_back(rule.name);
    at.allow(keys);
    parallel.recompute = set_of(BlockModule::Block);
    if (at["kind"].present())
        facts.set(parallel, read_degree(at["kind"], facts));
    bool has_rule = false;
    for (const BlockRuleFacts& rule : kBlockRules) {
        const Yaml number = at[std::string(rule.name)];
        if (!number.present())
            continue;
        if (has_rule)
            number.complain(fmt::format("'{}' has two rules that choose blocks", at.path()), "write one of them");
        has_rule = true;
        parallel.recomputed = {
            rule.rule, rule.is_whole ? static_cast<double>(number.integer(1, static_cast<std::int64_t>(rule.least),
                                                                          static_cast<std::int64_t>(rule.most)))
                                     : number.number(1, rule.least, rule.most)};
    }
    if (has_rule && parallel.recompute == ModuleSet{})
        at.complain(fmt::format("'{}' chooses blocks and recomputes nothing in them", at.path()),
                    "write kind: full, or recompute: none");
    else if (parallel.recomputed.group() > 1 && !has(parallel.recompute, BlockModule::Block))
        at["group"].complain("groups of blocks are recomputed as a whole", "write kind: full, or remove group");
}

std::string print_recomputed(const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    const std::string kinds = print_degree_of(config, Degree::Recompute);
    return parallel.recomputed == RecomputedBlocks{} || kinds.front() == '['
               ? kinds
               : fmt::format("{{kind: {}, {}: {}}}", kinds, facts_of(parallel.recomputed.rule).name,
                             parallel.recomputed.number);
}

void read_expert_load(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    if (!at.present())
        return;
    Parallel& parallel = config.parallel.degrees;
    if (!at.is_map()) {
        parallel.expert_load = at.number(1, 1, kHighestDegree);
        return;
    }
    at.allow({"skew", "seed"});
    parallel.expert_draw = {.skew = at["skew"].number(0, 0, kHighestSkew),
                            .seed = static_cast<int>(at["seed"].integer(0, 0, kHighestDegree))};
}

std::string print_expert_load(const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    if (const std::optional<ExpertDraw>& draw = parallel.expert_draw)
        return fmt::format("{{skew: {}, seed: {}}}", draw->skew, draw->seed);
    return parallel.expert_load == 1 ? "" : fmt::format("{}", parallel.expert_load);
}

std::string schema_of_expert_load() {
    return fmt::format(R"({{"anyOf": [{{"type": "number", "minimum": 1, "maximum": {}}},
                       {{"type": "object", "properties": {{"skew": {{"type": "number", "minimum": 0, "maximum": {}}},
                       "seed": {{"type": "integer", "minimum": 0}}}}, "additionalProperties": false}}]}})",
                       kHighestDegree, kHighestSkew);
}

std::string schema_of_recomputed() {
    const std::string kind = schema_of_degree(facts_of(Degree::Recompute));
    std::string properties = fmt::format(R"("kind": {})", kind);
    for (const BlockRuleFacts& rule : kBlockRules)
        properties += fmt::format(R"(, "{}": {{"type": "{}", "minimum": {}}})", rule.name,
                                  rule.is_whole ? "integer" : "number", rule.least);
    return fmt::format(R"({{"anyOf": [{}, {{"type": "array", "minItems": 1, "items": {}}},
                       {{"type": "object", "properties": {{{}}}, "additionalProperties": false}}]}})",
                       kind, kind, properties);
}

struct OverlapName {
    std::string_view name;
    bool Overlap::*flag;
};
constexpr OverlapName kOverlaps[] = {{"tensor", &Overlap::tensor},
                                     {"tensor_backward", &Overlap::tensor_backward},
                                     {"data", &Overlap::data},
                                     {"pipeline", &Overlap::pipeline},
                                     {"expert", &Overlap::expert}};

void read_overlap(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    if (!at.present())
        return;
    Overlap& overlap = config.parallel.degrees.overlap.emplace();
    std::vector<std::string_view> names;
    for (const OverlapName& one : kOverlaps)
        names.push_back(one.name);
    for (const Yaml& item : at.items()) {
        const std::string name = item.choice(std::string("data"), names);
        for (const OverlapName& one : kOverlaps)
            if (one.name == name)
                overlap.*one.flag = true;
    }
}

std::string print_overlap(const Config& config) {
    if (!config.parallel.degrees.overlap)
        return "";
    std::vector<std::string_view> names;
    for (const OverlapName& one : kOverlaps)
        if ((*config.parallel.degrees.overlap).*one.flag)
            names.push_back(one.name);
    return fmt::format("[{}]", fmt::join(names, ", "));
}

// Makes passes wait for all messages before them, as Megatron-LM's pipelines do, where the file does not say otherwise.
void wait_for_messages(const Yaml& at, TransferMode& mode) {
    if (!at["receive"].present())
        mode.receive = TransferMode::Receive::Deferred;
    if (!at["protocol"].present())
        mode.protocol = TransferMode::Protocol::Rendezvous;
    if (!at["exchange"].present())
        mode.exchange = TransferMode::Exchange::Blocking;
}

std::string print_expert_tensor(const Config& config) {
    const int degree = config.parallel.degrees.expert_tensor;
    return degree == 1 ? "" : std::to_string(degree);
}

template <auto member>
constexpr KeyValue<Config> degree_key() {
    KeyValue<Config> degree = integer_key<kParallel, kOfAll, member>(1, kHighestDegree);
    degree.domain.no_list = "all stages have the same degree: one per stage is not possible";
    return degree;
}

constexpr ConfigKey kParallelKeys[] = {
    {"tensor", degrees_key<Degree::Tensor>(), KeyShown::Always, "",
     "devices that share every product (tensor parallelism)", kOfTransformers},
    {"pipeline", degree_key<&Parallel::pipeline>(), KeyShown::Always, "",
     "devices that share the stages of a replica. The plan has a device for each of them", kOfTransformers},
    {"context", degrees_key<Degree::Context>(), KeyShown::Always, "", "devices that share the tokens of a sequence",
     kOfTransformers},
    {"expert", degree_key<&Parallel::expert>(), KeyShown::Always, "",
     "devices of a stage that share the experts of a layer", kOfTransformers},
    {"expert_tensor", printed_as(degree_key<&Parallel::expert_tensor>(), print_expert_tensor), KeyShown::IfSet, "1",
     "devices that share the width of each expert (expert tensor parallelism), see [experts](clusters.md#experts)",
     kOfTransformers},
    {"expert_load",
     {special("1 to 1000000, or `{skew, seed}`", "%", schema_of_expert_load), read_expert_load, print_expert_load},
     KeyShown::IfSet,
     "1",
     "tokens of the device of `expert` that has the most tokens, relative to the mean, or a draw of them, see "
     "[experts](clusters.md#experts). 1: equal loads",
     kOfTransformers},
    {"expert_kernels", choice_key<kParallel, kOfAll, &Parallel::expert_kernels>(), KeyShown::IfSet, "the release's",
     "`grouped`: a device computes all its experts in one call. `sequential`: one after the other", kOfTransformers},
    {"expert_dispatcher", choice_key<kParallel, kOfAll, &Parallel::expert_dispatcher>(), KeyShown::IfSet,
     "the release's",
     "how tokens reach their experts. `alltoall`: a copy for each expert. `gathered`: the same, after the devices of "
     "`tensor` have gathered their tokens. `deepep`: once to each device that has some of a token's experts",
     kOfTransformers},
    {"sequence", flag_key<kParallel, kOfAll, &Parallel::sequence>(), KeyShown::Always, "true with `tensor`",
     "norms and residual sums are shared by the devices of `tensor`, too (sequence parallelism)", kOfTransformers},
    {"zero", degrees_key<Degree::Zero>(), KeyShown::Always, "",
     "what replicas share: 1 states of the optimizer, 2 gradients in addition, 3 weights in addition (ZeRO, FSDP)",
     kOfTransformers},
    {"zero_group", if_given(integer_key<kParallel, kOfAll, &Parallel::zero_group>(1, kHighestDegree)), KeyShown::IfSet,
     "all replicas", "how many replicas share what `zero` names", kOfTransformers},
    {"recompute",
     {special("`none`, `selective`, `norms`, `operators`, `full`, modules joined by `+`, `{kind, first}`", "%",
              schema_of_recomputed),
      read_recomputed, print_recomputed},
     KeyShown::Always,
     "none",
     "what is not saved but computed again in the backward, and in which blocks, see "
     "[recomputation](clusters.md#recomputation)",
     kOfTransformers},
    {"attention", choice_key<kParallel, kOfAll, &Parallel::attention>(), KeyShown::IfSet, "the release's",
     "kernels of attention: `unfused` kernels write scores to memory", kOfTransformers},
    {"fused_norms", if_given(flag_key<kParallel, kOfAll, &Parallel::fuses_norms>()), KeyShown::IfSet, "the release's",
     "whether a norm is one kernel, or separate kernels in fp32", kOfTransformers},
    {"overlap",
     {special("a list of `tensor`, `tensor_backward`, `data`, `pipeline`, `expert`",
              R"({"type": "array", "items": {"enum": ["tensor", "tensor_backward", "data", "pipeline", "expert"]}})"),
      read_overlap, print_overlap},
     KeyShown::IfSet,
     "the release's",
     "the messages that are sent while passes compute",
     kOfTransformers},
    {"cuda_graphs", choice_key<kParallel, kOfAll, &Parallel::cuda_graphs>(), KeyShown::IfSet, "none",
     "kernels that are launched in CUDA graphs, and not one by one by the host. `dense`: all but the kernels of routed "
     "experts. `all`: every kernel, as in graphs of whole blocks or steps and in programs of XLA",
     kOfTransformers},
    {"release", choice_key<kParallel, kOfAll, &Parallel::release>(), KeyShown::IfSet, "nemo-2025",
     "the training program, which determines what overlaps and which kernels are fused. A prediction without the key "
     "has the [band](clusters.md#how-sure-a-prediction-is) of programs that are not known",
     kOfTransformers},
};

bool has_one_for_each(const Yaml& at, std::size_t devices) {
    if (at.items().size() == devices)
        return true;
    at.complain(fmt::format("'{}' has {} values, and the pipeline has {} device{}", at.path(), at.items().size(),
                            devices, devices == 1 ? "" : "s"),
                "write a number for all stages, or one for each device of the pipeline (parallel.pipeline)");
    return false;
}

void finish_parallel(const Yaml& at, Config& config, KeyReading&) {
    if (!is_transformer(config)) {
        for (const ConfigKey& key : kParallelKeys)
            if (at[key.name].present() && !config.workload.model.empty())
                at[key.name].complain(fmt::format("'{}' is for transformers, not for model: {}", at[key.name].path(),
                                                  config.workload.model),
                                      "remove the key, or name one of `pipewright list transformers`");
        return;
    }
    std::vector<Parallel>& all = config.parallel.of_stages;
    Parallel& degrees = config.parallel.degrees;
    const auto is_list = [&](const DegreeFacts& facts) { return facts.by_stage && at[facts.name].is_list(); };
    if (std::ranges::any_of(kDegrees, is_list))
        all.assign(static_cast<std::size_t>(std::min(degrees.pipeline, kMostStages)), degrees);
    for (const DegreeFacts& facts : kDegrees)
        if (is_list(facts) && has_one_for_each(at[facts.name], all.size()))
            for (std::size_t device = 0; device < all.size(); ++device)
                facts.set(all[device], read_degree(at[facts.name].items()[device], facts));
    const auto use_sequence = [&](Parallel& own) {
        own.sequence = at["sequence"].present() ? degrees.sequence : own.tensor > 1;
    };
    std::ranges::for_each(all, use_sequence);
    use_sequence(degrees);
    if (std::ranges::all_of(all, [&](const Parallel& own) { return own == all.front(); }) && !all.empty()) {
        degrees = all.front();
        all.clear();
    } else if (!all.empty()) {
        degrees = all.front();  // what is the same for all stages
    }
}

// Returns whether a degree divides a number, and notes the mistake if it does not.
bool divides(const Yaml& at, std::int64_t degree, std::int64_t number, const std::string& what) {
    if (number % degree == 0)
        return true;
    at.complain(fmt::format("'{}' is {}, which does not divide {}", at.path(), degree, what),
                fmt::format("write a divisor of {}", number));
    return false;
}

// A word for several modules may name modules that the model does not have.
void check_modules(const Yaml& at, ModuleSet set, const Transformer& model) {
    const BlockModuleFacts* missing = missing_module(set, model);
    if (missing != nullptr && name_of(set).empty())
        at.complain(fmt::format("no block of {} has {}", model.name, missing->name),
                    fmt::format("leave {} out", missing->name));
}

void check_experts(const Yaml& at, const Parallel& parallel, const Transformer& model) {
    const int expert = parallel.expert, parts = parallel.expert_tensor, devices = parallel.holders();
    const std::int64_t ranks = std::int64_t{expert} * parts;
    if (ranks == 1)
        return;
    if (!model.experts) {
        at[expert > 1 ? "expert" : "expert_tensor"].complain(fmt::format("{} has no experts", model.name),
                                                             "remove the key");
        return;
    }
    const bool fits = divides(at["expert"], expert, model.experts->count,
                              fmt::format("the {} experts of {}", model.experts->count, model.name)) &&
                      divides(at["expert_tensor"], parts, model.experts->width,
                              fmt::format("the width {} of an expert of {}", model.experts->width, model.name)) &&
                      divides(at["expert"], expert, devices, fmt::format("the {} devices of a stage", devices));
    if (fits && devices % ranks != 0)
        at["expert_tensor"].complain(
            fmt::format("'parallel.expert' {} x 'parallel.expert_tensor' {} are {} devices, which do not divide the {} "
                        "devices of a stage",
                        expert, parts, ranks, devices),
            fmt::format("write a divisor of {}", devices / expert));
}

void check_degrees(const Yaml& at, const Parallel& parallel, const Config& config) {
    const Transformer& model = *config.workload.transformer;
    check_modules(at["recompute"], parallel.recompute, model);
    const std::int64_t heads = config.workload.most_tensor_ranks();
    divides(at["tensor"], parallel.tensor, heads,
            config.workload.encoder          ? fmt::format("the heads of {} and of its encoder", model.name)
            : model.mamba && model.heads > 0 ? fmt::format("the heads of attention and of Mamba-2 of {}", model.name)
                                             : fmt::format("the {} heads of {}", heads, model.name));
    if (parallel.context > 1 && model.mamba)
        at["context"].complain(fmt::format("{} has layers with Mamba-2, whose sequences are not divided", model.name),
                               "remove the key");
    if (parallel.context > 1 && config.workload.encoder)
        at["context"].complain(fmt::format("{} has an encoder, and sequences with images are not divided", model.name),
                               "remove the key");
    if (parallel.context > 1)
        divides(at["context"], parallel.context, config.workload.options.sequence_length,
                fmt::format("the {} tokens of a sequence", config.workload.options.sequence_length));
    if (parallel.zero_group > 0)
        divides(at["zero_group"], parallel.zero_group, parallel.replicas(),
                fmt::format("the {} replicas", parallel.replicas()));
    check_experts(at, parallel, model);
}

// Each replica has equally many full micro-batches.
void check_samples(const Yaml& root, const Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    const Yaml samples = root["pipeline"]["mini_batch"];
    if (!samples.present())
        return;
    const int replicas = config.parallel.degrees.data;
    const std::int64_t each = std::int64_t{replicas} * pipeline.micro_batch_size;
    const std::int64_t micro_batches = pipeline.mini_batch / each;
    const std::string of_replicas = fmt::format("{} replica{} with micro-batches of {}", replicas,
                                                replicas == 1 ? "" : "s", pipeline.micro_batch_size);
    if (pipeline.mini_batch % each != 0)
        samples.complain(
            fmt::format("'pipeline.mini_batch' is {}, but {} take{} multiples of {}", pipeline.mini_batch, of_replicas,
                        replicas == 1 ? "s" : "", each),
            fmt::format("write {}{}", (micro_batches + 1) * each,
                        root["parallel"].present() ? "" : "; for `pipewright search` write search.mini_batch instead"));
    else if (micro_batches > kMostBatches)
        samples.complain(fmt::format("'pipeline.mini_batch' is {}: each of {} has {} of them", pipeline.mini_batch,
                                     of_replicas, micro_batches),
                         fmt::format("write {} or fewer", kMostBatches * each));
    else if (root["pipeline"]["micro_batches"].present() && micro_batches != pipeline.micro_batches)
        samples.complain(fmt::format("'pipeline.mini_batch' is {}: each of {} has {} of them, not {}",
                                     pipeline.mini_batch, of_replicas, micro_batches, pipeline.micro_batches),
                         fmt::format("write micro_batches: {}, or remove one of the keys", micro_batches));
}

}  // namespace

ConfigBlock parallel_block() { return {"parallel", kParallelKeys, finish_parallel}; }

void group_devices(const Yaml& root, Config& config) {
    ParallelConfig& own = config.parallel;
    Parallel& parallel = own.degrees;
    ClusterConfig& cluster = config.cluster;
    PipelineConfig& pipeline = config.pipeline;
    const Yaml at = root["parallel"];
    if (!cluster.kind && (!cluster.device.empty() || root.source().is_mistaken("cluster")))
        return;  // a mistake already noted
    if (!cluster.kind) {
        root["cluster"].complain(
            "costs of transformers are those of a kind of devices, but 'cluster.device' is missing",
            "write device: h100-sxm-80, or another one of `pipewright list devices`");
        return;
    }
    std::int64_t of_replica = 0;
    for (int device = 0; device < parallel.pipeline; ++device)
        of_replica += std::int64_t{own.degrees_of(device).tensor} * own.degrees_of(device).context;
    if (cluster.devices.empty())
        cluster.devices.resize(static_cast<std::size_t>(std::min<std::int64_t>(of_replica, kMostDevices)),
                               usual_device(cluster));
    set_ranks(cluster.devices, own);
    const std::int64_t devices = std::ssize(own.ranks->devices);
    if (root.source().is_mistaken("parallel") || root.source().is_mistaken("cluster"))
        return;  // these degrees or devices are not those of the file
    if (devices % of_replica != 0) {
        at.complain(
            fmt::format("{} are {} devices, which do not divide the {} of the cluster",
                        own.of_stages.empty() ? "tensor x pipeline x context" : "tensor x context of all stages",
                        of_replica, devices),
            "write degrees whose product divides the number of devices");
        return;
    }
    if (!parallel.program().overlap.pipeline)
        wait_for_messages(root["transfer"], config.transfer);
    parallel.data = static_cast<int>(devices / of_replica);
    for (Parallel& degrees : own.of_stages)
        degrees.data = parallel.data;
    for (int device = 0; device < (own.of_stages.empty() ? 1 : parallel.pipeline); ++device)
        check_degrees(at, own.degrees_of(device), config);
    check_samples(root, config);
    const std::int64_t each = std::int64_t{parallel.data} * pipeline.micro_batch_size;
    const bool is_given = root["pipeline"]["mini_batch"].present();
    divide_among_replicas(config, is_given ? pipeline.mini_batch : pipeline.micro_batches * each);
}

}  // namespace pw
