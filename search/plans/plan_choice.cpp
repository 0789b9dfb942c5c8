#include "search/plans/plan_choice.h"

#include "job/config/blocks.h"
#include "job/plan.h"
#include "job/settings.h"
#include "schedules/orders/schedule.h"
#include "search/plans/device_orders.h"
#include "workloads/error.h"
#include "workloads/stages/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kMostNumbers = 4'000'000;  // of devices in all choices together

// Returns the number of devices that this number of stages takes, or 0 if the schedule cannot place them.
int devices_for(const Schedule& schedule, int stages, int most) {
    int devices = std::min(stages / schedule.chunks, most);
    while (devices > 0 && !schedule.placement.fits(stages, devices))
        --devices;
    return std::max(devices, 0);
}

std::vector<int> stages_of(const Config& config, const Schedule& schedule) {
    if (!config.search.stages.empty())
        return config.search.stages;
    if (config.places.contains("pipeline.stages"))
        return {config.pipeline.stages};
    const auto most = static_cast<int>(config.cluster.devices.size());
    std::vector<int> stages;
    for (int devices = 1; devices <= most; ++devices)
        stages.push_back(devices * schedule.chunks);
    if (schedule.needs_costs && schedule.chunks == 1 && schedule.placement.fits(2, 1))  // two on each device, too
        for (int devices = most / 2 + 1; devices <= most; ++devices)
            stages.push_back(2 * devices);
    return stages;
}

std::vector<int> recomputed_counts(const Config& config, int stages) {
    if (config.search.recompute == SearchConfig::Recompute::None)
        return {0};
    if (config.search.recompute == SearchConfig::Recompute::All)
        return {stages};
    std::vector<int> counts(static_cast<std::size_t>(stages) + 1);
    std::iota(counts.begin(), counts.end(), 0);
    return counts;
}

std::vector<int> listed_or_none(const std::vector<int>& listed) { return listed.empty() ? std::vector{0} : listed; }

std::vector<std::vector<std::string>> layers_to_try(const Config& config) {
    const std::vector<std::vector<std::string>>& listed = config.search.recompute_layers;
    return listed.empty() ? std::vector<std::vector<std::string>>{config.pipeline.recompute_layers} : listed;
}

// Calls visit with the choice for each way to recompute.
template <class Visit>
void for_each_recomputation(const Config& config, PlanChoice choice, Visit visit) {
    for (const int recomputed : recomputed_counts(config, choice.stages)) {
        choice.recomputed = recomputed;
        choice.saved = choice.ahead = 0;
        choice.layers.clear();
        if (recomputed == 0) {
            visit(choice);
            continue;
        }
        for (const std::vector<std::string>& layers : layers_to_try(config))
            for (const int saved : listed_or_none(config.search.recompute_saved))
                for (const int ahead : listed_or_none(config.search.recompute_ahead)) {
                    choice.layers = layers;
                    choice.saved = saved;
                    choice.ahead = ahead;
                    visit(choice);
                }
    }
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
    return config.search.replicas != SearchConfig::Replicas::No && schedule.takes_replicas() &&
           !schedule.asynchronous();
}

// Schedules that place several stages on a device have replicas of the whole pipeline.
bool tries_copies(const Config& config, const Schedule& schedule) {
    return config.search.replicas == SearchConfig::Replicas::Equal && !schedule.takes_replicas() &&
           !schedule.asynchronous();
}

// One stage on all devices is among the choices unless the config decides on replicas.
bool tries_data_parallelism(const Config& config, const Schedule& schedule) {
    return config.search.replicas == SearchConfig::Replicas::No && !config.places.contains("search.replicas") &&
           schedule.takes_replicas() && !schedule.asynchronous();
}

// Returns whether there are at most `most` ways to share out up to `devices` among `stages`: C(devices, stages).
bool has_few_shares(int devices, int stages, std::int64_t most) {
    std::int64_t count = 1;
    for (int taken = 1; taken <= std::min(stages, devices - stages) && count <= most; ++taken)
        count = count * (devices - taken + 1) / taken;
    return count <= most;
}

// Returns all ways, the one without replicas first.
std::vector<std::vector<int>> all_shares(int devices, int stages) {
    std::vector<std::vector<int>> all = {{}};
    std::vector<int> shares;
    for (int count = stages + 1; count <= devices; ++count)
        share_out(count, stages, shares, all);
    return all;
}

// Returns equal numbers of devices for all stages: all devices, half as many, a quarter, ...; or every number.
std::vector<std::vector<int>> equal_shares(int devices, int stages, bool every) {
    std::vector<std::vector<int>> all;
    for (int share = devices / stages; share > 1; share = every ? share - 1 : share / 2)
        all.emplace_back(static_cast<std::size_t>(stages), share);
    all.emplace_back();
    return all;
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
    const std::size_t lengths = config.pipeline.micro_batch_lengths.size();
    if (lengths > 0) {
        std::erase_if(sizes,
                      [&](int size) { return config.search.mini_batch / size != static_cast<std::int64_t>(lengths); });
        if (divides && sizes.empty())
            config.fail_at("pipeline.micro_batch_lengths",
                           fmt::format("there are lengths of {} micro-batches, and no size makes as many of a "
                                       "mini-batch of {} samples",
                                       lengths, config.search.mini_batch),
                           "write search.micro_batch_sizes that do, or remove the key");
    }
    if (sizes.empty())
        config.fail_at("search.micro_batch_sizes",
                       fmt::format("no micro-batch size divides a mini-batch of {} samples", config.search.mini_batch),
                       "write sizes that divide search.mini_batch: all micro-batches of a search are as large");
    return sizes;
}

}  // namespace

namespace {

class ChoiceList {
public:
    ChoiceList(const Config& config, const ChoiceLimits& limits)
        : config_(config),
          limits_(limits),
          alike_(config.cluster),
          devices_(static_cast<int>(config.cluster.devices.size())) {}

    // Adds all choices with this schedule, micro-batch size and number of stages.
    void add(const Schedule& schedule, PlanChoice choice) {
        const int plain = devices_for(schedule, choice.stages, devices_);
        const bool shared = tries_replicas(config_, schedule) && choice.stages <= devices_;
        if (plain == 0 && !shared)
            return;
        const bool equal = config_.search.replicas == SearchConfig::Replicas::Equal;
        const bool all = !shared || equal || has_few_shares(devices_, choice.stages, limits_.shares);
        std::vector<std::vector<int>> shares = {{}};
        if (shared)
            shares = all && !equal ? all_shares(devices_, choice.stages) : equal_shares(devices_, choice.stages, equal);
        const std::size_t most = !all ? 1 : alike_.all_equal() ? limits_.network_orders : limits_.orders;
        bool every_way = all, every_order = true;
        for (choice.copies = tries_copies(config_, schedule) ? devices_ / plain : 1; choice.copies > 1; --choice.copies)
            every_order = add_orders(choice, plain * choice.copies, most) && every_order;
        if (choice.stages == 1 && devices_ > 1 && tries_data_parallelism(config_, schedule))
            add_data_parallel(choice);
        for (const std::vector<int>& replicas : shares) {
            every_way = every_way && numbers_ <= kMostNumbers;
            choice.replicas = replicas;
            const int devices = replicas.empty() ? plain : std::accumulate(replicas.begin(), replicas.end(), 0);
            every_order = add_orders(choice, devices, most) && every_order;
        }
        if (!all || !every_order)
            add_partial(std::move(choice), !all, every_way && alike_.all_equal());
    }

    Choices choices;

private:
    // Returns false when not every order of the devices is there.
    bool add_orders(PlanChoice choice, int devices, std::size_t most) {
        if (numbers_ > kMostNumbers)
            return false;
        const DeviceOrders orders = orders_of(alike_, devices, most);
        for (const std::vector<int>& order : orders.all) {
            choice.devices = order;
            for_each_recomputation(config_, choice, [&](const PlanChoice& one) {
                numbers_ += order.size() + choice.replicas.size();
                choices.all.push_back(one);
            });
        }
        return orders.complete;
    }

    // The devices are in the order of the config: it hardly matters among holders of one stage.
    void add_data_parallel(PlanChoice choice) {
        choice.replicas = {devices_};
        choice.devices.resize(static_cast<std::size_t>(devices_));
        std::iota(choice.devices.begin(), choice.devices.end(), 0);
        for_each_recomputation(config_, choice, [&](const PlanChoice& one) { choices.all.push_back(one); });
    }

    void add_partial(PlanChoice choice, bool shares, bool only_network) {
        choice.devices.resize(config_.cluster.devices.size());
        std::iota(choice.devices.begin(), choice.devices.end(), 0);
        choice.replicas.clear();
        for_each_recomputation(config_, choice, [&](const PlanChoice& one) {
            choices.partial.push_back({one, shares, only_network});
        });
    }

    const Config& config_;
    ChoiceLimits limits_;
    AlikeDevices alike_;
    int devices_;
    std::size_t numbers_ = 0;
};

// Names the requested numbers of stages that no schedule can run; otherwise reports that updates do not match the
// sizes.
[[noreturn]] void fail_without_choices(const Config& config, int layers) {
    const std::vector<int>& asked = config.search.stages;
    const auto devices = static_cast<int>(config.cluster.devices.size());
    std::vector<std::string> names = searched_schedules(config);
    const std::string numbers =
        fmt::format("{} stage{}", fmt::join(asked, ", "), asked == std::vector<int>{1} ? "" : "s");
    if (!asked.empty() && *std::min_element(asked.begin(), asked.end()) > layers)
        config.fail_at("search.stages", fmt::format("{} for {} layers", numbers, layers),
                       fmt::format("every stage needs a layer: write numbers up to {}", layers));
    const auto placed = [&](const std::string& name) {
        return std::any_of(asked.begin(), asked.end(), [&](int stages) {
            return stages <= layers && devices_for(searched_schedule(config, name), stages, devices) > 0;
        });
    };
    if (!asked.empty() && std::none_of(names.begin(), names.end(), placed))
        config.fail_at("search.stages",
                       fmt::format("{} and {} device{}: {} cannot place them", numbers, devices,
                                   devices == 1 ? "" : "s", fmt::join(names, ", ")),
                       "write numbers of stages up to that of the devices, and even ones for a V; or search a "
                       "schedule with several stages per device, such as interleaved");
    config.fail_at("search", "no schedule, number of stages and micro-batch size go together",
                   "widen search.schedules, search.stages or search.micro_batch_sizes");
}

}  // namespace

std::vector<std::string> searched_schedules(const Config& config) {
    const std::vector<std::string>& asked = config.search.schedules;
    const bool all = searches_all_schedules(config.search), usual = asked.empty() && searches_cluster(config);
    if (asked.empty() && !usual)
        return {config.pipeline.schedule};
    if (!all && !usual)
        return asked;
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        // others train differently, or not at all, or need slices of micro-batches
        if (all ? !schedule.asynchronous() && schedule.trains && !schedule.cuts_sequences : schedule.usual)
            names.emplace_back(schedule.name);
    return names;
}

const Schedule& searched_schedule(const Config& config, const std::string& name) {
    try {
        const Schedule& schedule = schedule_named(config, name);
        if (schedule.cuts_sequences)
            fail(
                "schedule {} orders slices of micro-batches, and a search divides the layers for whole ones\n  help: "
                "search with another schedule, such as 1f1b",
                schedule.name);
        return schedule;
    } catch (const Error& error) {
        fail_at(config, config.search.schedules.empty() ? "pipeline.schedule" : "search.schedules", error,
                "search takes schedules by name: `pipewright list schedules`");
    }
}

Choices choices_of(const Config& config, int layers, const ChoiceLimits& limits) {
    ChoiceList list(config, limits);
    std::vector<std::string> without;
    for (const std::string& name : searched_schedules(config)) {
        const Schedule& schedule = searched_schedule(config, name);
        if (config.search.replicas != SearchConfig::Replicas::No && !tries_replicas(config, schedule) &&
            !tries_copies(config, schedule))
            without.push_back(name);
        for (const int size : sizes_of(config)) {
            const auto micro_batches = static_cast<int>(config.search.mini_batch / size);
            // an update after every micro-batch: it must be the whole mini-batch
            if (schedule.updates == Updates::PerMicroBatch && micro_batches != 1)
                continue;
            for (const int stages : stages_of(config, schedule))
                if (stages <= layers)
                    list.add(schedule, {name, {}, stages, micro_batches, size});
        }
    }
    if (list.choices.all.empty())
        fail_without_choices(config, layers);
    if (!without.empty())
        list.choices.notes.push_back(fmt::format("search.replicas: not with {}, which {} one device per stage here",
                                                 fmt::join(without, ", "), without.size() == 1 ? "takes" : "take"));
    return std::move(list.choices);
}

}  // namespace pw
