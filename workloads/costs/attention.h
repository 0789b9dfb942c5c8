// Rates of attention by shape, from tables of measured kernels.
#pragma once

#include "workloads/text/choice.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace pw {

// Attention whose scores are kept on chip, by its library (FlashAttention-2, or cuDNN's, which Transformer Engine calls
// on Hopper and Blackwell), or by separate kernels that write scores and probabilities to memory.
enum class AttentionKernels : std::uint8_t { Flash, Cudnn, Unfused };
template <>
inline constexpr Choice<AttentionKernels> kChoices<AttentionKernels>[] = {
    {"flash", AttentionKernels::Flash}, {"cudnn", AttentionKernels::Cudnn}, {"unfused", AttentionKernels::Unfused}};

struct AttentionShape {
    double sequences = 1, heads = 1, tokens = 1, width = 128;  // heads of queries on the device, width of a key
};

struct AttentionRates {
    double forward = 0, backward = 0;  // FLOP/s
};

// The kernels of one library that were measured on one kind of device.
struct AttentionTable {
    std::string_view device, source;
    AttentionKernels kernels = AttentionKernels::Flash;
    struct Row {
        AttentionShape shape;
        AttentionRates rates;
    };
    std::vector<Row> rows;

    // Returns the geometric mean of the three nearest rows, by the logarithms of sequences x heads, tokens and width.
    AttentionRates rates(const AttentionShape& shape) const;
};

// Returns the table of this kind of device for these kernels, else for other fused kernels, or null if there is none.
const AttentionTable* attention_table(std::string_view device, AttentionKernels kernels);

}  // namespace pw
