#include "exec/training/stage_memory.h"

#include "schedules/plan/versions.h"

namespace pw {

StageMemory::StageMemory(const Job& job, int device, int stage, int gradient_parts)
    : predicts(job.versions.predicts(stage)),
      slots(static_cast<std::size_t>(job.versions.held[stage]), nullptr),
      slot_of(weight_slots(job.plan, job.versions, stage, device)),
      optimizers(slots),
      parts(static_cast<std::size_t>(gradient_parts)) {
    for (auto* rows : {&left_statistics, &data, &until_input, &until_weight, &gradient_kept, &slice_gradients, &dropped,
                       &first_until_again, &first_until_input, &first_until_weight, &offloaded_until_input,
                       &offloaded_until_weight, &reloaded_until_input, &reloaded_until_weight})
        rows->assign(static_cast<std::size_t>(job.plan.shape.microbatches), nullptr);
}

void StageMemory::place(const Buffer& buffer, std::byte* address) {
    switch (buffer.use) {
        case BufferUse::Weights:
            slots[buffer.version] = address;
            break;
        case BufferUse::Statistics:
            statistics = address;
            break;
        case BufferUse::BatchStatistics:
            left_statistics[buffer.microbatch] = address;
            break;
        case BufferUse::Gradients:
            parts[buffer.part].block = address;
            break;
        case BufferUse::Optimizer:
            optimizers[buffer.version] = address;
            break;
        case BufferUse::Predicted:
            predicted = address;
            break;
        case BufferUse::Data:
            data[buffer.microbatch] = address;
            break;
        case BufferUse::UntilInput:
            until_input[buffer.microbatch] = address;
            break;
        case BufferUse::UntilWeight:
            until_weight[buffer.microbatch] = address;
            break;
        case BufferUse::GradientKept:
            gradient_kept[buffer.microbatch] = address;
            break;
        case BufferUse::SliceGradients:
            slice_gradients[buffer.microbatch] = address;
            break;
        case BufferUse::KeysAndValues:  // of plans that are not run
            break;
        case BufferUse::Dropped:
            dropped[buffer.microbatch] = address;
            break;
        case BufferUse::FirstUntilAgain:
            first_until_again[buffer.microbatch] = address;
            break;
        case BufferUse::FirstUntilInput:
            first_until_input[buffer.microbatch] = address;
            break;
        case BufferUse::FirstUntilWeight:
            first_until_weight[buffer.microbatch] = address;
            break;
        case BufferUse::OffloadedUntilInput:
            offloaded_until_input[buffer.microbatch] = address;
            break;
        case BufferUse::OffloadedUntilWeight:
            offloaded_until_weight[buffer.microbatch] = address;
            break;
        case BufferUse::ReloadedUntilInput:
            reloaded_until_input[buffer.microbatch] = address;
            break;
        case BufferUse::ReloadedUntilWeight:
            reloaded_until_weight[buffer.microbatch] = address;
            break;
        default:
            break;
    }
}

namespace {

std::byte* read_address(MessageReader& message) { return reinterpret_cast<std::byte*>(message.read<std::uint64_t>()); }
void write_address(Message& message, const std::byte* address) {
    write(message, reinterpret_cast<std::uint64_t>(address));
}

}  // namespace

void StageMemory::write_addresses(Message& message) const {
    for (const GradientPart& part : parts)
        write_address(message, part.block);
    for (const std::byte* weights : slots)
        write_address(message, weights);
    for (const std::byte* left : left_statistics)
        write_address(message, left);
}

void StageMemory::read_addresses(MessageReader& message) {
    for (GradientPart& part : parts)
        part.block = read_address(message);
    for (std::byte*& weights : slots)
        weights = read_address(message);
    for (std::byte*& left : left_statistics)
        left = read_address(message);
}

void StageMemory::write_begun(Message& message) const {
    for (const GradientPart& part : parts)
        write(message, part.begun);
}

void StageMemory::read_begun(MessageReader& message) {
    for (GradientPart& part : parts)
        part.begun = message.read<Begun>();
}

}  // namespace pw
