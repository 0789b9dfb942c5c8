#include "workloads/transformers/transformer_model.h"

#include "workloads/bounded.h"
#include "workloads/costs/profiled_layers.h"
#include "workloads/models/frozen_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

namespace {

Ns nanoseconds(double seconds) { return bounded(std::ceil(seconds * 1e9)); }
Bytes whole_bytes(double bytes) { return bounded(std::ceil(bytes)); }

// Sharing of parameters: the number of devices that share the state of a layer's parameters.
struct Sharing {
    double dense = 1, experts = 1;
};

Sharing sharing_of(const Parallel& parallel) {
    return {static_cast<double>(parallel.sharers()), static_cast<double>(parallel.expert_sharers())};
}

double shared(const LayerParameters& parameters, const Sharing& sharing, bool divided) {
    return divided ? parameters.dense / sharing.dense + parameters.experts / sharing.experts
                   : parameters.dense + parameters.experts;
}

// Returns how many bytes of states a parameter outside the matrices of blocks has more than a parameter of a matrix.
double more_states(const TransformerJob& job) {
    return static_cast<double>(job.kept(ParameterForm::Other).states - job.kept().states);
}

HeldOf<double> held_by(const LayerParameters& parameters, const TransformerJob& job) {
    const Sharing sharing = sharing_of(job.parallel);
    const int zero = job.parallel.zero;
    HeldOf<double> held =
        held_state(shared(parameters, sharing, false), shared(parameters, sharing, true), job.kept(), zero);
    held.states += more_states(job) * (zero >= 1 ? parameters.other / sharing.dense : parameters.other);
    return held;
}

void add_layer(ProfiledModel& to, const std::string& name, const std::vector<int>& inputs,
               const TransformerLayerCost& cost, const TransformerJob& job, int samples) {
    const int number = static_cast<int>(num_vertices(to.model.layers));
    PassTimes times;
    times.forward = nanoseconds(cost.forward);
    times.backward_input = nanoseconds(cost.backward_input);
    times.backward_weight = nanoseconds(cost.backward_weight);
    times.backward = times.backward_input + times.backward_weight;
    LayerBytes bytes;
    bytes.weights = whole_bytes(held_by(cost.parameters, job).weights);
    bytes.frozen = whole_bytes(held_by(cost.frozen, job).weights);
    bytes.output = whole_bytes(cost.saves_output ? cost.made : 0);
    // B of a part of the head, or its W, begins with the probabilities that the sum over all parts gives.
    (cost.made == 0 && job.parts > 1 ? bytes.kept_until_weight : bytes.saved_until_input) = whole_bytes(cost.saved);
    bytes.scratch = whole_bytes(cost.scratch + 2 * cost.gathered);
    add_profiled_layer(to, name, inputs, {{samples, times}}, bytes, samples);
    to.model.layers[number].frozen = bytes.weights == 0 && bytes.frozen > 0;
}

// What the layers of a stage have in common at the end of a step.
struct StepEnd {
    LayerParameters parameters;
    PassParts passes;
    double blocks = 0;
};

std::vector<StepEnd> ends_of(const std::vector<TransformerLayerCost>& layers, const StageSplit& split) {
    std::vector<StepEnd> ends;
    for (const std::vector<int>& stage : split.layers) {
        StepEnd& end = ends.emplace_back();
        for (const int layer : stage) {
            const TransformerLayerCost& cost = layers[static_cast<std::size_t>(layer)];
            end.parameters.dense += cost.parameters.dense;
            end.parameters.experts += cost.parameters.experts;
            end.parameters.other += cost.parameters.other;
            end.passes += cost.parts;
            end.blocks += cost.is_block && cost.parameters.dense > 0 ? 1 : 0;
        }
    }
    return ends;
}

// Returns the seconds of the sums of gradients and of the gathers of weights at the end of a step. Replicas that share
// the state divide the sums. If only some replicas share it, they add their parts to the parts of the remaining groups.
// Weights are gathered among the replicas that share. With ZeRO-3, the sums have been divided in every pass, and the
// next pass gathers.
std::pair<double, double> exchanges(double gradient, double weight, const StepEnd& end, const TransformerJob& job) {
    const Parallel& parallel = job.parallel;
    const auto among = [&](const ParameterRanks& ranks, Collective kind, double bytes, const LayerParameters& of) {
        return collective_seconds(kind, bytes, of, ranks, job.fabric);
    };
    if (parallel.zero == 0)
        return {among(parallel.all_replicas(), Collective::AllReduce, gradient, end.parameters), 0};
    const Sharing sharing = sharing_of(parallel);
    const LayerParameters own{end.parameters.dense / sharing.dense, end.parameters.experts / sharing.experts};
    const double between_groups = among(parallel.ranks_of_groups(), Collective::AllReduce, gradient, own);
    if (parallel.zero == 3)
        return {between_groups, 0};
    return {among(parallel.sharing_ranks(), Collective::ReduceScatter, gradient, end.parameters) + between_groups,
            among(parallel.sharing_ranks(), Collective::AllGather, weight, end.parameters)};
}

// Returns the part of a message that no pass hides. The last bucket, of a single block, is never hidden.
double exposed_sum(double seconds, double pass, double blocks, bool overlaps) {
    if (!overlaps)
        return seconds;
    const double last = seconds / std::max(1.0, blocks);
    return last + std::max(0.0, seconds - last - pass * (1 - 1 / std::max(1.0, blocks)));
}

// The plan has a single replica, whose update waits for the sums.
StageParts parts_of_end(const StepEnd& end, const StageCost& passes, const TransformerJob& job) {
    const Parallel& parallel = job.parallel;
    const bool overlaps = parallel.program().overlap.data;
    const Sharing sharing = sharing_of(parallel);
    const KeptBytes kept = job.kept();
    const auto gradient = static_cast<double>(kept.gradient);
    const auto [sum, gather] = exchanges(gradient, static_cast<double>(kept.weight), end, job);
    // Before the update, the norm reads the gradients. The gradients are also set to zero.
    const double touched = static_cast<double>(update_bytes(kept)) + gradient;
    const double held = shared(end.parameters, sharing, parallel.zero >= 1);
    const double all = shared(end.parameters, sharing, parallel.zero == 3);
    const double others = parallel.zero >= 1 ? end.parameters.other / sharing.dense : end.parameters.other;
    return {end.passes, exposed_sum(sum, static_cast<double>(passes.backward) * 1e-9, end.blocks, overlaps),
            KernelTimes(job).moved(touched * held + 2 * more_states(job) * others + gradient * all),
            exposed_sum(gather, static_cast<double>(passes.forward) * 1e-9, end.blocks, overlaps)};
}

}  // namespace

ProfiledModel transformer_model(const TransformerJob& job, int samples) {
    ProfiledModel result = empty_profiled_model(job.model.name);
    result.model.name = result.profile.model = job.model.name;
    result.profile.backend = "shapes";
    const std::vector<TransformerLayerCost> costs = TransformerLayers(job).all(samples);
    const std::vector<ListedLayer> layers = listed_layers(job);
    // A layer reads the layer before it, or all parts of the embedding. Parts read the same.
    std::vector<int> read, made;
    for (std::size_t number = 0; number < layers.size(); ++number) {
        const bool is_part =
            number > 0 && job.parts > 1 && layers[number].kind == layers[number - 1].kind && !layers[number].is_block();
        if (!is_part)
            read = std::exchange(made, {});
        add_layer(result, layers[number].name(), read, costs[number], job, samples);
        result.model.layers[number].part = layers[number].part;
        made.push_back(static_cast<int>(number));
    }
    set_frozen(result.model.layers, {});
    result.profile.data[samples] = {};
    result.profile.data_bytes[samples] = 0;
    return result;
}

double joined_seconds(const TransformerJob& job, int samples) {
    constexpr double kMaximumAndSum = 2 * 4;
    const Parallel& parallel = job.parallel;
    return collective_seconds(Collective::AllReduce, kMaximumAndSum * samples * job.tokens / parallel.context,
                              {job.parts, parallel.holders()}, job.fabric);
}

// The layers ask for the rates of their products. The rates do not matter.
std::vector<Product> products_of(TransformerJob job, int samples) {
    ProductRates asked;
    asked.table.rows = {{Product{}, 1}};
    asked.with_groups = &table_with_groups("");
    job.products = job.head_products = std::make_shared<const ProductRates>(asked);
    (void)TransformerLayers(job).all(samples);
    return asked.known->products();
}

namespace {

StageBytes::Training training_of(const StepEnd& end, const TransformerJob& job) {
    const HeldOf<double> held = held_by(end.parameters, job);
    return {whole_bytes(held.gradients), whole_bytes(held.states)};
}

// Adds the replicas to the costs on a make. `sizes` are the sizes of the stages on this make.
void add_replicas_on(MakeCosts& costs, std::vector<StageBytes>& sizes, const std::vector<TransformerJob>& together,
                     const StageSplit& split, int samples) {
    const std::vector<StepEnd> ends = ends_of(TransformerLayers(together.front()).all(samples), split);
    for (std::size_t stage = 0; stage < ends.size(); ++stage) {
        sizes[stage].training = training_of(ends[stage], together.front());
        StageCost& cost = costs.stage[stage];
        for (const TransformerJob& job : together) {
            const StageParts parts = parts_of_end(ends[stage], cost, job);
            cost.update = std::max(cost.update, nanoseconds(parts.sums + parts.update + parts.gathers));
        }
    }
}

}  // namespace

void add_replicas(Costs& costs, const std::vector<std::vector<TransformerJob>>& jobs, const StageSplit& split,
                  int samples) {
    const Parallel& parallel = jobs.front().front().parallel;
    if (!parallel.sequence)  // each tensor rank sends a part, which the receivers gather
        for (EdgeBytes& edge : costs.edges) {
            edge.forward /= parallel.tensor;
            edge.backward /= parallel.tensor;
        }
    if (costs.of_makes.empty())
        return add_replicas_on(costs, costs.bytes, jobs.front(), split, samples);
    for (std::size_t make = 0; make < jobs.size(); ++make) {
        MakeCosts& own = costs.of_makes[make];
        add_replicas_on(own, own.sizes.empty() ? costs.bytes : own.sizes, jobs[make], split, samples);
    }
    for (std::size_t stage = 0; stage < costs.stage.size(); ++stage) {
        Ns least = costs.of_makes.front().stage[stage].update;
        for (const MakeCosts& own : costs.of_makes)
            least = std::min(least, own.stage[stage].update);
        costs.stage[stage].update = least;
    }
}

double attention_part(const TransformerJob& job, int samples) {
    double attention = 0, all = 0;
    for (const TransformerLayerCost& layer : TransformerLayers(job).all(samples)) {
        attention += layer.parts.attention;
        all += layer.forward + layer.backward_input + layer.backward_weight;
    }
    return attention / all;
}

namespace {

struct PassesOfStage {
    double forward = 0, input = 0, weight = 0;  // seconds
};

std::vector<PassesOfStage> passes_of_stages(const std::vector<TransformerLayerCost>& layers, const StageSplit& split) {
    std::vector<PassesOfStage> stages;
    for (const std::vector<int>& stage : split.layers) {
        PassesOfStage& passes = stages.emplace_back();
        for (const int number : stage) {
            const TransformerLayerCost& layer = layers[static_cast<std::size_t>(number)];
            passes.forward += layer.forward;
            passes.input += layer.backward_input;
            passes.weight += layer.backward_weight;
        }
    }
    return stages;
}

double share_of(double part, double whole, double even) { return whole > 0 ? part / whole : even; }

// Later slices read a copy of keys and values, which slices keep in addition to what they save.
void add_bytes_of_slices(std::vector<StageBytes>& sizes, const std::vector<TransformerLayerCost>& layers,
                         const StageSplit& split) {
    for (std::size_t stage = 0; stage < sizes.size(); ++stage) {
        double read = 0, gathered = 0;
        for (const int number : split.layers[stage]) {
            const TransformerLayerCost& layer = layers[static_cast<std::size_t>(number)];
            read += layer.keys_and_values;
            gathered = std::max(gathered, 2 * layer.gathered);
        }
        sizes[stage].uncut_workspace = whole_bytes(gathered);
        sizes[stage].keys_and_values = whole_bytes(read);
        sizes[stage].until_input += whole_bytes(read);
    }
}

}  // namespace

void cut_in_slices(Costs& costs, const std::vector<std::vector<TransformerJob>>& jobs,
                   const std::vector<int>& make_of_stage, const StageSplit& split, int samples, const SliceEnds& ends) {
    costs.slices.assign(ends.size(), std::vector<MicroBatchLength>(split.layers.size()));
    for (std::size_t make = 0; make < jobs.size(); ++make) {
        const TransformerJob& job = jobs[make].front();
        const std::vector<TransformerLayerCost> layers = TransformerLayers(job).all(samples);
        const std::vector<PassesOfStage> whole = passes_of_stages(layers, split);
        double begin = 0;
        for (std::size_t slice = 0; slice < ends.size(); ++slice) {
            const double end = ends[slice], even = end - begin;
            const std::vector<PassesOfStage> passes =
                passes_of_stages(TransformerLayers(job, {begin * job.tokens, end * job.tokens}).all(samples), split);
            for (std::size_t stage = 0; stage < passes.size(); ++stage) {
                const MicroBatchLength length = {share_of(passes[stage].forward, whole[stage].forward, even),
                                                 share_of(passes[stage].input, whole[stage].input, even),
                                                 share_of(passes[stage].weight, whole[stage].weight, even), even};
                MicroBatchLength& own = costs.slices[slice][stage];
                if (make_of_stage.empty() ? make == 0 : std::cmp_equal(make_of_stage[stage], make))
                    own = length;
                else if (make_of_stage.empty())
                    own = {std::min(own.forward, length.forward), std::min(own.backward_input, length.backward_input),
                           std::min(own.backward_weight, length.backward_weight), even};
            }
            begin = end;
        }
        if (make == 0)
            add_bytes_of_slices(costs.bytes, layers, split);
        if (!costs.of_makes.empty())
            add_bytes_of_slices(costs.of_makes[make].sizes, layers, split);  // may be empty
    }
}

std::vector<StageParts> stage_parts(const TransformerJob& job, const StageSplit& split,
                                    const std::vector<StageCost>& passes, int samples, const SliceEnds& ends) {
    const std::vector<StepEnd> step_ends = ends_of(TransformerLayers(job).all(samples), split);
    std::vector<StageParts> parts;
    for (std::size_t stage = 0; stage < step_ends.size(); ++stage)
        parts.push_back(parts_of_end(step_ends[stage], passes[stage], job));
    if (ends.size() == 1)
        return parts;
    for (StageParts& stage : parts)
        stage.passes = {};
    double begin = 0;
    for (const double end : ends) {
        const auto slice = ends_of(TransformerLayers(job, {begin * job.tokens, end * job.tokens}).all(samples), split);
        for (std::size_t stage = 0; stage < parts.size(); ++stage)
            parts[stage].passes += slice[stage].passes;
        begin = end;
    }
    return parts;
}

ClusterFacts pipeline_cluster(const TransformerJob& job) {
    const Fabric& fabric = job.fabric;
    const int stride = job.parallel.holders(), stages = job.parallel.pipeline;
    ClusterFacts facts;
    facts.link = fabric.inside;
    if (!fabric.between)
        return facts;
    Link out = *fabric.between;
    out.by_size.clear();
    out.bandwidth = fabric.way_out() / fabric.domain;
    if (stride >= fabric.domain) {
        facts.link = out;
        return facts;
    }
    // Some neighbours are in the same domain. The ranks of the rest share the bandwidth out of the domain.
    out.bandwidth = fabric.way_out() / stride;
    const auto domain_of = [&](int stage) { return std::int64_t{stage} * stride / fabric.domain; };
    for (int from = 0; from < stages; ++from)
        for (const int to : {from - 1, from + 1, stages - 1 - from})
            if (to >= 0 && to < stages && domain_of(from) != domain_of(to))
                facts.own_links[{from, to}] = out;
    return facts;
}

ClusterFacts pipeline_cluster(const RankLinks& links) {
    const auto stages = static_cast<int>(links.first_rank.size()) - 1;
    const auto ranks_of = [&](int stage) { return links.first_rank[stage + 1] - links.first_rank[stage]; };
    // The link of a message if `together` messages leave at once.
    const auto link_of = [&](int from, int to, int together) {
        if (const auto own = links.own_links.find({from, to}); own != links.own_links.end())
            return own->second;
        const auto a = static_cast<std::size_t>(from), b = static_cast<std::size_t>(to);
        const Fabric &of_a = links.fabrics[static_cast<std::size_t>(links.fabric[a])],
                     &of_b = links.fabrics[static_cast<std::size_t>(links.fabric[b])];
        const bool is_inside =
            links.host[a] == links.host[b] || (of_a.domain > of_a.per_host && from / of_a.domain == to / of_a.domain);
        if (is_inside || !of_a.between || !of_b.between)
            return slower_of(of_a.inside, of_b.inside);
        const auto way_out = [&](const Fabric& fabric) {
            Link out = *fabric.between;
            out.by_size.clear();
            out.bandwidth = fabric.way_out() / std::min(together, fabric.domain);
            return out;
        };
        return slower_of(way_out(of_a), way_out(of_b));
    };
    ClusterFacts facts;
    for (int from = 0; from < stages; ++from)
        for (const int to : {from - 1, from + 1, stages - 1 - from})
            if (to >= 0 && to < stages && to != from) {
                const int messages = std::min(ranks_of(from), ranks_of(to));
                const auto link = [&](int k) {
                    return link_of(links.first_rank[from] + k * ranks_of(from) / messages,
                                   links.first_rank[to] + k * ranks_of(to) / messages, messages);
                };
                Link slowest = link(0);
                for (int k = 1; k < messages; ++k)
                    slowest = slower_of(slowest, link(k));
                facts.own_links[{from, to}] = slowest;
            }
    for (const Capacity& shared : links.shared) {
        // A message of the plan stands for a message from each rank of a stage.
        Capacity of_stages{shared.of, {}, shared.bandwidth};
        int most = 1;
        for (int stage = 0; stage < stages; ++stage) {
            const auto first = std::ranges::lower_bound(shared.devices, links.first_rank[stage]),
                       end = std::ranges::lower_bound(shared.devices, links.first_rank[stage + 1]);
            const auto members = static_cast<int>(end - first);
            if (shared.of == Capacity::Of::Touching ? members > 0 : 2 * members > ranks_of(stage)) {
                of_stages.devices.push_back(stage);
                most = std::max(most, members);
            }
        }
        of_stages.bandwidth /= most;
        facts.shared.push_back(std::move(of_stages));
    }
    return facts;
}

}  // namespace pw
