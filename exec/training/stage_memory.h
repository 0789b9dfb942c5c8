// The memory of a stage on a device: the addresses of its buffers, and its versions of the weights.
#pragma once

#include "exec/ranks/ranks.h"
#include "exec/training/stage_program.h"
#include "job/job.h"
#include "schedules/memory/buffers.h"

#include <cstddef>
#include <vector>

namespace pw {

// The sum of the gradients of some backward tasks of a stage since the last U, the optimizer update.
struct GradientPart {
    std::byte* block = nullptr;
    Begun begun;
};

// An address is null if the stage has no such buffer on the device.
struct StageMemory {
    StageMemory(const Job& job, int device, int stage, int gradient_parts);

    // Sets the address of a buffer of the stage, of any use except landing, sent and workspace.
    void place(const Buffer& buffer, std::byte* address);
    bool has_weights() const { return slots.front() != nullptr; }
    std::byte* weights(int version) const { return slots[slot_of[version]]; }
    std::byte* states(int version) const { return optimizers[predicts ? slot_of[version] : 0]; }
    std::byte* gradients() const { return parts.front().block; }  // the sum after S and U

    // Write and read the data that other ranks need for fetches: the addresses of gradients, weights and
    // statistics, and which gradients have begun.
    void write_addresses(Message& message) const;
    void read_addresses(MessageReader& message);
    void write_begun(Message& message) const;
    void read_begun(MessageReader& message);

    const bool predicts;                      // whether the stage predicts weights: then every slot has a momentum
    std::vector<std::byte*> slots;            // weight buffers
    std::vector<int> slot_of;                 // version -> slot
    int newest = 0;                           // the number of the newest version, within the plan
    std::vector<std::byte*> optimizers;       // by slot: all states (HeldStage::states)
    std::byte* statistics = nullptr;          // running averages
    std::byte* predicted = nullptr;           // weights
    std::vector<std::byte*> left_statistics;  // [micro-batch], written by F
    std::vector<GradientPart> parts;
    bool is_summed = false;  // since the last U
    // [micro-batch]
    std::vector<std::byte*> data, until_input, until_weight, gradient_kept, slice_gradients, dropped;
    std::vector<std::byte*> first_until_again, first_until_input, first_until_weight;
    std::vector<std::byte*> offloaded_until_input, offloaded_until_weight, reloaded_until_input, reloaded_until_weight;
};

}  // namespace pw
