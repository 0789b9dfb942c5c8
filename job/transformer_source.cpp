#include "job/transformer_source.h"

#include "job/build.h"
#include "job/makes.h"
#include "job/plan.h"
#include "job/setup/pair_times.h"
#include "job/setup/rank_groups.h"
#include "job/slices.h"
#include "job/transformer_job.h"
#include "workloads/bounded.h"
#include "workloads/transformers/layer_costs.h"
#include "workloads/transformers/pair_times.h"
#include "workloads/transformers/transformer_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// The links of hosts, whatever limits the collectives of a stage.
Fabric fabric_of_hosts(const Setup& setup, int make) {
    Setup alike = of_make(setup, make);
    alike.parallel.inside_limit = alike.parallel.between_limit = std::numeric_limits<double>::infinity();
    return transformer_job_of(alike).fabric;
}

// Gives stages whose devices have other degrees their sizes. Between two stages, the ranks of the smaller stage share a
// tensor: each rank sends its part, or receives it from a rank or several ranks.
void take_sizes_of_stages(Costs& costs, const Setup& setup, const Shape& shape) {
    std::vector<int> ranks;  // that share a tensor, by stage
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> devices = shape.devices_of(stage);
        if (devices.size() > 1)
            setup.fail_at("parallel",
                          fmt::format("schedule {} gives stage {} to {} devices, whose degrees differ",
                                      setup.pipeline.schedule, stage, devices.size()),
                          "write one degree for all stages, or a schedule in which each stage has one device");
        const Parallel& degrees = setup.parallel.degrees_of(devices.front());
        ranks.push_back(degrees.tensor * degrees.context);
        if (const std::vector<StageBytes>& sizes = costs.times_on(devices.front()).sizes; !sizes.empty())
            costs.bytes[static_cast<std::size_t>(stage)] = sizes[static_cast<std::size_t>(stage)];
    }
    TransformerJob whole = transformer_job_of(setup);
    const double ranks_of_edges = whole.parallel.tensor * whole.parallel.context;  // by whose degrees edges are
    whole.parallel.tensor = whole.parallel.context = 1;
    whole.parallel.sequence = false;
    const double tensor = TransformerLayers(whole).output_bytes(setup.pipeline.micro_batch_size);
    for (EdgeBytes& edge : costs.edges)
        for (Bytes* bytes : {&edge.forward, &edge.backward})
            if (*bytes > 0) {
                // Several, after a module of a further token.
                const double tensors = std::max(1.0, std::round(static_cast<double>(*bytes) * ranks_of_edges / tensor));
                *bytes = bounded(std::ceil(
                    tensors * tensor /
                    std::min(ranks[static_cast<std::size_t>(edge.from)], ranks[static_cast<std::size_t>(edge.to)])));
            }
}

// Bounds ask for the costs of parts of the model on any device, with fewer devices than the plan.
bool is_of_plan(const Setup& setup, const Shape& shape) { return shape.devices == std::ssize(setup.cluster.devices); }

// Returns the make of the devices of each stage. Empty for parts on any device.
std::vector<int> makes_of_stages(const Costs& costs, const Setup& setup, const Shape& shape) {
    std::vector<int> makes;
    if (!costs.of_makes.empty() && !is_of_plan(setup, shape))
        return makes;
    for (int stage = 0; stage < shape.stages; ++stage)
        makes.push_back(costs.of_makes.empty() ? 0 : costs.cluster->times_of(shape.devices_of(stage).front()));
    return makes;
}

// A stage for each part of the embedding, the stages of the blocks, and a stage for each part of the head. If the
// blocks do not divide, their first stages have a block more. Their last stage has the final norm.
StageSplit split_between_parts(const LayerGraph& graph, int blocks, int parts) {
    std::vector<int> starts;
    for (int part = 0; part < parts; ++part)
        starts.push_back(part);
    for (int stage = 0, next = parts; stage < parts; ++stage) {
        starts.push_back(next);
        next += blocks / parts + (stage < blocks % parts ? 1 : 0);
    }
    for (int part = 0; part < parts; ++part)
        starts.push_back(parts + blocks + 1 + part);
    return split_at_layers(graph, starts);
}

int common_grain(const std::vector<std::vector<TransformerJob>>& jobs) {
    int grain = 1;
    for (const std::vector<TransformerJob>& together : jobs)
        grain = std::lcm(grain, together.front().parallel.tensor * together.front().parallel.context);
    return grain;
}

// Returns by stage with whose B a pair of its F is counted. In a V and in both directions an F meets the B of the
// second stage of its device. In interleaved pairs it meets the B of every stage of its device: counted with the B of
// its own stage, a round of pairs takes as long.
std::vector<int> partners_of(const Shape& shape) {
    std::vector<int> partners;
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> on_device = shape.stages_of(shape.devices_of(stage).front());
        const int opposite = shape.stages - 1 - stage;
        const bool is_mirrored = on_device.size() == 2 && on_device.front() + on_device.back() == shape.stages - 1;
        partners.push_back(is_mirrored ? opposite : stage);
    }
    return partners;
}

// Gives pairs the times in which their messages to experts and their computing overlap, unless the file says what a
// pair takes.
void add_pairs(Costs& costs, const Setup& setup, const std::vector<std::vector<TransformerJob>>& jobs,
               const StageSplit& split, const Shape& shape) {
    if (setup.parallel.degrees.expert_ranks() == 1 || says_times_of_pairs(setup))
        return;
    const std::vector<int> partners = partners_of(shape);
    const auto add = [&](std::vector<StageCost>& stages, const std::vector<TransformerJob>& together) {
        for (const TransformerJob& job : together) {
            const auto times = pair_times(job, split, partners, setup.pipeline.micro_batch_size);
            for (std::size_t stage = 0; stage < stages.size(); ++stage)
                if (times[stage])
                    stages[stage].pair = std::max(stages[stage].pair.value_or(0), *times[stage]);
        }
    };
    for (std::size_t make = 0; make < costs.of_makes.size(); ++make)
        add(costs.of_makes[make].stage, jobs[make]);
    add(costs.stage, jobs.front());
}

}  // namespace

Profile profile_by_shapes(const Setup& setup, const Model&) {
    return transformer_model(transformer_job_of(setup), setup.pipeline.micro_batch_size).profile;
}

Model model_by_shapes(const Setup& setup) {
    return transformer_model(transformer_job_of(setup), setup.pipeline.micro_batch_size).model;
}

namespace {

// Returns the first layer of each block, which has the joint layers before the block, and the first layer after the
// last block.
std::vector<int> starts_of_transformer_blocks(const LayerGraph& graph) {
    std::vector<int> starts;
    int first = 0;  // of the next block
    for (int number = 0; number < static_cast<int>(num_vertices(graph)); ++number) {
        const std::optional<LayerPart>& part = graph[static_cast<std::size_t>(number)].part;
        if (part == LayerPart::Block)
            starts.push_back(first);
        if (part != LayerPart::Joint && (part == LayerPart::Block || starts.empty()))
            first = number + 1;
    }
    starts.push_back(first);
    return starts;
}

// Makes the longest stage as short as possible. The first stage may have the embedding alone, the last the head.
StageSplit split_by_times(const Setup& setup, const LayerGraph& graph) {
    std::vector<Ns> times;
    const TransformerJob job = transformer_job_of(setup);
    for (const TransformerLayerCost& layer : TransformerLayers(job).all(setup.pipeline.micro_batch_size))
        times.push_back(bounded((layer.forward + layer.backward_input + layer.backward_weight) * 1e9));
    CutPlaces places = starts_of_transformer_blocks(graph);
    places.insert(places.begin(), 0);
    return split_bottleneck(graph, std::vector<double>(static_cast<std::size_t>(setup.pipeline.stages), 1), times,
                            places);
}

}  // namespace

// Gives every stage equally many blocks, as Megatron-LM does, with the embedding in the first and the head in the last.
// Where that is not possible, both count as blocks. Else the first stages have one more. Blocks of which only some are
// trained, or of an encoder, are divided by their times.
StageSplit split_by_blocks(const Setup& setup, const Model& model) {
    const int parts = parts_of_ends(setup), blocks = setup.workload.all_blocks();
    const int stages = parts > 1 ? parts : setup.pipeline.stages;
    if (slots_of_stages(blocks, stages) < stages)
        setup.fail_at(setup.places.contains("pipeline.stages") ? "pipeline.stages" : "parallel.pipeline",
                      fmt::format("{} blocks cannot be divided among {} stages", blocks, stages), "write fewer stages");
    if (parts > 1)
        return split_between_parts(model.layers, blocks, parts);
    return has_unlike_blocks(setup) ? split_by_times(setup, model.layers)
                                    : split_of_blocks(model.layers, even_blocks(blocks, stages));
}

StageSplit split_of_blocks(const LayerGraph& graph, const std::vector<int>& blocks) {
    const std::vector<int> starts_of = starts_of_transformer_blocks(graph);
    std::vector<int> starts = {0};
    for (std::size_t stage = 0, next = 0; stage + 1 < blocks.size(); ++stage) {
        next += static_cast<std::size_t>(blocks[stage]);
        starts.push_back(starts_of[next]);
    }
    return split_at_layers(graph, starts);
}

// The cluster in which the devices of a transformer's plan send their messages.
ClusterFacts pipeline_cluster_of(const Setup& setup) {
    RankLinks links;
    const ClusterRanks& ranks = *setup.parallel.ranks;
    const int stages = setup.parallel.degrees.pipeline;
    if (setup.cluster.makes.size() > 1 || !setup.parallel.of_stages.empty() || has_own_network(setup.cluster)) {
        for (int make = 0; make < std::max<std::ptrdiff_t>(1, std::ssize(setup.cluster.makes)); ++make)
            links.fabrics.push_back(fabric_of_hosts(setup, make));
        for (const DeviceConfig& device : ranks.devices)
            links.fabric.push_back(device.make);
        ClusterConfig cluster = setup.cluster;
        cluster.devices = ranks.devices;
        ClusterFacts of_ranks;
        add_network(of_ranks, cluster, place_on_hosts(of_ranks, cluster));
        calibrate_network(of_ranks, setup.calibration);
        links.host = of_ranks.host;
        links.own_links = std::move(of_ranks.own_links);
        links.shared = std::move(of_ranks.shared);
        for (int stage = 0; stage <= stages; ++stage)
            links.first_rank.push_back(setup.parallel.first_rank_of(stage));
    }
    ClusterFacts facts = links.fabrics.empty() ? pipeline_cluster(transformer_job_of(setup)) : pipeline_cluster(links);
    std::vector<DeviceKind> kinds;
    for (const DeviceConfig& device : setup.cluster.devices)
        kinds.push_back({device.speed, setup.parallel.makes.size() > 1 ? device.make : 0});
    if (std::ranges::any_of(kinds, [](const DeviceKind& kind) { return !(kind == DeviceKind{}); }))
        facts.set_kinds(kinds);
    return facts;
}

SliceEnds slice_ends_by_shapes(const Setup& setup, int slices) {
    if (slices == 1)
        return {1};
    const std::vector<std::vector<TransformerJob>> jobs = transformer_jobs_of(setup);
    return slice_ends_of(setup, slices, attention_part(jobs.front().front(), setup.pipeline.micro_batch_size),
                         common_grain(jobs));
}

void add_groups(Costs& costs, const Setup& setup, const StageSplit& split, const Shape& shape) {
    costs.has_arena = false;
    const std::vector<std::vector<TransformerJob>> jobs = transformer_jobs_of(setup);
    const int samples = setup.pipeline.micro_batch_size;
    add_replicas(costs, jobs, split, samples);
    if (shape.slices > 1 && setup.workload.encoder)
        setup.fail_at("workload.encoder",
                      "sequences of a model with an encoder are not cut into slices in this version",
                      "write slices: 1, or remove the key");
    if (shape.slices > 1)
        cut_in_slices(costs, jobs, makes_of_stages(costs, setup, shape), split, samples,
                      slice_ends_by_shapes(setup, shape.slices));
    add_pairs(costs, setup, jobs, split, shape);
    costs.joined_sums.assign(shape.joined.empty() ? 0 : static_cast<std::size_t>(shape.stages), 0);
    for (const int stage : shape.joined)
        costs.joined_sums[static_cast<std::size_t>(stage)] =
            bounded(std::ceil(joined_seconds(jobs.front().front(), samples) * 1e9));
    if (!setup.parallel.of_stages.empty() && is_of_plan(setup, shape))
        take_sizes_of_stages(costs, setup, shape);
}

}  // namespace pw
