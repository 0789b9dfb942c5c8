#include "job/plan_checks.h"

#include "job/cost_source.h"
#include "job/settings.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Returns the last of these keys that --set changed, which is the likely mistake. Otherwise returns the first key.
std::string overriding(const Setup& setup, std::initializer_list<std::string> keys) {
    const auto set_of = [&](const std::string& key) {
        const auto found = setup.places.find(key);
        return found == setup.places.end() ? 0 : found->second.set;
    };
    std::string last = *keys.begin();
    for (const std::string& key : keys)
        if (set_of(key) > set_of(last))
            last = key;
    return setup.places.contains(last) ? last : "pipeline.schedule";
}

// "set workload.stages to 8": all keys that give the number of stages must agree.
std::string help_for_count(const Setup& setup, int stages) {
    constexpr const char* kLists[] = {
        "workload.forward", "workload.backward_input", "workload.backward_weight",         "workload.activation",
        "workload.output",  "workload.weights",        "workload.activation_until_weight", "pipeline.replicas"};
    std::vector<std::string> numbers, lists;
    for (const char* key : {"workload.stages", "pipeline.stages"})
        if (setup.places.contains(key))
            numbers.emplace_back(key);
    for (const char* key : kLists)
        if (setup.places.contains(fmt::format("{}[0]", key)))
            lists.emplace_back(key);
    const bool cut = !setup.pipeline.cuts.empty() || !setup.pipeline.lists.empty();
    if (numbers.empty() && lists.empty() && !cut)
        numbers.emplace_back("pipeline.stages");
    std::vector<std::string> parts;
    if (!numbers.empty())
        parts.push_back(fmt::format("set {} to {}", fmt::join(numbers, " and "), stages));
    if (!lists.empty())
        parts.push_back(fmt::format("list {} values in {}", stages, fmt::join(lists, " and ")));
    if (cut)
        parts.push_back(fmt::format("make {} stages in pipeline.split", stages));
    return fmt::format("{}", fmt::join(parts, " and "));
}

// Returns the number of devices of a pipeline nearest to the shape's that the schedule can fill with these stages, or 0
// if there is none.
int devices_for(const Schedule& schedule, const Shape& shape) {
    const int own = shape.devices / shape.copies;
    for (int distance = 0; distance < std::max(own, shape.stages); ++distance)
        for (const int devices : {own - distance, own + distance}) {
            Shape other = shape;
            other.devices = devices * shape.copies;
            if (devices > 0 && devices <= shape.stages && legal_stages(schedule, other) == shape.stages)
                return devices;
        }
    return 0;
}

// Returns how the schedule uses all devices for these stages with replicas. Empty if the schedule does not.
std::string help_for_replicas(const Schedule& schedule, const Shape& shape) {
    const int each = (shape.devices + shape.stages - 1) / shape.stages;
    if (shape.copies > 1 || shape.devices <= shape.stages || schedule.asynchronous() || each > shape.microbatches)
        return "";
    if (!schedule.takes_replicas()) {
        Shape pipelines = shape;
        pipelines.copies = shape.devices * schedule.chunks / shape.stages;
        return pipelines.copies * shape.stages == shape.devices * schedule.chunks &&
                       shape.devices % pipelines.copies == 0 && legal_stages(schedule, pipelines) == shape.stages
                   ? fmt::format(", or train replicas of the pipeline: pipeline.replicas: {}", pipelines.copies)
                   : "";
    }
    if (shape.stages > 16)
        return "";
    std::vector<int> replicas(static_cast<std::size_t>(shape.stages), shape.devices / shape.stages);
    for (int stage = 0; stage < shape.devices % shape.stages; ++stage)
        ++replicas[static_cast<std::size_t>(stage)];
    return fmt::format(", or share each stage among devices: pipeline.replicas: [{}]", fmt::join(replicas, ", "));
}

// Returns the help for a schedule that cannot place the stages: more or fewer stages, other devices, or replicas if
// devices are left over.
std::string help_for_stages(const Setup& setup, const Schedule& schedule, const Shape& shape) {
    std::string text = help_for_count(setup, std::max(legal_stages(schedule, shape), shape.devices / shape.copies));
    const bool counted = setup.places.contains("cluster.devices") && !setup.places.contains("cluster.devices[0]");
    if (const int devices = devices_for(schedule, shape); counted && devices > 0)
        text += fmt::format(", or cluster.devices to {}", devices * shape.copies);
    text += help_for_replicas(schedule, shape);
    return cost_source_of(setup).has_layers ? text : text + " (the times in 'workload' are those of a stage)";
}

}  // namespace

void check_stages(const Setup& setup, const Schedule& schedule, const Shape& shape) {
    if (!shape.placement.empty())
        return;
    const int devices = shape.devices / shape.copies;
    const std::string of_each = shape.copies > 1 ? fmt::format(" of each of {} replicas", shape.copies) : "";
    const int expected = devices * schedule.chunks;
    if (setup.places.contains("cluster.devices") && !setup.places.contains("pipeline.stages") &&
        setup.places.contains("pipeline.split") && shape.stages != expected)
        setup.fail_at(
            "pipeline.split", fmt::format("the split makes {} stages for {} devices{}", shape.stages, devices, of_each),
            fmt::format("schedule {} takes {} per device: split into {}, or set pipeline.stages: {} if "
                        "a device may hold another number",
                        schedule.name, schedule.chunks == 1 ? "one stage" : "two stages", expected, shape.stages));
    if (devices > shape.stages)
        setup.fail_at(overriding(setup, {"cluster.devices", "pipeline.schedule", "pipeline.stages", "workload.stages",
                                         "pipeline.replicas"}),
                      fmt::format("{} devices{} for {} stages", devices, of_each, shape.stages),
                      help_for_stages(setup, schedule, shape));
}

void check_mini_batch(const Setup& setup, const Schedule& schedule) {
    const MicroBatchSizes sizes = sizes_of(setup.pipeline);
    if (schedule.updates == Updates::PerMicroBatch && !sizes.is_even())
        setup.fail_at("pipeline.mini_batch",
                      fmt::format("schedule {} updates after every micro-batch, but the last would have {} samples "
                                  "instead of {}",
                                  schedule.name, sizes.last(), sizes.full),
                      fmt::format("write mini_batch: {}, leave it out, or choose a schedule that updates once per "
                                  "mini-batch, such as 1f1b or pipedream-2bw",
                                  std::int64_t{sizes.per_mini_batch} * sizes.full));
}

bool clips_gradients(const Setup& setup) { return setup.training.clip_norm > 0; }

void check_zero(const Setup& setup, const Schedule& schedule, const Shape& shape) {
    if (setup.training.zero < 2)
        return;
    const std::string name = fmt::format("ZeRO-{}", setup.training.zero);
    const std::size_t holders = shape.devices_of(0).size();
    for (int stage = 0; stage < shape.stages; ++stage)
        if (shape.devices_of(stage).size() != holders)
            setup.fail_at("training.zero",
                          fmt::format("{} exchanges in every pass, and stage 0 is on {} devices, stage {} on {}", name,
                                      holders, stage, shape.devices_of(stage).size()),
                          "write a number of pipeline.replicas for all stages, or zero: 1");
    const bool is_listed = shape.copies == 1 && is_replicated(setup.pipeline);
    if (!is_listed && std::cmp_not_equal(holders, shape.copies))
        setup.fail_at("training.zero",
                      fmt::format("{} exchanges in every pass, and the devices of a stage run theirs at other times in "
                                  "schedule {}",
                                  name, schedule.name),
                      "choose a schedule with a device for each stage, or write zero: 1");
    if (schedule.asynchronous())
        setup.fail_at("training.zero",
                      fmt::format("{} keeps one version of weights, and schedule {} updates without a flush", name,
                                  schedule.name),
                      "choose a schedule that flushes, or write zero: 1");
    if (shape.microbatches % static_cast<int>(holders) != 0)
        setup.fail_at(
            "training.zero",
            fmt::format("{} exchanges in every pass, and {} micro-batches are not the same number for each of "
                        "{} replicas",
                        name, shape.microbatches, holders),
            "write a multiple of the replicas as pipeline.micro_batches, or zero: 1");
}

void check_even_share(const Setup& setup, const Schedule& schedule, const Shape& shape, int steps) {
    const int share = even_share(shape);
    if (schedule.updates != Updates::PerMicroBatch || shape.microbatches % share == 0)
        return;
    const int each = share / std::gcd(share, steps);  // so that all steps together are whole mini-batches
    const std::int64_t legal = (std::int64_t{setup.pipeline.micro_batches} + each - 1) / each * each;
    setup.fail_at(
        "pipeline.micro_batches",
        fmt::format("{} steps of {} micro-batches are no whole number of updates: the replicas update every {}, the "
                    "fewest that each stage divides evenly",
                    steps, setup.pipeline.micro_batches, share),
        fmt::format("set pipeline.micro_batches to {}, or choose other replicas", legal));
}

void refuse_plan(const Setup& setup, const StageLinks& links, const Schedule& schedule, const Shape& shape,
                 const Error& error) {
    const std::string& fact = error.fact();
    const std::vector<Setting>& settings = error.settings();
    if (setup.pipeline.copies == 1 && is_replicated(setup.pipeline) && !schedule.takes_replicas())
        setup.fail_at("pipeline.replicas", fact,
                      "write one number, which makes replicas of the whole pipeline, leave pipeline.replicas out, or "
                      "choose one of these schedules");
    if (schedule.asynchronous() && !links.ties.empty())
        setup.fail_at("pipeline.split", fact, "keep both layers in one stage, or choose a schedule that flushes");
    if (schedule.asynchronous() && clips_gradients(setup))
        setup.fail_at("training.clip_norm", fact, "leave training.clip_norm out, or choose a schedule that flushes");
    if (shape.placement.empty() && legal_stages(schedule, shape) != shape.stages)
        setup.fail_at(overriding(setup, {"pipeline.schedule", "cluster.devices", "pipeline.stages", "workload.stages",
                                         "pipeline.replicas"}),
                      fact, help_for_stages(setup, schedule, shape));
    const bool counts = std::find(settings.begin(), settings.end(), Setting::MicroBatches) != settings.end();
    const std::string also = counts && setup.places.contains("pipeline.mini_batch")
                                 ? "; pipeline.mini_batch also sets their number: change both, or remove it"
                                 : "";
    const std::string key = settings.empty() ? "pipeline.schedule" : key_of(settings.front());
    setup.fail_at(
        overriding(setup, {key, "pipeline.schedule", "cluster.devices"}), fact,
        error.help().empty() ? "choose another schedule: `pipewright list schedules`" : help_with_keys(error) + also);
}

}  // namespace pw
