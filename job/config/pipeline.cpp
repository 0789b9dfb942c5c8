// The block `pipeline`.
#include "job/config/blocks.h"
#include "job/setup/pair_times.h"
#include "workloads/models/blocks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <regex>
#include <string>

namespace pw {
namespace {

constexpr int kMostReplicas = 4096;

void read_schedule(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    std::string& schedule = config.pipeline.schedule;
    if (refuse_several(at))
        return;
    schedule = at.text(schedule);
    if (schedule.empty())
        at.complain("'pipeline.schedule' is empty", "write the name of a schedule, such as 1f1b");
    if (schedule.ends_with(".csv"))
        schedule = reading.path_of(schedule);
}

// The key itself precedes claims that follow from other keys.
void read_stages(const KeyDomain& domain, const Yaml& at, Config&, KeyReading& reading) {
    const auto count = static_cast<int>(at.integer(0, domain.least, domain.most));
    reading.claims.insert(reading.claims.begin(), {at, count, fmt::format("'pipeline.stages' is {}", count)});
}

void read_replicas(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    const auto number = [](const Yaml& item) { return static_cast<int>(item.integer(1, 1, kMostReplicas)); };
    if (at.is_text()) {
        config.pipeline.copies = number(at);
        return;
    }
    std::vector<int>& replicas = config.pipeline.replicas;
    for (const Yaml& item : at.items())
        replicas.push_back(number(item));
    if (at.is_list())
        reading.claims.push_back({at, static_cast<int>(replicas.size()),
                                  fmt::format("'pipeline.replicas' has {} entries", replicas.size())});
}

void read_slices(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    PipelineConfig& pipeline = config.pipeline;
    pipeline.slice_tokens.clear();
    if (!at.is_list()) {
        pipeline.slices = static_cast<int>(at.integer(1, 1, kMostSlices));
        return;
    }
    for (const Yaml& item : at.items())
        pipeline.slice_tokens.push_back(static_cast<int>(item.integer(1, 1, std::numeric_limits<int>::max())));
    if (pipeline.slice_tokens.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), "write the tokens of each slice, or a number of slices");
    pipeline.slices = static_cast<int>(pipeline.slice_tokens.size());
}

std::string print_slices(const Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    if (!pipeline.slice_tokens.empty())
        return print_items(pipeline.slice_tokens);
    return pipeline.slices > 0 ? print_plain(pipeline.slices) : "";
}

void read_mini_batch(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading&) {
    PipelineConfig& pipeline = config.pipeline;
    const std::int64_t full = std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
    pipeline.mini_batch = at.integer(full, domain.least, domain.most);
}

// The samples of a step determine how many micro-batches each replica of a transformer has: other degrees then do the
// same work.
std::string print_micro_batches(const Config& config) {
    return is_transformer(config) ? "" : print_plain(config.pipeline.micro_batches);
}

std::string print_mini_batch(const Config& config) {
    const bool is_known = !is_transformer(config) && sizes_of(config.pipeline).is_even();
    return is_known ? "" : print_plain(config.pipeline.mini_batch);
}

void read_unequal(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    config.pipeline.micro_batch_lengths = read_lengths(at, reading);
}

std::string print_replicas(const Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    return pipeline.copies > 1 ? print_plain(pipeline.copies) : print_items(pipeline.replicas);
}

void read_recompute_layers(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.pipeline.recompute_layers = read_layer_names(at);
}

std::string print_recompute_layers(const Config& config) {
    return config.pipeline.recompute_layers.empty() ? "" : print_list(config.pipeline.recompute_layers, quoted);
}

void read_recompute_ahead(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading&) {
    config.pipeline.recompute.ahead = read_ahead(domain, at);
}

std::string print_recompute_ahead(const Config& config) {
    return config.pipeline.recompute.ahead == 0 ? "" : print_ahead(config.pipeline.recompute.ahead);
}

// Prints the stages of `recompute`, `offload` or `offload_states`.
std::string print_stages(const std::vector<int>& stages, const Config& config) {
    using Recompute = PipelineConfig::Recompute;
    if (!stages.empty() && std::ssize(stages) != config.pipeline.stages)
        return print_items(stages);
    return std::string(name_of(stages.empty() ? Recompute::None : Recompute::All));
}

std::string print_recompute(const Config& config) { return print_stages(config.pipeline.recompute.stages, config); }

template <std::vector<int> Offloading::*stages>
std::string print_offload(const Config& config) {
    const std::vector<int>& own = config.pipeline.offload.*stages;
    return own.empty() ? "" : print_stages(own, config);
}

void read_offload_layers(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.pipeline.offload_layers = read_layer_names(at);
}

std::string print_offload_layers(const Config& config) {
    return config.pipeline.offload_layers.empty() ? "" : print_list(config.pipeline.offload_layers, quoted);
}

void refuse_later_key(const KeyDomain&, const Yaml& at, Config&, KeyReading&) {
    at.integer(1, 1, kMostBatches);
    not_in_this_version(at, fmt::format("'{}'", at.path()), "remove the key");
}

template <class Value>
constexpr Value read_by(Value value, decltype(Value::read) read) {
    value.read = read;
    return value;
}

using Pipeline = PipelineConfig;
constexpr auto kPipeline = &Config::pipeline;
constexpr KeyValue<Config> kLaterKey = if_given(KeyValue<Config>{{}, refuse_later_key});

std::string print_pair_exposed(const Config& config) {
    return says_times_of_pairs(config) ? fmt::format("{}", config.pipeline.pair_exposed) : "";
}

constexpr auto kSomeStages =
    special("`none`, `all`, `[stage, …]`",
            R"({"anyOf": [{"enum": ["none", "all"]}, {"type": "array", "items": {"type": "integer", "minimum": 0}}]})");

constexpr ConfigKey kPipelineKeys[] = {
    {"schedule",
     {special("a name, or a plan `*.csv`", R"({"type": "string"})"), read_schedule,
      [](const Config& config) { return quoted(config.pipeline.schedule); },
      [](Config& config) { return &config.pipeline.schedule; }},
     KeyShown::Always,
     "",
     "a name of `pipewright list schedules`, or a plan, see [schedules.md](schedules.md)"},
    {"stages", if_given(read_by(integer_key<kPipeline, &Pipeline::stages>(1, kMostStages), read_stages)),
     KeyShown::Always, "see below", "number of stages"},
    {"split",
     {special("`auto`, `even`, `[layer, …]`, `{stages: [[layer, …], …]}`, `[blocks, …]`, a layout",
              R"({"anyOf": [{"enum": ["auto", "even"]}, {"$ref": "#/$defs/names"},
                {"type": "string", "pattern": "^[EtL|()*, 0-9]+$"}, {"type": "object",
                "properties": {"stages": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/names"}}},
                "required": ["stages"], "additionalProperties": false}]})"),
      read_split, print_split},
     KeyShown::Always,
     "",
     "which layers make each stage, see below"},
    {"cuts", choice_key<kPipeline, &Pipeline::cut_at>(), KeyShown::IfSet, "",
     "where `split: auto`, `split: even` and searches cut the layers of a model: before any layer, or only between "
     "blocks, such as `h.3` or `layer3.0`, see [between blocks](search.md#between-blocks)"},
    {"micro_batches",
     printed_as(integer_key<kPipeline, &Pipeline::micro_batches>(1, kMostBatches), print_micro_batches),
     KeyShown::Always, "", "per mini-batch, in asynchronous plans per step, for transformers of each replica"},
    {"micro_batch_size", integer_key<kPipeline, &Pipeline::micro_batch_size>(1, kMostBatches), KeyShown::Always, "",
     "samples"},
    {"mini_batch",
     {{.kind = KeyKind::Integer, .least = 1, .most = kMostBatches * kMostBatches, .may_be_empty = true},
      read_mini_batch,
      print_mini_batch},
     KeyShown::Always,
     "`micro_batches` × `micro_batch_size`",
     "samples per update, of all replicas, which determine the number of micro-batches where `micro_batches` is "
     "absent. Where `micro_batch_size` does not divide `mini_batch`, the last micro-batch is "
     "[smaller](#a-smaller-last-micro-batch)"},
    {"micro_batch_lengths",
     if_given(KeyValue<Config>{
         special("`[number, …]`, `[{F, B, I, W, bytes}, …]`, a CSV", "%", lengths_schema), read_unequal,
         [](const Config& config) { return print_lengths(config.pipeline.micro_batch_lengths); }}),
     KeyShown::IfSet, "all equal",
     "the factor of the length of each micro-batch, as a list or as the path of a CSV, see [micro-batches of unequal "
     "length](#micro-batches-of-unequal-length)"},
    {"replicas",
     {special("1 to 4096, or a list of these",
              R"({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 4096},
                {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 4096}}]})"),
      read_replicas, print_replicas},
     KeyShown::IfSet,
     "1",
     "a number: as many copies of the whole pipeline share the micro-batches, with any schedule. A list: per stage "
     "the number of devices that share the micro-batches of the stage ([schedules.md](schedules.md#replicas))"},
    {"weights", choice_key<kPipeline, &Pipeline::weights>(), KeyShown::IfSet, "the schedule's",
     "weight policy: pipedream takes `stash`, `vertical_sync` and `latest`, each of the remaining schedules only its "
     "own policy"},
    {"prediction", choice_key<kPipeline, &Pipeline::prediction>(), KeyShown::IfSet,
     "`pipemare` in pipemare, else `none`",
     "with `weights: latest`: read weights predicted from the momentum, see "
     "[schedules.md](schedules.md#predicted-weights), or corrected, see [pipemare](schedules.md#pipemare)"},
    {"rules", choice_key<kPipeline, &Pipeline::rules>(), KeyShown::IfSet, "", "`mindspore`: stricter rules, see below"},
    {"drain", choice_key<kPipeline, &Pipeline::options, &ScheduleOptions::drain>(), KeyShown::IfSet, "the schedule's",
     "gpipe (`fifo`), bfs (`lifo`): the order of the backwards"},
    {"group", if_given(integer_key<kPipeline, &Pipeline::options, &ScheduleOptions::group>(1, kMostBatches)),
     KeyShown::IfSet, "PyTorch's rule", "interleaved, zb1p: micro-batches per group, by Megatron's rule"},
    {"pairs", flag_key<kPipeline, &Pipeline::options, &ScheduleOptions::pairs>(), KeyShown::IfSet, "",
     "interleaved: after a forward more, each forward runs in a [pair](schedules.md#pairs) with the backward after it, "
     "as in Megatron-Core's combined 1F1B"},
    {"activations",
     if_given(integer_key<kPipeline, &Pipeline::options, &ScheduleOptions::activations>(1, kMostBatches)),
     KeyShown::IfSet, "the devices' memory, else the number of devices",
     "auto in any placement: the most micro-batches whose activations a device holds until `W`"},
    {"aim", choice_key<kPipeline, &Pipeline::options, &ScheduleOptions::aim>(), KeyShown::IfSet, "",
     "auto in any placement: what is shortened, the `step` or the `span` ([metrics.md](metrics.md))"},
    {"effort", number_key<kPipeline, &Pipeline::options, &ScheduleOptions::effort>(0.001, 1000), KeyShown::IfSet, "",
     "auto in any placement: how many orders are tried, in multiples of the usual number"},
    {"micro_batch_order", choice_key<kPipeline, &Pipeline::options, &ScheduleOptions::micro_batches>(), KeyShown::IfSet,
     "",
     "auto in any placement, with `micro_batch_lengths`: whether the micro-batches of a step run in the `given` order, "
     "or in `any`, which the schedule chooses"},
    {"current_plan", path_key<kPipeline, &Pipeline::current_plan>(), KeyShown::IfSet, "none",
     "auto in any placement: the plan in use, as CSV, which is kept unless the order found is shorter: so a plan never "
     "gets longer where tasks get faster"},
    {"concatenation", choice_key<kPipeline, &Pipeline::options, &ScheduleOptions::concatenation>(), KeyShown::IfSet, "",
     "chimera with more micro-batches than devices: how its units follow each other, see "
     "[schedules.md](schedules.md#chimera)"},
    {"pair_exposed", printed_as(number_key<kPipeline, &Pipeline::pair_exposed>(0, 1), print_pair_exposed),
     KeyShown::IfSet, "1",
     "dualpipe, dualpipe-v and pairs in a CSV, where their time is not measured: a pair of overlapped tasks takes as "
     "long as the longer task and this share of the shorter task, see [schedules.md](schedules.md#pairs). With 1 a "
     "pair takes as long as its tasks in sequence. Replaces the times of pairs of a transformer with experts"},
    {"synchronous_steps",
     integer_key<kPipeline, &Pipeline::options, &ScheduleOptions::synchronous_steps>(0, 1'000'000'000), KeyShown::IfSet,
     "", "pipemare: the first steps of a run, which are flushed as in 1f1b"},
    {"slices",
     if_given(KeyValue<Config>{special("integer, `[tokens, …]`",
                                       R"({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535},
                {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}}]})"),
                               read_slices, print_slices}),
     KeyShown::IfSet, "2, in forward-only 1",
     "seq1f1b, forward-only: parts that the sequences of every micro-batch are cut into, as a number or as a list of "
     "the tokens of each part. Where the tokens of a sequence are not known, the list has the proportions"},
    {"slice_lengths", choice_key<kPipeline, &Pipeline::slice_lengths>(), KeyShown::IfSet, "",
     "seq1f1b, forward-only with a number of slices: slices with equally many tokens, or slices that take equal time, "
     "as later tokens attend to more keys"},
    {"recompute",
     {kSomeStages, nullptr, print_recompute},
     KeyShown::Always,
     "`none`",
     "stages that save nothing in `F` and recompute `F` before the backward pass, see "
     "[schedules.md](schedules.md#recompute). Without backward passes the key has no effect"},
    {"recompute_layers",
     {special("`[layer, …]`", R"({"$ref": "#/$defs/names"})"), read_recompute_layers, print_recompute_layers},
     KeyShown::IfSet,
     "all layers",
     "with `recompute`: the layers of these stages that are recomputed, by the name of the layer or of its block, "
     "with `*` for any characters and `h.0-3` for a range. `F` keeps what the remaining layers save"},
    {"recompute_saved", integer_key<kPipeline, &Pipeline::recompute, &Recomputation::saved>(0, kMostBatches),
     KeyShown::IfSet, "",
     "with `recompute`: micro-batches of each window whose `F` saves everything, so that no `R` runs. A window is as "
     "many micro-batches as the stage has in flight"},
    {"recompute_ahead",
     {{.least = 0,
       .most = kMostBatches,
       .takes = "0 to 1000000, `auto`",
       .schema = R"({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": 1000000}]})"},
      read_recompute_ahead,
      print_recompute_ahead},
     KeyShown::IfSet,
     "0",
     "with `recompute`: how many further `R` of a device run before its first backward, while the device waits for "
     "the gradient. `auto`: `R` run early wherever the device is idle, as far as that shortens the step and the "
     "memory suffices"},
    {"offload",
     {kSomeStages, nullptr, print_offload<&Offloading::stages>},
     KeyShown::IfSet,
     "`none`",
     "stages whose `F` saves into the memory of the host until the backward pass, over `cluster.host_link`, see "
     "[schedules.md](schedules.md#offload). Without backward passes the key has no effect"},
    {"offload_layers",
     {special("`[layer, …]`", R"({"$ref": "#/$defs/names"})"), read_offload_layers, print_offload_layers},
     KeyShown::IfSet,
     "all layers",
     "with `offload`: the layers of these stages whose saved tensors leave the device, by the name of the layer or of "
     "its block, with `*` for any characters and `h.0-3` for a range"},
    {"offload_share", number_key<kPipeline, &Pipeline::offload_share>(0, 1), KeyShown::IfSet, "",
     "with `offload`: the part of these tensors that leaves the device. `run` takes whole layers only"},
    {"offload_ahead", integer_key<kPipeline, &Pipeline::offload, &Offloading::ahead>(1, kMostBatches), KeyShown::IfSet,
     "",
     "with `offload`: the tasks of a device during which a copy may run. A micro-batch that is back after fewer tasks "
     "than both copies and another task need stays on the device"},
    {"offload_states",
     {kSomeStages, nullptr, print_offload<&Offloading::states>},
     KeyShown::IfSet,
     "`none`",
     "stages whose optimizer states are on the device for the update only, and else in the memory of the host, over "
     "`cluster.host_link`, see [schedules.md](schedules.md#optimizer-states). Schedules that never flush refuse the "
     "key. `search` takes `all`"},
    {"offload_states_ahead", integer_key<kPipeline, &Pipeline::offload, &Offloading::states_ahead>(1, kMostBatches),
     KeyShown::IfSet, "",
     "with `offload_states`: the tasks of a device during which the states of a stage may leave at the start of the "
     "step, and return before the update. States that would be away during no task stay on the device"},
    {"waves", kLaterKey},
};

// Sets the samples of a mini-batch: all micro-batches are full, or the last one is smaller.
void finish_pipeline(const Yaml& at, Config& config, KeyReading&) {
    PipelineConfig& pipeline = config.pipeline;
    const std::int64_t size = pipeline.micro_batch_size;
    const std::int64_t asked = pipeline.mini_batch;
    const std::int64_t needed = (asked + size - 1) / size;
    if (!at["mini_batch"].present())
        pipeline.mini_batch = pipeline.micro_batches * size;
    else if (is_transformer(config))
        return;  // group_devices() divides the samples among the replicas
    else if (!at["micro_batches"].present() && needed <= kMostBatches)
        pipeline.micro_batches = static_cast<int>(needed);
    else if (needed != pipeline.micro_batches)
        at["mini_batch"].complain(
            fmt::format("{} samples are {} micro-batches of {}, not {}", asked, needed, size, pipeline.micro_batches),
            fmt::format("write micro_batches: {}, or remove one of the keys", needed));
}

}  // namespace

std::string read_layer_name(const Yaml& at) {
    const std::string name = at.text();
    if (name.empty() && at.is_text())
        at.complain(fmt::format("'{}' is an empty name", at.path()), "write the name of a layer, such as layer3.0");
    return name;
}

namespace {

// Adds a name, or for a range of numbers, as in h.0-2.attn, a name for each of them.
void add_names(const Yaml& at, const std::string& name, std::vector<std::string>& names) {
    static const std::regex kRange(R"((.*\.)(\d{1,4})-(\d{1,4})(\..*)?)");
    std::smatch range;
    const bool is_range = std::regex_match(name, range, kRange);
    const int first = is_range ? std::stoi(range[2]) : 0, last = is_range ? std::stoi(range[3]) : 0;
    if (last < first)
        at.complain(fmt::format("the range {}-{} of '{}' is empty", first, last, name),
                    "write the smaller number first");
    if (!is_range || last < first)
        return names.push_back(name);
    for (int number = first; number <= last; ++number)
        names.push_back(fmt::format("{}{}{}", range[1].str(), number, range[4].str()));
}

}  // namespace

std::vector<std::string> read_layer_names(const Yaml& at) {
    std::vector<std::string> names;
    for (const Yaml& item : at.items())
        add_names(item, read_layer_name(item), names);
    if (at.is_list() && names.empty())
        at.complain(fmt::format("'{}' is empty", at.path()),
                    "name layers, such as layer3 or *.relu, or remove the key");
    return names;
}

ConfigBlock pipeline_block() { return {"pipeline", kPipelineKeys, finish_pipeline}; }

std::vector<int> read_stages(const Yaml& list, int stages) {
    std::vector<int> found;
    if (list.present())
        for (const Yaml& item : list.items())
            found.push_back(static_cast<int>(item.integer(0, 0, stages - 1)));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

std::vector<int> read_recompute(const Yaml& recompute, int stages) {
    std::vector<int> found;
    if (recompute.is_list()) {
        found = read_stages(recompute, stages);
    } else if (recompute.choice<PipelineConfig::Recompute>() == PipelineConfig::Recompute::All) {
        found.resize(static_cast<std::size_t>(stages));
        std::iota(found.begin(), found.end(), 0);
    }
    return found;
}

constexpr std::string_view kAheadByCosts = "auto";

int read_ahead(const KeyDomain& domain, const Yaml& at) {
    const std::string text = at.is_text() ? at.text() : "";
    if (text == kAheadByCosts)
        return Recomputation::kByCosts;
    if (text.find_first_not_of("-+.0123456789") == text.npos)
        return static_cast<int>(at.integer(0, domain.least, domain.most));
    at.complain(fmt::format("'{}' is '{}'", at.path(), text),
                fmt::format("write a number from 0 to {}, or {}", domain.most, kAheadByCosts));
    return 0;
}

std::string print_ahead(int ahead) {
    return ahead == Recomputation::kByCosts ? std::string(kAheadByCosts) : print_plain(ahead);
}

}  // namespace pw
