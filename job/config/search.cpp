// The block `search`.
#include "job/config/blocks.h"
#include "job/config/degree_values.h"

#include <algorithm>
#include <set>

namespace pw {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{kMostBatches} * kMostBatches;

// Reads the items of a list that must not be empty and must list each item once.
template <class T, class Read>
std::vector<T> read_different(const Yaml& at, Read read) {
    std::vector<T> values;
    std::set<T> seen;
    for (const Yaml& item : at.items()) {
        values.push_back(read(item));
        if (!seen.insert(values.back()).second)
            item.complain(
                fmt::format("'{}' is listed twice in '{}'", item.is_text() ? item.text() : item.path(), at.path()),
                "write it once");
    }
    if (at.is_list() && values.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), "write what to try, or remove the key");
    return values;
}

// A list of numbers without repetition.
template <auto... members>
constexpr KeyValue<Config> counts_key(std::int64_t most, std::int64_t least = 1) {
    KeyValue<Config> value = integers_key<members...>(least, most);
    value.read = [](const KeyDomain& domain, const Yaml& at, Config& config, KeyReading&) {
        member_of<members...>(config) = read_different<int>(
            at, [&](const Yaml& item) { return static_cast<int>(item.integer(1, domain.least, domain.most)); });
    };
    return value;
}

std::vector<std::vector<int>>& items_of(Config& config, Degree degree) {
    return config.search.degrees[static_cast<std::size_t>(degree)];
}

// Reads items that are one value for all stages, or, if stages may differ, a value for each device of the pipeline.
void read_degrees(const Yaml& at, Config& config, Degree degree) {
    const DegreeFacts& facts = facts_of(degree);
    items_of(config, degree) = read_different<std::vector<int>>(at, [&](const Yaml& item) {
        if (!item.is_list() || !facts.by_stage)
            return std::vector{read_degree(item, facts)};
        std::vector<int> values;
        for (const Yaml& of_device : item.items())
            values.push_back(read_degree(of_device, facts));
        if (std::ranges::count(values, values.empty() ? 0 : values.front()) == std::ssize(values))
            item.complain(fmt::format("'{}' has no values that differ", item.path()),
                          "write the value of all stages without brackets, or a value for each device of the pipeline");
        return values;
    });
}

std::string print_degrees(const Config& config, Degree degree) {
    const std::vector<std::vector<int>>& items = config.search.degrees[static_cast<std::size_t>(degree)];
    const auto print = [&](int value) { return print_degree(degree, value); };
    return items.empty() ? "" : print_list(items, [&](const std::vector<int>& values) {
        return values.size() == 1 ? print(values.front()) : print_list(values, print);
    });
}

template <Degree degree>
std::string schema_of_degrees() {
    const std::string value = schema_of_degree(facts_of(degree));
    return fmt::format(R"({{"type": "array", "minItems": 1, "items": {{"anyOf": [{}, {{"type": "array", "minItems": 2,
                       "items": {}}}]}}}})",
                       value, value);
}

// Values of a degree to try.
template <Degree degree>
constexpr KeyValue<Config> tried_degrees_key() {
    constexpr DegreeFacts facts = facts_of(degree);
    return {facts.by_stage ? special("a list, each a number, or a list with a number for each device of the pipeline",
                                     "%", schema_of_degrees<degree>)
                           : KeyDomain{.kind = KeyKind::Integers, .least = facts.least, .most = facts.most},
            [](const KeyDomain&, const Yaml& at, Config& config, KeyReading&) { read_degrees(at, config, degree); },
            [](const Config& config) { return print_degrees(config, degree); }};
}

// Stages that are recomputed, or for transformers on a cluster what is.
void read_recompute_of_search(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    if (!searches_cluster(config))
        config.search.recompute = at.choice(config.search.recompute);
    else if (at.is_text())
        items_of(config, Degree::Recompute) = {{read_degree(at, facts_of(Degree::Recompute))}};
    else
        read_degrees(at, config, Degree::Recompute);
}

std::string print_recompute_of_search(const Config& config) {
    return searches_cluster(config) ? print_degrees(config, Degree::Recompute)
                                    : std::string(name_of(config.search.recompute));
}

constexpr std::string_view kCheapestLayers = "auto";

void read_recompute_layers_of_search(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.search.cheapest_layers = at.is_text() && at.text() == kCheapestLayers;
    if (!config.search.cheapest_layers)
        config.search.recompute_layers = read_different<std::vector<std::string>>(at, read_layer_names);
}

std::string print_recompute_layers_of_search(const Config& config) {
    if (config.search.cheapest_layers)
        return std::string(kCheapestLayers);
    const auto names = [](const std::vector<std::string>& layers) { return print_list(layers, quoted); };
    return config.search.recompute_layers.empty() ? "" : print_list(config.search.recompute_layers, names);
}

void read_recompute_ahead_of_search(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading&) {
    config.search.recompute_ahead = read_different<int>(at, [&](const Yaml& item) { return read_ahead(domain, item); });
}

std::string print_recompute_ahead_of_search(const Config& config) {
    return config.search.recompute_ahead.empty() ? "" : print_list(config.search.recompute_ahead, print_ahead);
}

void read_slice_lengths_of_search(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    config.search.slice_lengths =
        read_different<SliceLengths>(at, [](const Yaml& item) { return item.choice(SliceLengths::Even); });
}

std::string print_slice_lengths_of_search(const Config& config) {
    const std::vector<SliceLengths>& lengths = config.search.slice_lengths;
    return lengths.empty() ? "" : print_list(lengths, [](SliceLengths each) { return std::string(name_of(each)); });
}

void read_schedules(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    std::vector<std::string>& schedules = config.search.schedules;
    if (!at.is_text()) {
        schedules = read_different<std::string>(at, [](const Yaml& item) { return item.text(); });
        return;
    }
    if (at.text() != kAllSchedules)
        at.complain(fmt::format("'{}' is '{}'", at.path(), at.text()),
                    fmt::format("write {}, or a list of names, as in [gpipe, 1f1b]", kAllSchedules));
    schedules = {std::string(kAllSchedules)};
}

std::string print_schedules(const Config& config) {
    return searches_all_schedules(config.search) ? std::string(kAllSchedules)
                                                 : print_list(config.search.schedules, quoted);
}

void read_replicas_of_search(const KeyDomain&, const Yaml& at, Config& config, KeyReading&) {
    using Replicas = SearchConfig::Replicas;
    if (at.is_text() && parse_choice<Replicas>(at.text()))
        config.search.replicas = Replicas::Equal;
    else
        config.search.replicas = at.boolean(false) ? Replicas::Yes : Replicas::No;
}

std::string print_replicas_of_search(const Config& config) {
    using Replicas = SearchConfig::Replicas;
    const Replicas replicas = config.search.replicas;
    return replicas == Replicas::Equal ? std::string(name_of(replicas)) : print_plain(replicas == Replicas::Yes);
}

using Level = SearchConfig::Level;
constexpr KeyOf<Level> kLevelKeys[] = {
    {"devices", integer_key<&Level::devices>(1, kMostStages)},
    {"bandwidth", bandwidth_key<&Level::bandwidth>()},
};

void read_levels(const KeyDomain&, const Yaml& at, Config& config, KeyReading& reading) {
    std::vector<Level>& levels = config.search.levels;
    for (const Yaml& item : at.items()) {
        read_keys<Level>(kLevelKeys, item, levels.emplace_back(), reading);
        for (const KeyOf<Level>& key : kLevelKeys)
            if (item.is_map() && !item[key.name].present())
                item.complain(fmt::format("'{}.{}' is missing", item.path(), key.name),
                              "write {devices: 4, bandwidth: 12 GB/s} for every level, the innermost first");
    }
    std::int64_t devices = 1;
    for (const Level& level : levels)
        devices = std::min<std::int64_t>(devices * level.devices, kMostStages + 1);
    if (devices > kMostStages)
        at.complain(fmt::format("the product of '{}' is more than {} devices", at.path(), kMostStages),
                    "write the devices of one group of the level below, not of the whole cluster, for every level");
    if (at.is_list() && levels.empty())
        at.complain(fmt::format("'{}' is empty", at.path()),
                    "write the levels, the innermost first, or remove the key");
}

std::string print_levels(const Config& config) {
    return print_list(config.search.levels, [](const Level& level) { return print_map<Level>(kLevelKeys, level, {}); });
}

using Objective = SearchConfig::Objective;

// The objectives that read a key.
template <Objective... readers>
constexpr KeyLimit<Config> kReadBy{
    [](const Config& config, std::string_view) { return ((config.search.objective == readers) || ...); },
    [](std::string_view) { return fmt::format("{}", fmt::join({name_of(readers)...}, ", ")); }, Elsewhere::Idle};

// Numbers of stages and replicas that a search of layers chooses.
constexpr KeyLimit<Config> kOfLayers{[](const Config& config, std::string_view) {
                                         return config.search.objective == Objective::Makespan &&
                                                !is_transformer(config);
                                     },
                                     kReadBy<Objective::Makespan>.words, Elsewhere::Idle};

using Search = SearchConfig;
constexpr auto kSearch = &Config::search;

constexpr ConfigKey kSearchKeys[] = {
    {"objective", choice_key<kSearch, &Search::objective>(), KeyShown::Always, "",
     "`makespan`: simulated, for a schedule. `max-load`, `pipedream`, `piper`: the slowest stage in the cost model "
     "of that planner"},
    {"schedules",
     {special("a list of names, or `all`", R"({"anyOf": [{"const": "all"}, {"$ref": "#/$defs/names"}]})"),
      read_schedules, print_schedules},
     KeyShown::IfSet,
     "the pipeline's, for transformers the schedules of training programs",
     "`all`: every synchronous schedule but `forward-only`. Asynchronous schedules must be named",
     kReadBy<Objective::Makespan>},
    {"micro_batch_sizes", counts_key<kSearch, &Search::micro_batch_sizes>(kMostBatches), KeyShown::IfSet,
     "the pipeline's, for transformers `[1, 2, 4, 8]`", "sizes that do not divide `mini_batch` are left out",
     kReadBy<Objective::Makespan>},
    {"mini_batch", integer_key<kSearch, &Search::mini_batch>(1, kMostSamples), KeyShown::Always, "the pipeline's",
     "samples per update, the same for every candidate", kReadBy<Objective::Makespan, Objective::PipeDream>},
    {"stages", counts_key<kSearch, &Search::stages>(kMostStages), KeyShown::IfSet,
     "`pipeline.stages`, else 1, 2, … up to all devices, times the stages per device of the schedule",
     "numbers of stages to try", kOfLayers},
    {"replicas",
     {special("`false`, `true`, `equal`", R"({"enum": [false, true, "equal"]})"), read_replicas_of_search,
      print_replicas_of_search},
     KeyShown::Always,
     "`false`, and data parallelism",
     "`false`: every stage has one device (without the key one stage on all devices is tried, too). `true`: ways to "
     "distribute up to all devices over the stages ([which](search.md#many-devices)), `equal`: only ways with "
     "equally many devices per stage, see [schedules.md](schedules.md#replicas)",
     kOfLayers},
    {"recompute",
     {special("`none`, `all`, `auto`, or for transformers a list of words of `parallel.recompute`, and of lists with "
              "a word for each device of the pipeline",
              R"({"anyOf": [{"enum": ["none", "all", "auto", "selective", "norms", "full"]}, %]})",
              schema_of_degrees<Degree::Recompute>),
      read_recompute_of_search, print_recompute_of_search},
     KeyShown::Always,
     "`none`, for `piper` `auto`, for transformers `[none, norms, full]`, and `selective` with unfused attention",
     "stages that are recomputed: `auto` tries the first k stages, for every k. For `piper` layers, which may be "
     "recomputed unless `none` is written, for [transformers](search.md#transformers-on-a-cluster) values of "
     "`parallel.recompute`",
     kReadBy<Objective::Makespan, Objective::Piper>},
    {"recompute_layers",
     {special(
          "`auto`, `[[layer, …], …]`",
          R"({"anyOf": [{"const": "auto"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/names"}}]})"),
      read_recompute_layers_of_search, print_recompute_layers_of_search},
     KeyShown::IfSet,
     "the pipeline's",
     "with `recompute`: values of `pipeline.recompute_layers` to try. `auto`: the layers that save most memory for "
     "their time, a quarter, half and three quarters of all, and all layers",
     kOfLayers},
    {"recompute_saved", counts_key<kSearch, &Search::recompute_saved>(kMostBatches, 0), KeyShown::IfSet, "`[0]`",
     "with `recompute`: values of `pipeline.recompute_saved` to try", kOfLayers},
    {"recompute_ahead",
     {{.least = 0,
       .most = kMostBatches,
       .takes = "a list, each 0 to 1000000 or `auto`",
       .schema = R"({"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "auto"},
                     {"type": "integer", "minimum": 0, "maximum": 1000000}]}})"},
      read_recompute_ahead_of_search,
      print_recompute_ahead_of_search},
     KeyShown::IfSet,
     "`[0]`",
     "with `recompute`: values of `pipeline.recompute_ahead` to try",
     kOfLayers},
    {"offload", choice_key<kSearch, &Search::offload>(), KeyShown::IfSet, "",
     "stages that are offloaded over `cluster.host_link`: `auto` tries the first k stages, for every k. No plan of a "
     "layer graph recomputes and offloads",
     kReadBy<Objective::Makespan>},
    {"offload_ahead", counts_key<kSearch, &Search::offload_ahead>(kMostBatches, 1), KeyShown::IfSet, "`[1]`",
     "with `offload`: values of `pipeline.offload_ahead` to try", kReadBy<Objective::Makespan>},
    {"tensor", tried_degrees_key<Degree::Tensor>(), KeyShown::IfSet,
     "powers of two up to the devices of a host or domain",
     "degrees of `parallel.tensor` to try, as in `[2, [4, 1]]`: 2, and in pipelines of two devices 4 and 1",
     kOfClusters},
    {"pipeline", tried_degrees_key<Degree::Pipeline>(), KeyShown::IfSet,
     "divisors of the blocks, or of the blocks and two, and powers of two", "degrees of `parallel.pipeline`",
     kOfClusters},
    {"context", tried_degrees_key<Degree::Context>(), KeyShown::IfSet,
     "powers of two up to 8, with at least 1024 tokens for each device", "degrees of `parallel.context`", kOfClusters},
    {"expert", tried_degrees_key<Degree::Expert>(), KeyShown::IfSet, "divisors of the number of experts",
     "degrees of `parallel.expert`", kOfClusters},
    {"expert_tensor", tried_degrees_key<Degree::ExpertTensor>(), KeyShown::IfSet, "`[1]`",
     "degrees of `parallel.expert_tensor`", kOfClusters},
    {"chunks", counts_key<kSearch, &Search::chunks>(kMostStages), KeyShown::IfSet,
     "1, and up to 8 that give all stages equally many blocks", "stages of each device", kOfClusters},
    {"slices", counts_key<kSearch, &Search::slices>(kMostSlices, 2), KeyShown::IfSet,
     "the pipeline's, for transformers `[2, 4, 8]`", "values of `pipeline.slices` for schedules that cut sequences",
     kReadBy<Objective::Makespan>},
    {"slice_lengths",
     {special("a list of `even` and `time`",
              R"({"type": "array", "minItems": 1, "items": {"enum": ["even", "time"]}})"),
      read_slice_lengths_of_search, print_slice_lengths_of_search},
     KeyShown::IfSet,
     "the pipeline's, for transformers `[even, time]`",
     "values of `pipeline.slice_lengths` for schedules that cut sequences",
     kReadBy<Objective::Makespan>},
    {"zero", tried_degrees_key<Degree::Zero>(), KeyShown::IfSet, "`[0, 1, 3]`", "values of `parallel.zero`",
     kOfClusters},
    {"unequal_blocks", flag_key<kSearch, &Search::unequal_blocks>(), KeyShown::Always, "",
     "`false`: all stages have as equal numbers of blocks as possible", kOfClusters},
    {"arrange_hosts", flag_key<kSearch, &Search::arrange_hosts>(), KeyShown::Always, "",
     "`false`: stages are placed on hosts that differ in the order of the file", kOfClusters},
    {"program", choice_key<kSearch, &Search::program>(), KeyShown::IfSet, "any",
     "the training program that is to run the plan: only plans that `simulate --arguments` writes for this program are "
     "tried, see [clusters.md](clusters.md#plans-for-a-program)",
     kOfClusters},
    {"tokens", number_key<kSearch, &Search::tokens>(0, 1e18), KeyShown::IfSet, "",
     "tokens of the whole training: the answer says how many days they take", kOfClusters},
    {"price", number_key<kSearch, &Search::price>(0, 1e9), KeyShown::IfSet, "",
     "of a device for an hour: with `tokens` the answer says what the training costs", kOfClusters},
    {"tensor_parallel", flag_key<kSearch, &Search::tensor_parallel>(), KeyShown::Always, "",
     "`false`: no layer is shared by several devices", kReadBy<Objective::Piper>},
    {"profile_batch",
     if_given(integer_key<&Config::workload, &WorkloadConfig::profile_batch>(1, kMostSamples)),
     KeyShown::IfSet,
     "none, for `pipedream` `mini_batch`",
     "number of samples of the times and sizes of a [model from a file](#models-from-files), if the file does not have "
     "it",
     {},
     KeyReader::All},
    {"p2p", choice_key<kSearch, &Search::p2p>(), KeyShown::Always, "", "`free` ignores transfers between stages",
     kReadBy<Objective::PipeDream>},
    {"straight", flag_key<kSearch, &Search::straight>(), KeyShown::Always, "", "`true`: no stage has replicas",
     kReadBy<Objective::PipeDream, Objective::Piper>},
    {"memory_limit", flag_key<kSearch, &Search::memory_limit>(), KeyShown::Always, "",
     "`true` keeps stages within the memory of the first device, counted as in "
     "[pipedream.md](pipedream.md)",
     kReadBy<Objective::PipeDream>},
    {"levels",
     {special("`[{devices, bandwidth}, …]`", R"({"type": "array", "minItems": 1, "items": %})",
              object_schema<Level, kLevelKeys>),
      read_levels, print_levels},
     KeyShown::IfSet,
     "a level of all devices",
     "groups of devices, the innermost first, with the bandwidth between the groups of the level below. "
     "`cluster.devices` then has no effect",
     kReadBy<Objective::PipeDream>},
};

}  // namespace

ConfigBlock search_block() { return {"search", kSearchKeys, nullptr, BlockShown::IfGiven, KeyReader::Searches}; }

}  // namespace pw
