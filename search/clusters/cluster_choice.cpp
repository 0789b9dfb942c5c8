#include "search/clusters/cluster_choice.h"

#include "job/config/blocks.h"
#include "job/plan.h"
#include "job/transformer_job.h"
#include "search/plans/plan_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace pw {

namespace {

constexpr int kMostUsualChunks = 8;
constexpr int kMostUsualContext = 8, kLeastUsualTokens = 1024;  // of a device

// Why a choice cannot be run, in the order in which it is checked.
enum class Misfit : std::uint8_t { None, Heads, Sequence, Devices, Experts, Stages, MiniBatch };

// What to say if all choices misfit, by what the last check of them found.
struct MisfitRow {
    Misfit misfit;
    const char* key;
    std::string (*fact)(const Config& config);
    const char* help;
};

constexpr MisfitRow kMisfits[] = {
    {Misfit::Heads, "search.tensor",
     [](const Config& config) {
         const Transformer& model = *config.workload.transformer;
         return fmt::format("no degree of tensor divides the {} heads of {}", model.heads, model.name);
     },
     "write divisors of the heads"},
    {Misfit::Sequence, "search.context",
     [](const Config& config) {
         return fmt::format("no degree of context divides the {} tokens of a sequence",
                            config.workload.options.sequence_length);
     },
     "write divisors of workload.sequence_length"},
    {Misfit::Devices, "search",
     [](const Config& config) {
         return fmt::format("no product of tensor, pipeline and context divides the {} devices of the cluster",
                            config.parallel.ranks->devices.size());
     },
     "list more degrees in search.tensor, search.pipeline or search.context, or leave one of these keys out"},
    {Misfit::Experts, "search.expert",
     [](const Config& config) {
         const Transformer& model = *config.workload.transformer;
         return model.experts ? fmt::format(
                                    "no degree of expert divides the {} experts of {} and the devices of a "
                                    "stage",
                                    model.experts->count, model.name)
                              : fmt::format("{} has no experts", model.name);
     },
     "list 1, or leave the key out"},
    {Misfit::Stages, "search.chunks",
     [](const Config& config) {
         return fmt::format(
             "{} cannot place any of these numbers of stages on their devices, or the {} blocks do not "
             "fill them",
             fmt::join(searched_schedules(config), ", "), config.workload.transformer->layers);
     },
     "list other numbers of chunks, or schedules that take them (search.schedules; `pipewright list schedules` says "
     "how many stages a device has)"},
    {Misfit::MiniBatch, "search.mini_batch",
     [](const Config& config) {
         return fmt::format("{} sequences cannot be divided among the replicas in equal micro-batches",
                            config.search.mini_batch);
     },
     "write a multiple of the replicas, or list larger degrees or smaller search.micro_batch_sizes"}};

// A looped schedule with one stage per device has the orders of another schedule, which can be named.
bool takes_stages(const Schedule& schedule, const ClusterChoice& choice) {
    const bool is_looped = !schedule.one_stage.empty();
    return schedule.placement.fits(choice.stages(), choice.degrees.pipeline) && (choice.chunks > 1 || !is_looped);
}

bool takes_sequence(const Config& config, int tensor) {
    const bool may_be_sequence = !config.places.contains("parallel.sequence") || config.parallel.degrees.sequence;
    return tensor > 1 && may_be_sequence;
}

// Completes a choice whose degrees, schedule and size are set.
Misfit complete_choice(const Config& config, ClusterChoice& choice) {
    Parallel& degrees = choice.degrees;
    const Transformer& model = *config.workload.transformer;
    if (model.heads % degrees.tensor != 0)
        return Misfit::Heads;
    if (config.workload.options.sequence_length % degrees.context != 0)
        return Misfit::Sequence;
    const auto devices = static_cast<std::int64_t>(config.parallel.ranks->devices.size());
    const std::int64_t of_replica = std::int64_t{degrees.tensor} * degrees.context * degrees.pipeline;
    if (devices % of_replica != 0)
        return Misfit::Devices;
    degrees.data = static_cast<int>(devices / of_replica);
    if (degrees.zero > 0 && degrees.zero_group > 0 && degrees.replicas() % degrees.zero_group != 0)
        return Misfit::Devices;
    if (degrees.expert > 1 &&
        (!model.experts || model.experts->count % degrees.expert != 0 || degrees.holders() % degrees.expert != 0))
        return Misfit::Experts;
    if (slots_of_stages(model.layers, choice.stages()) < choice.stages() ||
        !takes_stages(searched_schedule(config, choice.schedule), choice))
        return Misfit::Stages;
    const std::int64_t each = std::int64_t{degrees.data} * choice.micro_batch_size;
    if (config.search.mini_batch % each != 0 || config.search.mini_batch / each > kMostBatches)
        return Misfit::MiniBatch;
    degrees.sequence = takes_sequence(config, degrees.tensor);
    return Misfit::None;
}

template <class Fits>
std::vector<int> numbers_that(int most, Fits fits) {
    std::vector<int> numbers;
    for (int number = 1; number <= most; ++number)
        if (fits(number))
            numbers.push_back(number);
    return numbers;
}

bool is_power_of_two(int number) { return (number & (number - 1)) == 0; }

// Whether all stages have as many blocks, where the embedding and the head may count as blocks.
bool divides_blocks(const Config& config, int stages) {
    return slots_of_stages(config.workload.transformer->layers, stages) % stages == 0;
}

// Stages of equally many blocks; and powers of two, since few models have a number of blocks that clusters divide.
bool is_usual_pipeline(const Config& config, int stages) {
    return divides_blocks(config, stages) || (is_power_of_two(stages) && stages <= config.workload.transformer->layers);
}

// Stages of equally many blocks, unless the devices do not have equally many either.
bool are_usual_chunks(const Config& config, int pipeline, int chunks) {
    return chunks == 1 || divides_blocks(config, pipeline * chunks) ||
           (!divides_blocks(config, pipeline) && is_usual_pipeline(config, pipeline * chunks));
}

// The values to try: those of the config, else the usual ones.
template <class T>
std::vector<T> listed_or(const std::vector<T>& listed, std::vector<T> usual) {
    return listed.empty() ? std::move(usual) : listed;
}

struct ClusterLists {
    std::vector<int> tensor, pipeline, context, expert, sizes, zero;
    std::vector<RecomputeKind> recompute;
};

ClusterLists lists_of(const Config& config) {
    const SearchConfig& search = config.search;
    const Transformer& model = *config.workload.transformer;
    const auto devices = static_cast<int>(config.parallel.ranks->devices.size());
    const int domain = std::min(devices, transformer_job_of(config).fabric.domain);
    const int tokens = config.workload.options.sequence_length;
    std::vector<RecomputeKind> recompute = {RecomputeKind::None, RecomputeKind::Norms, RecomputeKind::Full};
    if (config.parallel.degrees.program().attention == AttentionKernels::Unfused)  // others save no scores
        recompute.insert(recompute.begin() + 1, RecomputeKind::Selective);
    return {listed_or(search.tensor, numbers_that(domain, is_power_of_two)),
            listed_or(search.pipeline, numbers_that(std::min(devices, model.layers + 2),
                                                    [&](int stages) { return is_usual_pipeline(config, stages); })),
            listed_or(search.context, numbers_that(kMostUsualContext,
                                                   [&](int degree) {
                                                       return is_power_of_two(degree) &&
                                                              (degree == 1 || tokens / degree >= kLeastUsualTokens);
                                                   })),
            listed_or(search.expert,
                      numbers_that(model.experts ? model.experts->count : 1,
                                   [&](int degree) { return degree == 1 || model.experts->count % degree == 0; })),
            listed_or(search.micro_batch_sizes, {1, 2, 4, 8}),
            listed_or(search.zero, {0, 1, 3}),
            listed_or(search.recomputed, std::move(recompute))};
}

}  // namespace

std::vector<ClusterChoice> ways_to_share_layers(const Config& config) {
    const ClusterLists lists = lists_of(config);
    const Transformer& model = *config.workload.transformer;
    std::vector<ClusterChoice> ways;
    ClusterChoice way;
    Parallel& degrees = way.degrees;
    degrees = config.parallel.degrees;
    degrees.pipeline = 1;
    degrees.zero = 0;
    degrees.recompute = RecomputeKind::None;
    for (const int tensor : lists.tensor)
        for (const int context : lists.context)
            for (const int expert : lists.expert)
                for (const int size : lists.sizes) {
                    degrees.tensor = tensor;
                    degrees.context = context;
                    degrees.expert = expert;
                    degrees.data = std::max(1, expert / (tensor * context));
                    degrees.sequence = takes_sequence(config, tensor);
                    way.micro_batch_size = size;
                    if (model.heads % tensor == 0 && config.workload.options.sequence_length % context == 0)
                        ways.push_back(way);
                }
    return ways;
}

namespace {

class ClusterChoiceList {
public:
    explicit ClusterChoiceList(const Config& config) : config_(config), schedules_(searched_schedules(config)) {}

    std::vector<ClusterChoice> made() {
        const ClusterLists lists = lists_of(config_);
        ClusterChoice choice;
        choice.degrees = config_.parallel.degrees;
        choice.degrees.recomputed = 1;
        for (const int pipeline : lists.pipeline)
            for (const int tensor : lists.tensor)
                for (const int context : lists.context)
                    for (const int expert : lists.expert)
                        for (const int size : lists.sizes) {
                            choice.degrees.pipeline = pipeline;
                            choice.degrees.tensor = tensor;
                            choice.degrees.context = context;
                            choice.degrees.expert = expert;
                            choice.micro_batch_size = size;
                            add_with_degrees(choice, lists);
                        }
        if (choices_.empty())
            refuse_all();
        return std::move(choices_);
    }

private:
    void add_with_degrees(ClusterChoice choice, const ClusterLists& lists) {
        std::vector<ClusterChoice> with_schedules;
        const int pipeline = choice.degrees.pipeline;
        const std::vector<int> chunks = listed_or(
            config_.search.chunks, numbers_that(pipeline == 1 ? 1 : kMostUsualChunks,
                                                [&](int each) { return are_usual_chunks(config_, pipeline, each); }));
        for (const std::string& schedule : schedules_)
            for (const int each : chunks) {
                choice.schedule = schedule;
                choice.chunks = each;
                choice.degrees.zero = 0;
                const Misfit misfit = complete_choice(config_, choice);
                worst_ = std::max(worst_, misfit);
                if (misfit == Misfit::None)
                    with_schedules.push_back(choice);
            }
        for (const RecomputeKind recompute : lists.recompute)
            for (const int zero : lists.zero)
                for (ClusterChoice& one : with_schedules) {
                    one.degrees.recompute = recompute;
                    one.degrees.zero = zero;
                    if (complete_choice(config_, one) == Misfit::None)
                        choices_.push_back(one);
                }
    }

    [[noreturn]] void refuse_all() const {
        const auto row = std::find_if(std::begin(kMisfits), std::end(kMisfits),
                                      [&](const MisfitRow& one) { return one.misfit == worst_; });
        const bool known = row != std::end(kMisfits);
        config_.fail_at(known ? row->key : "search", known ? row->fact(config_) : "no choice fits parallel.zero_group",
                        known ? row->help : "leave parallel.zero_group out");
    }

    const Config& config_;
    std::vector<std::string> schedules_;
    std::vector<ClusterChoice> choices_;
    Misfit worst_ = Misfit::None;
};

void check_searched(const Config& config) {
    for (const std::string& name : searched_schedules(config)) {
        const Schedule& schedule = searched_schedule(config, name);
        if (schedule.asynchronous() || !schedule.trains)
            config.fail_at("search.schedules",
                           fmt::format("schedule {} {}, and the search for a cluster compares whole steps", name,
                                       schedule.trains ? "updates without a flush" : "has no backward passes"),
                           "list schedules that flush, or all of them: schedules: all");
    }
    if (!config.pipeline.micro_batch_lengths.empty())
        config.fail_at("pipeline.micro_batch_lengths", "the search for a cluster has micro-batches of equal length",
                       "remove the key");
}

// Returns the numbers as "2 x 38, 3, 1".
std::string print_blocks(const std::vector<int>& blocks) {
    std::vector<std::string> parts;
    for (auto at = blocks.begin(); at != blocks.end();) {
        const auto end = std::find_if(at, blocks.end(), [&](int number) { return number != *at; });
        parts.push_back(end - at > 1 ? fmt::format("{} x {}", *at, end - at) : std::to_string(*at));
        at = end;
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

// Returns the numbers as "[2-3, 0-1]".
std::string print_hosts(const std::vector<int>& hosts) {
    std::vector<std::string> parts;
    for (std::size_t first = 0, end = 0; first < hosts.size(); first = end) {
        for (end = first + 1; end < hosts.size() && hosts[end] == hosts[end - 1] + 1;)
            ++end;
        parts.push_back(end - first > 1 ? fmt::format("{}-{}", hosts[first], hosts[end - 1])
                                        : std::to_string(hosts[first]));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

// Returns the layout in the notation of Megatron-LM, as "Ett|tt|tL".
std::string layout_of(const std::vector<int>& blocks) {
    std::vector<std::string> stages;
    for (const int number : blocks)
        stages.emplace_back(static_cast<std::size_t>(number), 't');
    stages.front().insert(0, "E");
    stages.back() += "L";
    return fmt::format("{}", fmt::join(stages, "|"));
}

}  // namespace

bool ClusterChoice::operator==(const ClusterChoice& other) const {
    const auto key = [](const ClusterChoice& one) {
        const Parallel& own = one.degrees;
        return std::tuple(one.schedule, one.chunks, one.micro_batch_size, own.tensor, own.pipeline, own.context,
                          own.expert, own.data, own.zero, own.recompute, own.recomputed, own.sequence, one.blocks,
                          one.hosts);
    };
    return key(*this) == key(other);
}

std::string print(const ClusterChoice& choice) {
    const Parallel& own = choice.degrees;
    std::string text = fmt::format("{}, tensor {}, pipeline {}", choice.schedule, own.tensor, own.pipeline);
    if (choice.chunks > 1)
        text += fmt::format(" x {} stages", choice.chunks);
    text += fmt::format(", context {}", own.context);
    if (own.expert > 1)
        text += fmt::format(", expert {}", own.expert);
    text += fmt::format(", data {}, micro-batches of {}, zero {}, recompute {}", own.data, choice.micro_batch_size,
                        own.zero, name_of(own.recompute));
    if (!choice.blocks.empty())
        text += ", blocks " + print_blocks(choice.blocks);
    return choice.hosts.empty() ? text : text + ", hosts " + print_hosts(choice.hosts);
}

Config config_of(const Config& config, const ClusterChoice& choice) {
    Config chosen = choice.hosts.empty() ? config : with_hosts(config, choice.hosts);
    PipelineConfig& pipeline = chosen.pipeline;
    chosen.parallel.degrees = choice.degrees;
    chosen.parallel.of_stages.clear();
    pipeline.schedule = choice.schedule;
    pipeline.stages = choice.stages();
    pipeline.micro_batch_size = choice.micro_batch_size;
    pipeline.split = choice.blocks.empty() ? PipelineConfig::Split::Auto : PipelineConfig::Split::Layout;
    pipeline.cuts.clear();
    pipeline.lists.clear();
    pipeline.layout = choice.blocks.empty() ? "" : layout_of(choice.blocks);
    pipeline.blocks.clear();
    pipeline.replicas.clear();
    pipeline.copies = 1;
    pipeline.recompute = {};
    divide_among_replicas(chosen, config.search.mini_batch);
    // The file's places of what is chosen no longer hold.
    std::erase_if(chosen.places, [](const auto& place) {
        const std::string_view key = place.first;
        return !key.starts_with("workload") && !key.starts_with("cluster") && !key.starts_with("training");
    });
    return chosen;
}

std::vector<ClusterChoice> cluster_choices(const Config& config) {
    check_searched(config);
    return ClusterChoiceList(config).made();
}

std::optional<ClusterChoice> choice_of(const Recipe& recipe, const Config& config) {
    ClusterChoice choice;
    choice.degrees = config.parallel.degrees;
    choice.degrees.tensor = recipe.tensor;
    choice.degrees.pipeline = recipe.pipeline;
    choice.degrees.context = recipe.context;
    choice.degrees.expert = recipe.expert;
    choice.degrees.zero = recipe.zero;
    choice.degrees.zero_group = 0;
    choice.degrees.recompute = recipe.recompute;
    choice.degrees.recomputed = 1;
    choice.chunks = recipe.chunks;
    choice.micro_batch_size = recipe.micro_batch_size;
    for (const Schedule& schedule : schedules())
        if (schedule.usual) {
            choice.schedule = schedule.name;
            if (complete_choice(config, choice) == Misfit::None)
                return choice;
        }
    return std::nullopt;
}

}  // namespace pw
