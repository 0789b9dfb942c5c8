// All plans that the search for a layer graph can find, tried one by one: what proofs of searches are held against.
#pragma once

#include "job/build.h"
#include "job/job.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/versions.h"
#include "search/plan_choice.h"
#include "tests/support/every_split.h"
#include "tests/support/random_searches.h"
#include "workloads/error.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

// The fastest plan that fits, of a choice or of all choices.
struct Witness {
    PlanChoice choice;
    StageSplit split;
    Ns time = 0;
};

// All plans of a random search, tried one by one by the rules of docs/search.md.
class EveryPlan {
public:
    EveryPlan(const RandomSearch& search, const Config& config, const Model& model, const Profile& profile)
        : search_(search),
          config_(config),
          model_(model),
          profile_(profile),
          schedule_(schedule_named(search.schedule)) {
        for (const int stages : search.stages) {
            StageSplit empty;
            if (stages <= static_cast<int>(num_vertices(model.layers)))
                for_each_split(model.layers, stages, empty,
                               [&](const StageSplit& split) { splits_[stages].push_back(split); });
        }
        for (const int size : search.sizes)
            for (const auto& [stages, splits] : splits_)
                list(stages, size);
    }

    std::size_t plans() const {
        std::size_t plans = 0;
        for (const PlanChoice& choice : choices_)
            plans += splits_.at(choice.stages).size();
        return plans;
    }

    void try_all() {
        for (const PlanChoice& choice : choices_) {
            const std::optional<Witness> found = best_of_splits(choice);
            if (found && (!best_ || found->time < best_->time))
                best_ = found;
            times_[key_of(choice)] = found ? std::optional(found->time) : std::nullopt;
        }
    }

    const std::optional<Witness>& best() const { return best_; }
    // Returns the time of the best plan of a choice, or nothing where none fits.
    std::optional<Ns> best_of(const PlanChoice& choice) const {
        const auto found = times_.find(key_of(choice));
        EXPECT_NE(found, times_.end()) << print(choice);
        return found == times_.end() ? std::nullopt : found->second;
    }

private:
    using Key = std::tuple<int, int, int, int, int, int, int, int, SliceLengths, std::vector<int>, std::vector<int>>;

    // Without a network devices with the same speed and memory are the same.
    Key key_of(const PlanChoice& choice) const {
        std::vector<int> devices = choice.devices;
        if (!search_.has_network())
            for (int& device : devices)
                device = static_cast<int>(
                    std::find(search_.devices.begin(), search_.devices.end(), search_.devices[device]) -
                    search_.devices.begin());
        return {choice.stages,    choice.micro_batch_size, choice.recomputed, choice.saved,         choice.ahead,
                choice.offloaded, choice.offload_ahead,    choice.slices,     choice.slice_lengths, choice.replicas,
                devices};
    }

    void list(int stages, int size) {
        for (const int slices : search_.slices)
            for (const std::string& lengths : search_.slice_lengths) {
                PlanChoice choice{search_.schedule, {}, stages, search_.mini_batch / size, size};
                choice.slices = slices;
                choice.slice_lengths = lengths == "time" ? SliceLengths::Time : SliceLengths::Even;
                list(choice);
            }
    }

    void list(const PlanChoice& choice) {
        const int all = static_cast<int>(search_.devices.size()), stages = choice.stages;
        int plain = stages;
        if (schedule_.placement.name == "V")
            plain = stages % 2 == 0 ? stages / 2 : 0;
        else if (schedule_.placement.name == "any")
            plain = std::min(stages, all);
        else if (schedule_.placement.name == "looped")
            for (plain = std::min(stages / 2, all); plain > 1 && stages % plain != 0;)
                --plain;
        if (plain > 0 && plain <= all)
            list_orders(choice, plain);
        const bool has_cache = choice.slices > 1 && !schedule_.trains;  // keys and values are on one device
        if (search_.replicas && schedule_.takes_replicas() && !schedule_.asynchronous() && !has_cache)
            list_shares(choice, all);
    }

    void list_shares(PlanChoice choice, int left) {
        if (std::ssize(choice.replicas) == choice.stages) {
            const int devices = std::accumulate(choice.replicas.begin(), choice.replicas.end(), 0);
            if (devices > choice.stages)
                list_orders(choice, devices);
            return;
        }
        for (int share = 1; share <= left; ++share) {
            choice.replicas.push_back(share);
            list_shares(choice, left - share);
            choice.replicas.pop_back();
        }
    }

    void list_orders(PlanChoice choice, int devices) {
        if (std::ssize(choice.devices) < devices) {
            for (int device = 0; device < std::ssize(search_.devices); ++device)
                if (std::find(choice.devices.begin(), choice.devices.end(), device) == choice.devices.end()) {
                    choice.devices.push_back(device);
                    list_orders(choice, devices);
                    choice.devices.pop_back();
                }
            return;
        }
        for (int recomputed = 0; recomputed <= (choice.slices > 1 ? 0 : choice.stages); ++recomputed) {
            choice.recomputed = recomputed;
            if ((recomputed == 0 && search_.recompute != "all") || search_.recompute == "auto" ||
                (recomputed == choice.stages && search_.recompute == "all"))
                list_recomputation(choice);
        }
    }

    void list_recomputation(PlanChoice choice) {
        for (const int saved : search_.saved)
            for (const int ahead : search_.ahead) {
                choice.saved = choice.recomputed > 0 ? saved : 0;
                choice.ahead = choice.recomputed > 0 ? ahead : 0;
                list_offload(choice);
            }
    }

    void list_offload(PlanChoice choice) {
        const bool none_leaves = choice.recomputed > 0 || choice.slices > 1;
        for (int offloaded = 0; offloaded <= (none_leaves ? 0 : choice.stages); ++offloaded)
            for (const int ahead : search_.offload_ahead) {
                const bool none = offloaded == 0 && (search_.offload != "all" || choice.recomputed > 0);
                if (!none && search_.offload != "auto" && !(search_.offload == "all" && offloaded == choice.stages))
                    continue;
                choice.offloaded = offloaded;
                choice.offload_ahead = offloaded > 0 ? ahead : 1;
                if (times_.try_emplace(key_of(choice)).second)
                    choices_.push_back(choice);
            }
    }

    Config config_of_choice(const PlanChoice& choice) const {
        Config config = config_;
        std::vector<int> number(config_.cluster.devices.size(), -1);
        config.cluster.devices.clear();
        config.cluster.links.clear();
        config.cluster.shared.clear();
        for (const int device : choice.devices) {
            number[device] = static_cast<int>(config.cluster.devices.size());
            config.cluster.devices.push_back(config_.cluster.devices[device]);
        }
        for (const ClusterConfig::PairLink& pair : config_.cluster.links)
            if (number[pair.from] >= 0 && number[pair.to] >= 0)
                config.cluster.links.push_back({number[pair.from], number[pair.to], pair.link});
        for (const ClusterConfig::Shared& bus : config_.cluster.shared) {
            ClusterConfig::Shared used{{}, bus.bandwidth};
            for (const int device : bus.devices)
                if (number[device] >= 0)
                    used.devices.push_back(number[device]);
            std::sort(used.devices.begin(), used.devices.end());
            if (!used.devices.empty())
                config.cluster.shared.push_back(used);
        }
        config.pipeline.schedule = choice.schedule;
        config.pipeline.stages = choice.stages;
        config.pipeline.micro_batches = choice.micro_batches;
        config.pipeline.micro_batch_size = choice.micro_batch_size;
        config.pipeline.mini_batch = search_.mini_batch;
        config.pipeline.slices = choice.slices > 1 ? choice.slices : 0;
        config.pipeline.slice_lengths = choice.slice_lengths;
        config.pipeline.replicas = choice.replicas;
        config.pipeline.recompute.stages.resize(static_cast<std::size_t>(choice.recomputed));
        std::iota(config.pipeline.recompute.stages.begin(), config.pipeline.recompute.stages.end(), 0);
        config.pipeline.recompute.saved = choice.saved;
        config.pipeline.recompute.ahead = choice.ahead;
        config.pipeline.offload.stages.resize(static_cast<std::size_t>(choice.offloaded));
        std::iota(config.pipeline.offload.stages.begin(), config.pipeline.offload.stages.end(), 0);
        config.pipeline.offload.ahead = choice.offload_ahead;
        config.pipeline.offload.states.resize(static_cast<std::size_t>(search_.offloads_states ? choice.stages : 0));
        std::iota(config.pipeline.offload.states.begin(), config.pipeline.offload.states.end(), 0);
        return config;
    }

    struct Made {
        ProvenPlan proven;
        std::shared_ptr<const VersionTable> versions;
        std::unique_ptr<Simulator> simulator;
    };

    // Returns nothing where the schedule is not defined for the choice, or refuses the edges of the split.
    const Made* made_for(const PlanChoice& choice, const Config& config, const StageSplit& split, TransferMode mode) {
        const StageLinks links = links_of(model_.layers, split);
        const auto [place, is_new] = made_.try_emplace(
            {choice.stages, choice.micro_batch_size, choice.recomputed, choice.saved, choice.ahead, choice.offloaded,
             choice.offload_ahead, choice.slices, choice.replicas, std::ssize(choice.devices), links});
        if (!is_new)
            return place->second.get();
        try {
            auto made = std::make_unique<Made>();
            made->proven = proven_plan(config, links, config.training.steps);
            made->versions = std::make_shared<const VersionTable>(versions_of(made->proven.plan));
            made->simulator = std::make_unique<Simulator>(std::make_shared<const Plan>(made->proven.plan),
                                                          made->proven.proof, made->versions, mode);
            place->second = std::move(made);
        } catch (const Error&) {
        }
        return place->second.get();
    }

    std::optional<Witness> best_of_splits(const PlanChoice& choice) {
        const Config config = config_of_choice(choice);
        Model model = model_;
        if (choice.offloaded > 0)
            for (std::size_t layer = 0; layer < num_vertices(model.layers); ++layer)
                model.layers[layer].offloaded = true;
        const CostTable table(model, profile_, choice.micro_batch_size);
        TransferMode mode = executed_mode(config);
        mode.sent_copies = profile_.sent_copies || !mode.early_receive();
        const std::vector<StageSplit>& splits = splits_[choice.stages];
        const auto costs_of_split = [&](Costs costs, const StageSplit& split, const Made& made) {
            return complete_costs(std::move(costs), config, cluster_of(config, profile_), model_.layers, split,
                                  made.proven.plan.shape);
        };
        std::vector<std::pair<Ns, std::size_t>> times;
        for (std::size_t number = 0; number < splits.size(); ++number)
            if (const Made* made = made_for(choice, config, splits[number], mode))
                times.emplace_back(
                    made->simulator->step_time(costs_of_split(table.costs_of(splits[number]), splits[number], *made)),
                    number);
        std::sort(times.begin(), times.end());
        for (const auto& [time, number] : times) {
            const Made& made = *made_for(choice, config, splits[number], mode);
            const std::vector<Bytes> reserved =
                reserved_of(made.proven.plan, costs_of_split(table.costs_of(splits[number]), splits[number], made),
                            *made.versions, mode);
            bool fits = true;
            for (std::size_t device = 0; device < reserved.size(); ++device)
                fits = fits && reserved[device] <= config.cluster.devices[device].memory;
            if (fits)
                return Witness{choice, splits[number], time};
        }
        return std::nullopt;
    }

    const RandomSearch& search_;
    const Config& config_;
    const Model& model_;
    const Profile& profile_;
    const Schedule& schedule_;
    std::map<int, std::vector<StageSplit>> splits_;  // by number of stages
    std::vector<PlanChoice> choices_;
    std::map<Key, std::optional<Ns>> times_;
    std::map<std::tuple<int, int, int, int, int, int, int, int, std::vector<int>, std::ptrdiff_t, StageLinks>,
             std::unique_ptr<Made>>
        made_;
    std::optional<Witness> best_;
};

}  // namespace pw
