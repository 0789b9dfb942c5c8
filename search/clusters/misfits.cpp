#include "search/clusters/misfits.h"

#include "job/plan.h"
#include "job/slices.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

bool has_whole_sequences(const WorkloadConfig& workload) { return workload.transformer->mamba || workload.encoder; }

// Returns a fact about a number of the experts and the model's name, or that the model has no experts.
std::string fact_of_experts(const SearchSetup& setup, const char* fact, int Experts::*number) {
    const Transformer& model = *setup.workload.transformer;
    return model.experts ? fmt::format(fmt::runtime(fact), (*model.experts).*number, model.name)
                         : fmt::format("{} has no experts", model.name);
}

// What to say if all choices misfit, by what the last check of them found.
struct MisfitRow {
    Misfit misfit;
    const char* key;
    std::string (*fact)(const SearchSetup& setup);
    const char* help;
};

constexpr MisfitRow kMisfits[] = {
    {Misfit::Heads, "search.tensor",
     [](const SearchSetup& setup) {
         const WorkloadConfig& workload = setup.workload;
         return workload.encoder ? fmt::format("no degree of tensor divides the heads of {} and of its encoder",
                                               workload.transformer->name)
                                 : fmt::format("no degree of tensor divides the {} heads of {}",
                                               workload.most_tensor_ranks(), workload.transformer->name);
     },
     "write divisors of the heads"},
    {Misfit::Sequence, "search.context",
     [](const SearchSetup& setup) {
         const WorkloadConfig& workload = setup.workload;
         return has_whole_sequences(workload)
                    ? fmt::format("{} has {}, and its sequences are not divided", workload.transformer->name,
                                  workload.encoder ? "an encoder" : "layers with Mamba-2")
                    : fmt::format("no degree of context divides the {} tokens of a sequence",
                                  workload.options.sequence_length);
     },
     "list 1, or divisors of workload.sequence_length"},
    {Misfit::Devices, "search",
     [](const SearchSetup& setup) {
         return fmt::format("no product of tensor, pipeline and context divides the {} devices of the cluster",
                            setup.parallel.ranks->devices.size());
     },
     "list more degrees in search.tensor, search.pipeline or search.context, or leave one of these keys out"},
    {Misfit::ZeroGroup, "search", [](const SearchSetup&) { return std::string("no choice fits parallel.zero_group"); },
     "leave parallel.zero_group out"},
    {Misfit::Experts, "search.expert",
     [](const SearchSetup& setup) {
         return fact_of_experts(setup, "no degree of expert divides the {} experts of {} and the devices of a stage",
                                &Experts::count);
     },
     "list 1, or leave the key out"},
    {Misfit::ExpertTensor, "search.expert_tensor",
     [](const SearchSetup& setup) {
         return fact_of_experts(setup,
                                "no degree of expert_tensor divides the width {} of an expert of {} and, with expert, "
                                "the devices of a stage",
                                &Experts::width);
     },
     "list 1, or leave the key out"},
    {Misfit::Stages, "search.chunks",
     [](const SearchSetup& setup) {
         return fmt::format(
             "{} cannot place any of these numbers of stages on their devices, or the {} blocks do not "
             "fill them",
             fmt::join(searched_schedules(setup), ", "), setup.workload.all_blocks());
     },
     "list other numbers of chunks, or schedules that take them (search.schedules; `pipewright list schedules` says "
     "how many stages a device has)"},
    {Misfit::Slices, "search.slices",
     [](const SearchSetup& setup) {
         return fmt::format("no number of slices cuts the {} tokens of a sequence",
                            setup.workload.options.sequence_length);
     },
     "write divisors of workload.sequence_length, or search.slice_lengths: [time]"},
    {Misfit::MiniBatch, "search.mini_batch",
     [](const SearchSetup& setup) {
         return fmt::format("{} sequences cannot be divided among the replicas in equal micro-batches",
                            setup.search.mini_batch);
     },
     "write a multiple of the replicas, or list larger degrees or smaller search.micro_batch_sizes"}};

// A looped schedule with one stage per device has the orders of another schedule, which can be named.
bool takes_stages(const Schedule& schedule, const PlanChoice& choice) {
    const bool is_looped = !schedule.one_stage.empty();
    return schedule.placement.fits(choice.stages, choice.degrees.pipeline) && (choice.chunks() > 1 || !is_looped);
}

// Whether one device has each stage: then stages may have unlike degrees.
bool has_one_holder(const Schedule& schedule, const PlanChoice& choice) {
    Shape shape;
    shape.devices = choice.degrees.pipeline;
    shape.stages = choice.stages;
    shape.microbatches = choice.micro_batches;
    try {
        shape = placed(schedule, std::move(shape));
    } catch (const Error&) {
        return false;
    }
    for (int stage = 0; stage < shape.stages; ++stage)
        if (shape.devices_of(stage).size() != 1)
            return false;
    return true;
}

}  // namespace

bool takes_sequence(const SearchSetup& setup, int tensor) {
    const bool may_be_sequence = !setup.places.contains("parallel.sequence") || setup.parallel.degrees.sequence;
    return tensor > 1 && may_be_sequence;
}

bool divides_sequences(const SearchSetup& setup, int context) {
    return context == 1 ||
           (!has_whole_sequences(setup.workload) && setup.workload.options.sequence_length % context == 0);
}

Misfit complete_choice(const SearchSetup& setup, PlanChoice& choice) {
    Parallel& degrees = choice.degrees;
    const Transformer& model = *setup.workload.transformer;
    std::vector<Parallel*> of_all{&degrees};
    for (Parallel& of_device : choice.of_stages)
        of_all.push_back(&of_device);
    std::int64_t of_replica =
        choice.of_stages.empty() ? std::int64_t{degrees.tensor} * degrees.context * degrees.pipeline : 0;
    for (const Parallel& of_device : choice.of_stages)
        of_replica += std::int64_t{of_device.tensor} * of_device.context;
    for (const Parallel* of : of_all)
        if (setup.workload.most_tensor_ranks() % of->tensor != 0)
            return Misfit::Heads;
    for (const Parallel* of : of_all)
        if (!divides_sequences(setup, of->context))
            return Misfit::Sequence;
    const auto devices = static_cast<std::int64_t>(setup.parallel.ranks->devices.size());
    if (devices % of_replica != 0)
        return Misfit::Devices;
    for (Parallel* of : of_all) {
        of->data = static_cast<int>(devices / of_replica);
        of->sequence = takes_sequence(setup, of->tensor);
        if (of->zero > 0 && of->zero_group > 0 && of->replicas() % of->zero_group != 0)
            return Misfit::ZeroGroup;
        if (of->expert > 1 &&
            (!model.experts || model.experts->count % of->expert != 0 || of->holders() % of->expert != 0))
            return Misfit::Experts;
        if (of->expert_tensor > 1 && (!model.experts || model.experts->width % of->expert_tensor != 0 ||
                                      of->holders() / of->expert % of->expert_tensor != 0))
            return Misfit::ExpertTensor;
    }
    if (slots_of_stages(setup.workload.all_blocks(), choice.stages) < choice.stages ||
        !takes_stages(searched_schedule(setup, choice.schedule), choice))
        return Misfit::Stages;
    if ((setup.workload.encoder && choice.slices > 1) ||
        !can_cut(setup.workload.options.sequence_length, choice.slices, choice.slice_lengths))
        return Misfit::Slices;
    const std::int64_t each = std::int64_t{degrees.data} * choice.micro_batch_size;
    if (setup.search.mini_batch % each != 0 || setup.search.mini_batch / each > kMostBatches)
        return Misfit::MiniBatch;
    choice.micro_batches = static_cast<int>(setup.search.mini_batch / each);
    if (!choice.of_stages.empty() && !has_one_holder(searched_schedule(setup, choice.schedule), choice))
        return Misfit::Stages;
    return Misfit::None;
}

void refuse_misfit(Misfit worst, const SearchSetup& setup) {
    const MisfitRow& row = *std::ranges::find(kMisfits, worst, &MisfitRow::misfit);
    setup.fail_at(row.key, row.fact(setup), row.help);
}

}  // namespace pw
