#include "search/plans/choice_list.h"

#include "job/plan.h"
#include "job/settings.h"
#include "schedules/orders/schedule.h"
#include "search/choice_ways.h"
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

constexpr std::size_t kMostNumbersOfDevices = 4'000'000;  // of devices in all choices together

// Returns the number of devices that this number of stages takes, or 0 if the schedule cannot place them.
int devices_for(const Schedule& schedule, int stages, int most) {
    int devices = std::min(stages / schedule.chunks, most);
    while (devices > 0 && !schedule.placement.fits(stages, devices))
        --devices;
    return std::max(devices, 0);
}

std::vector<int> stages_of(const SearchSetup& setup, const Schedule& schedule) {
    if (!setup.search.stages.empty())
        return setup.search.stages;
    if (setup.places.contains("pipeline.stages"))
        return {setup.pipeline.stages};
    const auto most = static_cast<int>(setup.cluster.devices.size());
    std::vector<int> stages;
    for (int devices = 1; devices <= most; ++devices)
        stages.push_back(devices * schedule.chunks);
    if (schedule.needs_costs && schedule.chunks == 1 && schedule.placement.fits(2, 1))  // two on each device, too
        for (int devices = most / 2 + 1; devices <= most; ++devices)
            stages.push_back(2 * devices);
    return stages;
}

// Ways to give every stage a device or more, `devices` in all. The even way is empty.
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
bool tries_replicas(const SearchSetup& setup, const Schedule& schedule) {
    return setup.search.replicas != SearchConfig::Replicas::No && schedule.takes_replicas() && !schedule.asynchronous();
}

// Schedules that place several stages on a device have replicas of the whole pipeline.
bool tries_copies(const SearchSetup& setup, const Schedule& schedule) {
    return setup.search.replicas == SearchConfig::Replicas::Equal && !schedule.takes_replicas() &&
           !schedule.asynchronous();
}

// A single stage on all devices is among the choices unless the config decides on replicas.
bool tries_data_parallelism(const SearchSetup& setup, const Schedule& schedule) {
    return setup.search.replicas == SearchConfig::Replicas::No && !setup.places.contains("search.replicas") &&
           schedule.takes_replicas() && !schedule.asynchronous();
}

// Returns whether there are at most `most` ways to share out up to `devices` among `stages`: C(devices, stages).
bool has_few_shares(int devices, int stages, std::int64_t most) {
    std::int64_t count = 1;
    for (int taken = 1; taken <= std::min(stages, devices - stages) && count <= most; ++taken)
        count = count * (devices - taken + 1) / taken;
    return count <= most;
}

// Returns all ways, first the way without replicas.
std::vector<std::vector<int>> all_shares(int devices, int stages) {
    std::vector<std::vector<int>> all = {{}};
    std::vector<int> shares;
    for (int count = stages + 1; count <= devices; ++count)
        share_out(count, stages, shares, all);
    return all;
}

// Returns equal numbers of devices for all stages: all devices, half as many, a quarter, ..., or every number.
std::vector<std::vector<int>> equal_shares(int devices, int stages, bool every) {
    std::vector<std::vector<int>> all;
    for (int share = devices / stages; share > 1; share = every ? share - 1 : share / 2)
        all.emplace_back(static_cast<std::size_t>(stages), share);
    all.emplace_back();
    return all;
}

std::vector<int> sizes_of(const SearchSetup& setup) {
    std::vector<int> sizes = setup.search.micro_batch_sizes;
    if (sizes.empty())
        sizes.push_back(setup.pipeline.micro_batch_size);
    std::erase_if(sizes, [&](int size) { return setup.search.mini_batch % size != 0; });
    const bool divides = !sizes.empty();
    std::erase_if(sizes, [&](int size) { return setup.search.mini_batch / size > kMostBatches; });
    if (divides && sizes.empty())
        setup.fail_at(
            "search.mini_batch",
            fmt::format("a mini-batch of {} samples makes more than {} micro-batches of any size that divides it",
                        setup.search.mini_batch, kMostBatches),
            "write a smaller search.mini_batch, or larger search.micro_batch_sizes");
    const std::size_t lengths = setup.pipeline.micro_batch_lengths.size();
    if (lengths > 0) {
        std::erase_if(sizes,
                      [&](int size) { return setup.search.mini_batch / size != static_cast<std::int64_t>(lengths); });
        if (divides && sizes.empty())
            setup.fail_at("pipeline.micro_batch_lengths",
                          fmt::format("there are lengths of {} micro-batches, and no size makes as many of a "
                                      "mini-batch of {} samples",
                                      lengths, setup.search.mini_batch),
                          "write search.micro_batch_sizes that do, or remove the key");
    }
    if (sizes.empty())
        setup.fail_at("search.micro_batch_sizes",
                      fmt::format("no micro-batch size divides a mini-batch of {} samples", setup.search.mini_batch),
                      "write sizes that divide search.mini_batch: all micro-batches of a search are as large");
    return sizes;
}

}  // namespace

namespace {

class ChoiceList {
public:
    ChoiceList(const SearchSetup& setup, const ChoiceLimits& limits)
        : setup_(setup),
          limits_(limits),
          alike_(setup.cluster),
          devices_(static_cast<int>(setup.cluster.devices.size())) {}

    // Adds all choices with this schedule, micro-batch size and number of stages.
    void add(const Schedule& schedule, PlanChoice choice) {
        const int plain = devices_for(schedule, choice.stages, devices_);
        const bool shared = tries_replicas(setup_, schedule) && choice.stages <= devices_;
        if (plain == 0 && !shared)
            return;
        const bool equal = setup_.search.replicas == SearchConfig::Replicas::Equal;
        const bool all = !shared || equal || has_few_shares(devices_, choice.stages, limits_.shares);
        std::vector<std::vector<int>> shares = {{}};
        if (shared)
            shares = all && !equal ? all_shares(devices_, choice.stages) : equal_shares(devices_, choice.stages, equal);
        const std::size_t most = !all ? 1 : alike_.all_equal() ? limits_.network_orders : limits_.orders;
        bool every_way = all, every_order = true;
        for (choice.copies = tries_copies(setup_, schedule) ? devices_ / plain : 1; choice.copies > 1; --choice.copies)
            every_order = add_orders(choice, plain * choice.copies, most) && every_order;
        if (choice.stages == 1 && devices_ > 1 && tries_data_parallelism(setup_, schedule))
            add_data_parallel(choice);
        for (const std::vector<int>& replicas : shares) {
            every_way = every_way && numbers_ <= kMostNumbersOfDevices;
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
        if (numbers_ > kMostNumbersOfDevices)
            return false;
        const DeviceOrders orders = orders_of(alike_, devices, most);
        for (const std::vector<int>& order : orders.all) {
            choice.devices = order;
            for (PlanChoice& way : ways_to(WaysTo::SaveMemory, setup_, choice)) {
                numbers_ += order.size() + choice.replicas.size();
                choices.all.push_back(std::move(way));
            }
        }
        return orders.complete;
    }

    // The devices are in the order of the config: the order hardly matters among holders of a stage.
    void add_data_parallel(PlanChoice choice) {
        choice.replicas = {devices_};
        choice.devices.resize(static_cast<std::size_t>(devices_));
        std::iota(choice.devices.begin(), choice.devices.end(), 0);
        std::ranges::move(ways_to(WaysTo::SaveMemory, setup_, choice), std::back_inserter(choices.all));
    }

    void add_partial(PlanChoice choice, bool shares, bool only_network) {
        choice.devices.resize(setup_.cluster.devices.size());
        std::iota(choice.devices.begin(), choice.devices.end(), 0);
        choice.replicas.clear();
        for (PlanChoice& way : ways_to(WaysTo::SaveMemory, setup_, choice))
            choices.partial.push_back({std::move(way), shares, only_network});
    }

    const SearchSetup& setup_;
    ChoiceLimits limits_;
    AlikeDevices alike_;
    int devices_;
    std::size_t numbers_ = 0;
};

// Slices exclude recomputation and offload (job/slices.h), and a list of their tokens is one way to cut sequences.
void check_searched_slices(const SearchSetup& setup) {
    using enum SearchConfig::Recompute;
    const auto fail_where = [&](bool wrong, const char* key, const std::string& fact, const char* help) {
        if (wrong)
            setup.fail_at(key, fact, help);
    };
    for (const std::string& name : searched_schedules(setup)) {
        const std::vector<PlanChoice> ways = ways_to(WaysTo::CutSequences, setup, {name});
        const std::string cuts = fmt::format("schedule {} cuts sequences, and later slices read what", name);
        if (std::ranges::all_of(ways, [](const PlanChoice& way) { return way.slices == 1; }))
            continue;
        fail_where(searched_schedule(setup, name).trains && setup.search.recompute == All, "search.recompute",
                   cuts + " stages that recompute do not keep", "write recompute: auto, or search other schedules");
        fail_where(setup.search.offload == All, "search.offload", cuts + " offloaded stages do not keep",
                   "write offload: auto, or search other schedules");
        // The parts of slices would be of the makes of the search, not of the makes that a plan has.
        fail_where(
            setup.cluster.makes.size() > 1, "search.schedules",
            fmt::format("schedule {} cuts sequences, and devices of several makes have unequal parts of attention",
                        name),
            "search devices of one make, or schedules of whole micro-batches");
        fail_where(!setup.pipeline.slice_tokens.empty() &&
                       (!setup.search.slices.empty() || !setup.search.slice_lengths.empty()),
                   "pipeline.slices",
                   "the tokens of each slice are listed, and the search chooses how sequences are cut",
                   "remove the key, or search.slices and search.slice_lengths");
    }
}

// Names the requested numbers of stages that no schedule can run. Otherwise reports that updates do not match the
// sizes.
[[noreturn]] void fail_without_choices(const SearchSetup& setup, int layers) {
    const std::vector<int>& asked = setup.search.stages;
    const auto devices = static_cast<int>(setup.cluster.devices.size());
    std::vector<std::string> names = searched_schedules(setup);
    const std::string numbers =
        fmt::format("{} stage{}", fmt::join(asked, ", "), asked == std::vector<int>{1} ? "" : "s");
    if (!asked.empty() && *std::min_element(asked.begin(), asked.end()) > layers)
        setup.fail_at("search.stages", fmt::format("{} for {} layers", numbers, layers),
                      fmt::format("every stage needs a layer: write numbers up to {}", layers));
    const auto placed = [&](const std::string& name) {
        return std::any_of(asked.begin(), asked.end(), [&](int stages) {
            return stages <= layers && devices_for(searched_schedule(setup, name), stages, devices) > 0;
        });
    };
    if (!asked.empty() && std::none_of(names.begin(), names.end(), placed))
        setup.fail_at("search.stages",
                      fmt::format("{} and {} device{}: {} cannot place them", numbers, devices, devices == 1 ? "" : "s",
                                  fmt::join(names, ", ")),
                      "write numbers of stages up to that of the devices, and even ones for a V; or search a "
                      "schedule with several stages per device, such as interleaved");
    setup.fail_at("search", "no schedule, number of stages and micro-batch size go together",
                  "widen search.schedules, search.stages or search.micro_batch_sizes");
}

}  // namespace

Choices choices_of(const SearchSetup& setup, int layers, const ChoiceLimits& limits) {
    check_searched_slices(setup);
    ChoiceList list(setup, limits);
    std::vector<std::string> without;
    for (const std::string& name : searched_schedules(setup)) {
        const Schedule& schedule = searched_schedule(setup, name);
        if (setup.search.replicas != SearchConfig::Replicas::No && !tries_replicas(setup, schedule) &&
            !tries_copies(setup, schedule))
            without.push_back(name);
        for (const int size : sizes_of(setup)) {
            const auto micro_batches = static_cast<int>(setup.search.mini_batch / size);
            // an update after every micro-batch: it must be the whole mini-batch
            if (schedule.updates == Updates::PerMicroBatch && micro_batches != 1)
                continue;
            for (const int stages : stages_of(setup, schedule))
                if (stages <= layers)
                    for (const PlanChoice& way :
                         ways_to(WaysTo::CutSequences, setup, {name, {}, stages, micro_batches, size}))
                        list.add(schedule, way);
        }
    }
    if (list.choices.all.empty())
        fail_without_choices(setup, layers);
    if (!without.empty())
        list.choices.notes.push_back(fmt::format("search.replicas: not with {}, which {} one device per stage here",
                                                 fmt::join(without, ", "), without.size() == 1 ? "takes" : "take"));
    return std::move(list.choices);
}

}  // namespace pw
