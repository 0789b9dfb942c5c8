// Seconds of the kernels of a transformer on one device.
#pragma once

#include "workloads/transformers/parallel.h"

namespace pw {

// The three products of a linear layer: forward, gradient of the inputs, gradient of the weights.
struct LinearSeconds {
    double forward = 0, input = 0, weight = 0;
    LinearSeconds& operator+=(const LinearSeconds& other);
};

struct PassSeconds {
    double forward = 0, backward = 0;
};

// The tokens of a pass: a sequence, or a slice of a sequence. Queries attend to the keys of all earlier tokens.
struct TokenRange {
    double begin = 0, end = 0;
    double count() const { return end - begin; }
};

class KernelTimes {
public:
    explicit KernelTimes(const TransformerJob& job);

    // Returns the products of `rows` tokens with a matrix [inputs, outputs], and in low precision the conversions. The
    // forward and the gradient of the inputs are in `pieces` of rows, if messages arrive or leave meanwhile.
    LinearSeconds linear(double rows, double inputs, double outputs, int pieces = 1) const;
    // The same for the head, which is not in low precision.
    LinearSeconds head(double rows, double inputs, double outputs) const;
    // Returns the products of `groups` experts, each with `rows` tokens, grouped or each by itself (ExpertKernels).
    LinearSeconds experts(double groups, double rows, double inputs, double outputs) const;
    // Returns the bytes of an input that a linear layer saves for the gradient of its weights.
    double input_bytes() const;
    // Returns the seconds of a kernel that moves these bytes.
    double moved(double bytes) const { return bytes / memory_rate_; }
    // Returns the causal attention of `heads` heads of queries on the device, which has the queries of 1/context of the
    // tokens. A window is the number of tokens that attention reaches back. 0: all.
    PassSeconds attention(const TokenRange& range, double sequences, double heads, double key_width, double value_width,
                          int window) const;
    // Returns the scan of Mamba-2 with the convolution before it and the norm after it. `mamba` has the device's heads
    // and groups.
    PassSeconds scan(double rows, const Mamba& mamba) const;

private:
    LinearSeconds products(double rows, double inputs, double outputs, bool low, int pieces = 1) const;
    LinearSeconds with_conversions(LinearSeconds seconds, double rows, double inputs, double outputs,
                                   double groups) const;
    double added(double inputs, double outputs, bool low) const;
    AttentionRates attention_rates(const AttentionShape& shape) const;  // FLOP/s
    double product_seconds(const Product& product, bool low) const;

    const TransformerJob& job_;
    double memory_rate_;
    bool is_low_;
    std::shared_ptr<const ProductRates> head_rates_;
    double head_flops_;
};

}  // namespace pw
