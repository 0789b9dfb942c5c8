#include "search/clusters/choice_bounds.h"

#include "job/build.h"
#include "job/makes.h"
#include "job/plan.h"
#include "job/transformer_job.h"
#include "job/transformer_source.h"
#include "schedules/memory/limits.h"
#include "search/clusters/cluster_bounds.h"
#include "search/clusters/split_bounds.h"
#include "search/plan_choice.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/transformers/transformer_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// Schedule, devices, stages, micro-batches, slices, and what is offloaded: plans that agree in all of them have the
// same orders.
using OrderKey = std::tuple<std::string, int, int, int, int, int, int>;

OrderKey order_key(const PlanChoice& choice) {
    return {choice.schedule, choice.degrees.pipeline, choice.stages,       choice.micro_batches,
            choice.slices,   choice.offloaded,        choice.offload_ahead};
}

// Whether two choices have the same costs of layers.
bool same_layers(const PlanChoice& a, const PlanChoice& b) {
    PlanChoice like = a;
    like.schedule = b.schedule;
    like.stages = b.stages;
    like.offloaded = b.offloaded;
    like.offload_ahead = b.offload_ahead;
    return like == b;
}

struct OrdersOfKey {
    std::unique_ptr<const OrderFacts> facts;  // null if the schedule refuses the shape
    bool too_large = false;                   // there is not the memory for its plan
};

// Throws Error if the slices are more than a plan can have.
Shape shape_of(const OrderKey& key) {
    Shape shape;
    shape.devices = std::get<1>(key);
    shape.stages = std::get<2>(key);
    shape.slices = std::get<4>(key);
    shape.microbatches = microbatches_of_plan(std::get<3>(key), 1, shape.slices);
    return shape;
}

// Returns the facts of a choice's orders. Null if the schedule refuses the shape.
std::unique_ptr<const OrderFacts> facts_of(const SearchSetup& setup, const OrderKey& key) {
    const OrderCopies copies{{first_stages(std::get<5>(key)), std::get<6>(key)}, setup.transfer.copies};
    return order_facts(searched_schedule(setup, std::get<0>(key)), shape_of(key), setup.pipeline.options, copies);
}

bool has_same_places(const Shape& a, const Shape& b) {
    return a.stages == b.stages && a.copies == b.copies && a.placement == b.placement && a.serving == b.serving;
}

// The costs of choices that differ in their schedule and in the number of stages alone. Schedules that place the same
// stages on the same devices have the same costs.
class CostsOfGroup {
public:
    CostsOfGroup(const SearchSetup& setup, const PlanChoice& one)
        : chosen_(setup_of(setup, one)),
          slices_(one.slices),
          offloads_(setup.search.offload != SearchConfig::Recompute::None && one.slices == 1),
          layers_(marked(transformer_model(transformer_job_of(chosen_), one.micro_batch_size))),
          profile_(makes_of_plan(chosen_).empty() ? in_cluster(std::move(layers_.profile), chosen_)
                                                  : profile_of(chosen_, layers_.model)),
          cluster_(cluster_of(chosen_, profile_)),
          table_(layers_.model, profile_, one.micro_batch_size) {}

    const std::vector<DeviceConfig>& devices() const { return chosen_.cluster.devices; }

    // Null for a model of one block.
    const SplitParts* parts() {
        if (!parts_ && chosen_.workload.all_blocks() > 1)
            parts_.emplace(made_parts());
        return parts_ ? &*parts_ : nullptr;
    }

    // The numbers of blocks without a choice of them.
    std::vector<int> usual_blocks(const Shape& shape) {
        (void)of(shape);
        std::vector<int> blocks;
        for (const std::vector<int>& layers : by_stages_.at(shape.stages).first.layers)
            blocks.push_back(
                static_cast<int>(std::ranges::count_if(layers, [&](int layer) { return is_block(layer); })));
        return blocks;
    }

    // The costs with these numbers of blocks.
    Costs of(const Shape& shape, const std::vector<int>& blocks) {
        const StageSplit split = split_of_blocks(layers_.model.layers, blocks);
        return completed(table_.costs_of(split), split, shape);
    }

    const Costs& of(const Shape& shape) {
        const auto same = std::find_if(placed_.begin(), placed_.end(),
                                       [&](const auto& one) { return has_same_places(*one.first, shape); });
        if (same != placed_.end())
            return same->second;
        const auto [of_number, is_new] = by_stages_.try_emplace(shape.stages);
        auto& [split, costs] = of_number->second;
        if (is_new) {
            chosen_.pipeline.stages = shape.stages;
            split = make_split(chosen_, layers_.model, profile_);
            costs = table_.costs_of(split);
        }
        placed_.emplace_back(&shape, completed(costs, split, shape));
        return placed_.back().second;
    }

private:
    // All stages have the bytes of offloaded stages. A stage that is not offloaded holds as many.
    ProfiledModel marked(ProfiledModel layers) {
        chosen_.pipeline.offload.stages.clear();
        if (offloads_) {
            StageSplit whole;
            whole.layers.emplace_back(first_stages(static_cast<int>(num_vertices(layers.model.layers))));
            chosen_.pipeline.offload.stages = {0};
            mark_offloaded(chosen_, whole, layers.model);
        }
        return layers;
    }

    bool is_block(int layer) const {
        return layers_.model.layers[static_cast<std::size_t>(layer)].part == LayerPart::Block;
    }

    SplitParts made_parts() {
        SplitParts parts{{}, runs_of_blocks(), chosen_.parallel.of_stages.empty()};
        std::vector<int> blocks = {0};  // of the stages
        for (SplitParts::Run& run : parts.runs) {
            run.stage = static_cast<int>(blocks.size());
            blocks.push_back(1);
            if (run.blocks > 1)
                blocks.push_back(run.blocks - 1);
        }
        blocks.push_back(0);
        Shape shape;
        shape.stages = static_cast<int>(blocks.size());
        shape.slices = slices_;
        const StageSplit split = split_of_blocks(layers_.model.layers, blocks);
        parts.costs = completed(table_.costs_of(split), split, shape);
        return parts;
    }

    // A block with joint layers before it is a run.
    std::vector<SplitParts::Run> runs_of_blocks() const {
        std::vector<SplitParts::Run> runs;
        bool is_joined = true;  // whether the block before has joint layers before it
        for (int layer = 1; layer < std::ssize(profile_.layers); ++layer) {
            if (!is_block(layer))
                continue;
            if (!is_joined && is_block(layer - 1) && are_alike(layer - 1, layer))
                ++runs.back().blocks;
            else
                runs.push_back({.blocks = 1});
            is_joined = layers_.model.layers[static_cast<std::size_t>(layer) - 1].part == LayerPart::Joint;
        }
        return runs;
    }

    // Whether two layers take the same times and bytes on every make.
    bool are_alike(int a, int b) const {
        const auto same = [&](const std::vector<LayerProfile>& layers) {
            const LayerProfile &first = layers[static_cast<std::size_t>(a)],
                               &second = layers[static_cast<std::size_t>(b)];
            return first.times == second.times && first.bytes == second.bytes;
        };
        return same(profile_.layers) && std::ranges::all_of(profile_.of_makes, same);
    }

    Costs completed(Costs costs, const StageSplit& split, const Shape& shape) {
        chosen_.pipeline.offload.stages = first_stages(offloads_ ? shape.stages : 0);
        Costs all = complete_costs(std::move(costs), chosen_, cluster_, layers_.model.layers, split, shape);
        all.kept = kept_in_bounds(chosen_);
        if (!chosen_.pipeline.offload.states.empty())
            for (StageBytes& bytes : all.bytes)
                if (bytes.training)
                    bytes.training->states = 0;
        return all;
    }

    Setup chosen_;
    int slices_;
    bool offloads_;  // whether the search offloads stages
    ProfiledModel layers_;
    Profile profile_;
    std::shared_ptr<const Cluster> cluster_;
    CostTable table_;
    std::optional<SplitParts> parts_;
    std::map<int, std::pair<StageSplit, Costs>> by_stages_;
    std::deque<std::pair<const Shape*, Costs>> placed_;
};

class ChoiceBounder {
public:
    ChoiceBounder(const SearchSetup& setup, const std::vector<PlanChoice>& choices, const WorkOnAll& on_all,
                  const SearchTeam& team)
        : setup_(setup), choices_(choices), on_all_(on_all), team_(team) {
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
        share_bounds();
        for (const PlanChoice& choice : choices_)
            result_.without_memory += orders_of(choice).too_large ? 1 : 0;
        return std::move(result_);
    }

private:
    void make_order_facts() {
        std::vector<OrderKey> keys;
        for (const PlanChoice& choice : choices_)
            if (const OrderKey key = order_key(choice); facts_.try_emplace(key).second)
                keys.push_back(key);
        std::vector<char> made(keys.size(), 0);
        on_all_("orders", keys.size(), [&](std::size_t index) {
            OrdersOfKey& orders = facts_.find(keys[index])->second;
            try {
                orders.facts = facts_of(setup_, keys[index]);
            } catch (const Error&) {
                orders.too_large = true;
            }
            made[index] = 1;
        });
        Packet own;
        for (std::size_t index = 0; index < keys.size(); ++index)
            if (made[index] != 0) {
                put(own, index);
                write(own, facts_.find(keys[index])->second);
            }
        share(team_, own, [&](PacketReader& reader) {
            const OrderKey& key = keys[reader.take<std::size_t>()];
            facts_.find(key)->second = read_orders(reader, key);
        });
    }

    const Schedule& schedule_of(const OrderKey& key) const { return searched_schedule(setup_, std::get<0>(key)); }

    static void write(Packet& packet, const OrdersOfKey& orders) {
        put(packet, orders.too_large);
        put(packet, orders.facts != nullptr);
        if (!orders.facts)
            return;
        put(packet, orders.facts->form);
        put(packet, orders.facts->pairs);
        put(packet, orders.facts->copies);
        for (const std::vector<OrderFacts::Held>& on_device : orders.facts->held) {
            put(packet, on_device.size());
            for (const OrderFacts::Held& held : on_device)
                put(packet, held);
        }
    }

    OrdersOfKey read_orders(PacketReader& reader, const OrderKey& key) const {
        OrdersOfKey orders;
        orders.too_large = reader.take<bool>();
        if (!reader.take<bool>())
            return orders;
        auto facts = std::make_unique<OrderFacts>();
        facts->shape = placed(schedule_of(key), shape_of(key));
        facts->form = reader.take<BackwardForm>();
        facts->pairs = reader.take<bool>();
        facts->copies = reader.take<TransferMode::Copies>();
        facts->held.resize(static_cast<std::size_t>(facts->shape.devices));
        for (std::vector<OrderFacts::Held>& on_device : facts->held) {
            on_device.resize(reader.take<std::size_t>());
            for (OrderFacts::Held& held : on_device)
                held = reader.take<OrderFacts::Held>();
        }
        orders.facts = std::move(facts);
        return orders;
    }

    void share_bounds() {
        Packet own;
        for (std::size_t index = 0; team_.size > 1 && index < result_.of.size(); ++index)
            if (result_.of[index].is_defined) {
                put(own, index);
                put(own, result_.of[index]);
            }
        share(team_, own, [&](PacketReader& reader) {
            const auto index = reader.take<std::size_t>();
            result_.of[index] = reader.take<ChoiceBounds>();
        });
    }

    const OrdersOfKey& orders_of(const PlanChoice& choice) const { return facts_.find(order_key(choice))->second; }

    void bound_group(std::size_t begin, std::size_t end) {
        std::optional<CostsOfGroup> group;
        for (std::size_t index = begin; index < end; ++index) {
            const OrderFacts* facts = orders_of(choices_[index]).facts.get();
            if (facts == nullptr)
                continue;
            if (!group)
                group.emplace(setup_, choices_[index]);
            const Costs& costs = group->of(facts->shape);
            ChoiceBounds& bounds = result_.of[index];
            bounds.is_defined = true;
            bounds.step_time = least_step_time(*facts, costs);
            bounds.shortage = worst_of(least_memory(*facts, costs), group->devices());
            bounds.fits = bounds.shortage.needs <= bounds.shortage.has;
            bound_splits(*facts, costs, *group, bounds);
        }
    }

    void bound_splits(const OrderFacts& facts, const Costs& costs, CostsOfGroup& group, ChoiceBounds& bounds) const {
        const SplitParts* const parts =
            setup_.search.unequal_blocks && facts.shape.stages > 1 ? group.parts() : nullptr;
        if (parts == nullptr)
            return;
        const SplitBounds of_splits =
            bounds_of_splits(facts, costs, *parts, group.devices(), group.usual_blocks(facts.shape), bounds.fits);
        if (!of_splits.may_fit)
            return;
        bounds.may_fit_moved = true;
        bounds.least_moved = std::min(bounds.step_time, of_splits.step_time);
        if (!of_splits.balanced.empty())
            bounds.expected_moved = std::max(bounds.least_moved, bounds.step_time - of_splits.gain);
    }

    const SearchSetup& setup_;
    const std::vector<PlanChoice>& choices_;
    const WorkOnAll& on_all_;
    const SearchTeam& team_;
    std::map<OrderKey, OrdersOfKey> facts_;
    BoundsOfChoices result_;
};

}  // namespace

std::vector<int> balanced_blocks(const SearchSetup& setup, const PlanChoice& choice) {
    const auto facts = facts_of(setup, order_key(choice));
    CostsOfGroup group(setup, choice);
    return bounds_of_splits(*facts, group.of(facts->shape), *group.parts(), group.devices(),
                            group.usual_blocks(facts->shape), false)
        .balanced;
}

std::vector<int> usual_blocks(const SearchSetup& setup, const PlanChoice& choice) {
    PlanChoice usual = choice;
    usual.blocks.clear();
    return CostsOfGroup(setup, usual).usual_blocks(facts_of(setup, order_key(choice))->shape);
}

std::int64_t divisions_of(int blocks, int stages, std::int64_t most) {
    double count = 1;  // (blocks + stages - 1) over (stages - 1)
    for (int k = 1; k < stages; ++k)
        count = std::min(count * (blocks + k) / k, 1e15);
    return std::min(most, static_cast<std::int64_t>(count + 0.5));
}

std::vector<BoundedDivision> bounded_divisions(const SearchSetup& setup, const PlanChoice& choice, Ns limit) {
    const auto facts = facts_of(setup, order_key(choice));
    PlanChoice even = choice;
    even.blocks.clear();
    CostsOfGroup group(setup, even);
    const int stages = choice.stages, all = setup.workload.all_blocks();
    std::vector<BoundedDivision> divisions;
    std::vector<int> blocks(static_cast<std::size_t>(stages), 0);
    const std::function<void(int, int)> divide = [&](int stage, int rest) {
        if (stage + 1 < stages) {
            for (int number = 0; number <= rest; ++number) {
                blocks[static_cast<std::size_t>(stage)] = number;
                divide(stage + 1, rest - number);
            }
            return;
        }
        blocks.back() = rest;
        const Costs costs = group.of(facts->shape, blocks);
        const Shortage shortage = worst_of(least_memory(*facts, costs), group.devices());
        if (const Ns bound = least_step_time(*facts, costs); bound < limit && shortage.needs <= shortage.has)
            divisions.push_back({bound, blocks});
    };
    divide(0, all);
    return divisions;
}

std::vector<PlanChoice> moves_of(const SearchSetup& setup, const PlanChoice& choice, unsigned seed, std::size_t most) {
    const auto facts = facts_of(setup, order_key(choice));
    PlanChoice even = choice;
    even.blocks.clear();
    CostsOfGroup group(setup, even);
    std::vector<std::vector<int>> moves =
        moves_of(choice.blocks, *facts, group.of(facts->shape), *group.parts(), group.devices(), seed);
    moves.resize(std::min(moves.size(), most));
    std::vector<PlanChoice> moved(moves.size(), choice);
    for (std::size_t k = 0; k < moves.size(); ++k)
        moved[k].blocks = std::move(moves[k]);
    return moved;
}

Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices) {
    Shortage worst{0, needed.front(), devices.front().memory};
    for (std::size_t device = 1; device < needed.size(); ++device)
        if (needed[device] - devices[device].memory > worst.needs - worst.has)
            worst = {static_cast<int>(device), needed[device], devices[device].memory};
    return worst;
}

BoundsOfChoices bounds_of(const SearchSetup& setup, const std::vector<PlanChoice>& choices, const WorkOnAll& on_all,
                          const SearchTeam& team) {
    return ChoiceBounder(setup, choices, on_all, team).made();
}

}  // namespace pw
