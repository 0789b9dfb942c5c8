// What a step of a transformer's plan consists of, along the time line of a rank of its pipeline.
#pragma once

#include "job/job.h"
#include "sim/metrics.h"
#include "workloads/transformers/pass_parts.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pw {

// The parts of a time line. kStepParts names the parts.
enum class StepPart : std::uint8_t {
    Products,
    Attention,
    MemoryBound,
    Tensor,
    Context,
    Experts,
    Weights,
    Launches,
    Recomputed,
    Other,
    Stages,
    Bubble,
    Sums,
    Update,
    Gathers
};

struct StepPartFacts {
    StepPart part;
    std::string_view name;                 // in JSON
    std::string_view words;                // in a table
    double PassParts::*of_pass = nullptr;  // null: not part of a pass
};
inline constexpr StepPartFacts kStepParts[] = {
    {StepPart::Products, "products", "products", &PassParts::products},
    {StepPart::Attention, "attention", "attention", &PassParts::attention},
    {StepPart::MemoryBound, "memory_bound", "kernels bound by memory", &PassParts::moved},
    {StepPart::Tensor, "tensor_messages", "messages of tensor ranks", &PassParts::tensor},
    {StepPart::Context, "context_messages", "messages of context ranks", &PassParts::context},
    {StepPart::Experts, "expert_messages", "messages of expert ranks", &PassParts::experts},
    {StepPart::Weights, "zero_messages", "messages of ZeRO-3", &PassParts::weights},
    {StepPart::Launches, "launches", "launches", &PassParts::launches},
    {StepPart::Recomputed, "recomputed", "recomputation", &PassParts::again},
    {StepPart::Other, "other", "other time of passes", &PassParts::other},
    {StepPart::Stages, "stage_messages", "messages between stages"},
    {StepPart::Bubble, "bubble", "bubble"},
    {StepPart::Sums, "gradient_sums", "sums of gradients"},
    {StepPart::Update, "update", "update"},
    {StepPart::Gathers, "weight_gathers", "gathers of weights"}};

// The parts add up to the step time, to the nanosecond.
struct StepParts {
    int rank = 0;  // of the pipeline: the rank whose last task ends last, or the first of several
    std::array<Ns, std::size(kStepParts)> times{};

    Ns& operator[](StepPart part) { return times[static_cast<std::size_t>(part)]; }
    Ns operator[](StepPart part) const { return times[static_cast<std::size_t>(part)]; }
};

// Returns the parts of a step of a synchronous plan of a transformer, whose micro-batches have the same length. `shape`
// is the shape of the job's plan, which itself may have been moved from. `metrics` are from the plan's prediction.
StepParts step_parts(const Job& job, const Shape& shape, const Metrics& metrics);

}  // namespace pw
