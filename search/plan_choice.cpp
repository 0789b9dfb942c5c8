#include "search/plan_choice.h"

#include "schedules/schedule.h"
#include "workloads/config_blocks.h"
#include "workloads/error.h"
#include "workloads/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace pw {

namespace {

constexpr std::size_t kMostOrders = 720;  // of unequal devices

std::vector<std::string> schedules_of(const Config& config) {
    const std::vector<std::string>& asked = config.search.schedules;
    if (asked.empty())
        return {config.pipeline.schedule};
    if (asked != std::vector<std::string>{"all"})
        return asked;
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        if (!schedule.asynchronous() && schedule.name != "forward-only")  // others learn something else, or nothing
            names.emplace_back(schedule.name);
    return names;
}

// Devices that this number of stages takes; 0: the schedule cannot place so many.
int devices_for(const Schedule& schedule, int stages, int most) {
    int devices = stages;
    if (schedule.placement == Placement::V)
        devices = stages % 2 == 0 ? stages / 2 : 0;
    else if (schedule.placement == Placement::Looped)
        for (devices = std::min(stages / schedule.chunks, most); devices > 1 && stages % devices != 0;)
            --devices;
    else if (schedule.placement == Placement::Any)
        devices = std::min(stages, most);
    return devices <= most ? devices : 0;
}

std::vector<int> stages_of(const Config& config, const Schedule& schedule) {
    if (!config.search.stages.empty())
        return config.search.stages;
    if (config.places.contains("pipeline.stages"))
        return {config.pipeline.stages};
    std::vector<int> stages;
    for (int devices = 1; devices <= static_cast<int>(config.cluster.devices.size()); ++devices)
        stages.push_back(devices * schedule.chunks);
    return stages;
}

bool are_alike(const DeviceConfig& a, const DeviceConfig& b) { return a.speed == b.speed && a.memory == b.memory; }

// Every choice of `count` devices in every order, devices that are alike taken in the order of the config.
class Orders {
public:
    Orders(const std::vector<DeviceConfig>& devices, int count) : devices_(devices), count_(count) {
        used_.assign(devices.size(), false);
        extend();
    }
    std::vector<std::vector<int>> all;
    bool complete = true;

private:
    void extend() {
        if (static_cast<int>(chosen_.size()) == count_) {
            complete = complete && all.size() < kMostOrders;
            if (complete)
                all.push_back(chosen_);
            return;
        }
        std::vector<int> tried;
        for (int device = 0; device < static_cast<int>(devices_.size()) && complete; ++device) {
            const auto alike = [&](int other) { return are_alike(devices_[device], devices_[other]); };
            if (used_[device] || std::any_of(tried.begin(), tried.end(), alike))
                continue;
            tried.push_back(device);
            used_[device] = true;
            chosen_.push_back(device);
            extend();
            chosen_.pop_back();
            used_[device] = false;
        }
    }

    const std::vector<DeviceConfig>& devices_;
    int count_;
    std::vector<bool> used_;
    std::vector<int> chosen_;
};

std::vector<int> recomputed_counts(const Config& config, int stages) {
    if (config.search.recompute == "none")
        return {0};
    if (config.search.recompute == "all")
        return {stages};
    std::vector<int> counts(static_cast<std::size_t>(stages) + 1);
    std::iota(counts.begin(), counts.end(), 0);
    return counts;
}

// Ways to give every stage one device or more, `devices` in all; the even one is empty.
void share_out(int devices, int stages, std::vector<int>& shares, std::vector<std::vector<int>>& all) {
    if (stages == 1) {
        shares.push_back(devices);
        all.push_back(shares);
        shares.pop_back();
        return;
    }
    for (int share = 1; share <= devices - (stages - 1); ++share) {
        shares.push_back(share);
        share_out(devices - share, stages - 1, shares, all);
        shares.pop_back();
    }
}

// Asynchronous schedules would update less often with replicas than without.
bool tries_replicas(const Config& config, const Schedule& schedule) {
    return config.search.replicas && schedule.takes_replicas() && !schedule.asynchronous();
}

std::vector<std::vector<int>> replicas_of(const Config& config, const Schedule& schedule, int stages, int devices) {
    if (!tries_replicas(config, schedule) || devices == stages)
        return {{}};
    std::vector<int> shares;
    std::vector<std::vector<int>> all;
    share_out(devices, stages, shares, all);
    return all;
}

// Numbers of devices to try with so many stages: with replicas any that is not smaller.
std::vector<int> device_counts(const Config& config, const Schedule& schedule, int stages) {
    const int most = static_cast<int>(config.cluster.devices.size());
    const int plain = devices_for(schedule, stages, most);
    std::vector<int> counts;
    if (plain > 0)
        counts.push_back(plain);
    if (tries_replicas(config, schedule) && plain == stages)
        for (int devices = stages + 1; devices <= most; ++devices)
            counts.push_back(devices);
    return counts;
}

std::vector<int> sizes_of(const Config& config) {
    std::vector<int> sizes = config.search.micro_batch_sizes;
    if (sizes.empty())
        sizes.push_back(config.pipeline.micro_batch_size);
    std::erase_if(sizes, [&](int size) { return config.search.mini_batch % size != 0; });
    const bool divides = !sizes.empty();
    std::erase_if(sizes, [&](int size) { return config.search.mini_batch / size > kMostBatches; });
    if (divides && sizes.empty())
        config.fail_at(
            "search.mini_batch",
            fmt::format("a mini-batch of {} samples makes more than {} micro-batches of any size that divides it",
                        config.search.mini_batch, kMostBatches),
            "write a smaller search.mini_batch, or larger search.micro_batch_sizes");
    if (sizes.empty())
        config.fail_at("search.micro_batch_sizes",
                       fmt::format("no micro-batch size divides a mini-batch of {} samples", config.search.mini_batch),
                       "write sizes that divide search.mini_batch: all micro-batches of a search are as large");
    return sizes;
}

}  // namespace

namespace {

// All choices with this schedule, micro-batch size and number of stages.
void add_choices(const Config& config, const Schedule& schedule, PlanChoice choice, Choices& choices) {
    for (const int devices : device_counts(config, schedule, choice.stages)) {
        const Orders orders(config.cluster.devices, devices);
        choices.complete = choices.complete && orders.complete;
        for (const std::vector<int>& order : orders.all)
            for (const int recomputed : recomputed_counts(config, choice.stages))
                for (const std::vector<int>& replicas : replicas_of(config, schedule, choice.stages, devices)) {
                    choice.devices = order;
                    choice.recomputed = recomputed;
                    choice.replicas = replicas;
                    choices.all.push_back(choice);
                }
    }
}

const Schedule& schedule_of(const Config& config, const std::string& name) {
    try {
        return schedule_named(name);
    } catch (const Error& error) {
        config.fail_at(config.search.schedules.empty() ? "pipeline.schedule" : "search.schedules", error.what(),
                       "search takes schedules by name: `pipewright list schedules`");
    }
}

}  // namespace

Choices choices_of(const Config& config, int layers) {
    Choices choices;
    for (const std::string& name : schedules_of(config)) {
        const Schedule& schedule = schedule_of(config, name);
        for (const int size : sizes_of(config)) {
            const auto micro_batches = static_cast<int>(config.search.mini_batch / size);
            // an update after every micro-batch: it must be the whole mini-batch
            if (schedule.updates == Updates::PerMicroBatch && micro_batches != 1)
                continue;
            for (const int stages : stages_of(config, schedule))
                if (stages <= layers)
                    add_choices(config, schedule, {name, {}, stages, micro_batches, size}, choices);
        }
    }
    if (choices.all.empty())
        config.fail_at("search", "no schedule, number of stages and micro-batch size go together",
                       "widen search.schedules, search.stages or search.micro_batch_sizes");
    return choices;
}

Config config_of(const Config& config, const PlanChoice& choice) {
    Config chosen = config;
    chosen.cluster.devices.clear();
    for (const int device : choice.devices)
        chosen.cluster.devices.push_back(config.cluster.devices[device]);
    chosen.pipeline.schedule = choice.schedule;
    chosen.pipeline.stages = choice.stages;
    chosen.pipeline.micro_batches = choice.micro_batches;
    chosen.pipeline.micro_batch_size = choice.micro_batch_size;
    chosen.pipeline.mini_batch = std::int64_t{choice.micro_batches} * choice.micro_batch_size;
    chosen.pipeline.recompute.resize(static_cast<std::size_t>(choice.recomputed));
    std::iota(chosen.pipeline.recompute.begin(), chosen.pipeline.recompute.end(), 0);
    chosen.pipeline.replicas = choice.replicas;
    chosen.places.clear();  // what the file says no longer holds
    return chosen;
}

std::optional<std::vector<int>> starts_of_ranges(const StageSplit& split) {
    std::vector<int> starts;
    int next = 0;
    for (const std::vector<int>& layers : split.layers) {
        if (layers.front() != next || layers.back() != next + static_cast<int>(layers.size()) - 1)
            return std::nullopt;
        if (next > 0)
            starts.push_back(next);
        next = layers.back() + 1;
    }
    return starts;
}

void set_split(PipelineConfig& pipeline, const LayerGraph& graph, const StageSplit& split) {
    const auto names_of = [&](const std::vector<int>& layers) {
        std::vector<std::string> names;
        for (const int layer : layers)
            names.push_back(graph[static_cast<std::size_t>(layer)].name);
        return names;
    };
    const auto starts = starts_of_ranges(split);
    pipeline.split = starts ? PipelineConfig::Split::Cuts : PipelineConfig::Split::Lists;
    pipeline.cuts = starts ? names_of(*starts) : std::vector<std::string>{};
    pipeline.lists.clear();
    if (!starts)
        for (const std::vector<int>& layers : split.layers)
            pipeline.lists.push_back(names_of(layers));
}

std::string print(const PlanChoice& choice) {
    std::string text =
        fmt::format("{}, {} stage{} on {} device{}, {} micro-batches of {}", choice.schedule, choice.stages,
                    choice.stages == 1 ? "" : "s", choice.devices.size(), choice.devices.size() == 1 ? "" : "s",
                    choice.micro_batches, choice.micro_batch_size);
    if (!choice.replicas.empty())
        text += fmt::format(", replicas {}", fmt::join(choice.replicas, " "));
    if (choice.recomputed > 0)
        text += fmt::format(", {} of the stages recomputed", choice.recomputed);
    return text;
}

}  // namespace pw
