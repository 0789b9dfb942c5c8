#include "search/clusters/choice_bounds.h"

#include "job/build.h"
#include "job/transformer_job.h"
#include "search/clusters/cluster_bounds.h"
#include "search/plans/plan_choice.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/transformers/transformer_model.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// Schedule, devices, stages and micro-batches: plans with the same ones have the same orders.
using OrderKey = std::tuple<std::string, int, int, int>;

OrderKey order_key(const ClusterChoice& choice, std::int64_t samples) {
    const std::int64_t each = std::int64_t{choice.degrees.data} * choice.micro_batch_size;
    return {choice.schedule, choice.degrees.pipeline, choice.stages(), static_cast<int>(samples / each)};
}

// Whether two choices have the same costs of layers.
bool same_layers(const ClusterChoice& a, const ClusterChoice& b) {
    ClusterChoice like = a;
    like.schedule = b.schedule;
    like.chunks = b.chunks;
    return like == b;
}

struct OrdersOfKey {
    std::unique_ptr<const OrderFacts> facts;  // null if the schedule refuses it
    bool too_large = false;                   // there is not the memory for its plan
};

class ChoiceBounder {
public:
    ChoiceBounder(const Config& config, const std::vector<ClusterChoice>& choices, const WorkOnAll& on_all)
        : config_(config), choices_(choices), on_all_(on_all) {
        result_.of.resize(choices.size());
    }

    BoundsOfChoices made() {
        make_order_facts();
        // Choices with the same degrees and sizes share the costs of their layers.
        std::vector<std::size_t> begins;
        for (std::size_t index = 0; index < choices_.size(); ++index)
            if (index == 0 || !same_layers(choices_[index], choices_[index - 1]))
                begins.push_back(index);
        begins.push_back(choices_.size());
        on_all_("bounds", begins.size() - 1, [&](std::size_t group) { bound_group(begins[group], begins[group + 1]); });
        for (const ClusterChoice& choice : choices_)
            result_.without_memory += orders_of(choice).too_large ? 1 : 0;
        return std::move(result_);
    }

private:
    void make_order_facts() {
        std::vector<OrderKey> keys;
        for (const ClusterChoice& choice : choices_)
            if (const OrderKey key = order_key(choice, config_.search.mini_batch); facts_.try_emplace(key).second)
                keys.push_back(key);
        on_all_("orders", keys.size(), [&](std::size_t index) {
            const auto& [schedule, devices, stages, micro_batches] = keys[index];
            Shape shape;
            shape.devices = devices;
            shape.stages = stages;
            shape.microbatches = micro_batches;
            const ScheduleOptions options{config_.pipeline.drain, config_.pipeline.group};
            OrdersOfKey& orders = facts_.find(keys[index])->second;
            try {
                orders.facts = order_facts(searched_schedule(config_, schedule), std::move(shape), options);
            } catch (const Error&) {
                orders.too_large = true;
            }
        });
    }

    const OrdersOfKey& orders_of(const ClusterChoice& choice) const {
        return facts_.find(order_key(choice, config_.search.mini_batch))->second;
    }

    void bound_group(std::size_t begin, std::size_t end) {
        std::optional<ProfiledModel> layers;
        for (std::size_t index = begin; index < end; ++index) {
            const ClusterChoice& choice = choices_[index];
            const OrderFacts* facts = orders_of(choice).facts.get();
            if (facts == nullptr)
                continue;
            const Config chosen = config_of(config_, choice);
            if (!layers)
                layers = transformer_model(transformer_job_of(chosen), choice.micro_batch_size);
            const Model& model = layers->model;
            const Profile profile = in_cluster(layers->profile, chosen);
            const StageSplit split = make_split(chosen, model, profile);
            const Costs costs = complete_costs(costs_of(model, split, profile, choice.micro_batch_size), chosen,
                                               cluster_of(chosen, profile), model.layers, split, facts->shape);
            ChoiceBounds& bounds = result_.of[index];
            bounds.is_defined = true;
            bounds.step_time = least_step_time(*facts, costs);
            bounds.shortage = worst_of(least_memory(*facts, costs), chosen.cluster.devices);
            bounds.fits = bounds.shortage.needs <= bounds.shortage.has;
        }
    }

    const Config& config_;
    const std::vector<ClusterChoice>& choices_;
    const WorkOnAll& on_all_;
    std::map<OrderKey, OrdersOfKey> facts_;
    BoundsOfChoices result_;
};

}  // namespace

Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices) {
    Shortage worst{0, needed.front(), devices.front().memory};
    for (std::size_t device = 1; device < needed.size(); ++device)
        if (needed[device] - devices[device].memory > worst.needs - worst.has)
            worst = {static_cast<int>(device), needed[device], devices[device].memory};
    return worst;
}

BoundsOfChoices bounds_of(const Config& config, const std::vector<ClusterChoice>& choices, const WorkOnAll& on_all) {
    return ChoiceBounder(config, choices, on_all).made();
}

}  // namespace pw
