#include "workloads/transformers/kernel_times.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

// The share of a memory's peak bandwidth that kernels reach: copies of 256 MB on an H100 (results/h100), and what
// SimuMax has for an A100 PCIe (0.91 of 1600 GB/s) and a B200 (MooreThreads/SimuMax@4dcaae5, configs/system).
struct MemoryShare {
    std::string_view chip;  // DeviceKindFacts::products
    double share;
};
constexpr MemoryShare kMemoryShares[] = {{"h100-sxm-80", 0.88}, {"b200", 0.67}};
constexpr double kOtherShare = 0.75;  // an A100's

double memory_share(const DeviceKindFacts& device) {
    for (const MemoryShare& row : kMemoryShares)
        if (row.chip == device.products)
            return row.share;
    return kOtherShare;
}

// Attention on devices without a table, relative to the fastest product: an H100's, by FlashAttention-2.
constexpr AttentionRates kOtherAttention = {0.38, 0.34};
constexpr double kBackwardWork = 2.5;  // FLOPs of attention's backward, which computes the scores again, per forward

}  // namespace

LinearSeconds& LinearSeconds::operator+=(const LinearSeconds& other) {
    forward += other.forward;
    input += other.input;
    weight += other.weight;
    return *this;
}

KernelTimes::KernelTimes(const TransformerJob& job)
    : job_(job),
      memory_rate_(job.device.memory_bandwidth * memory_share(job.device) / job.calibration.computing),
      is_low_(is_low(job.precision)),
      head_rates_(is_low_ ? job.head_products : job.products),
      head_flops_(is_low_ && job.head_flops > 0 ? job.head_flops : job.flops) {}

double KernelTimes::product_seconds(const Product& product, bool low) const {
    const std::shared_ptr<const ProductRates>& rates = low == is_low_ ? job_.products : head_rates_;
    const double flops = rates ? rates->flops(product) : low == is_low_ ? job_.flops : head_flops_;
    return job_.calibration.computing * product.flops() / flops;
}

namespace {

std::int64_t whole(double value) { return std::max<std::int64_t>(1, std::llround(value)); }

}  // namespace

LinearSeconds KernelTimes::products(double rows, double inputs, double outputs, bool low, int pieces) const {
    const LinearShape all{whole(rows), whole(inputs), whole(outputs)};
    const LinearShape piece{whole(rows / pieces), all.inputs, all.outputs};
    return {.forward = pieces * product_seconds(piece.product(ProductLayout::TN), low),
            .input = pieces * product_seconds(piece.product(ProductLayout::NN), low),
            .weight = product_seconds(all.product(ProductLayout::NT), low)};
}

// Returns the seconds in which the gradients of weights are added up, if their product does not.
double KernelTimes::added(double inputs, double outputs, bool low) const {
    const std::shared_ptr<const ProductRates>& rates = low == is_low_ ? job_.products : head_rates_;
    const bool adds = job_.parallel.zero < 2 && rates && !rates->table.accumulates;
    return adds ? moved(2.0 * static_cast<double>(job_.kept().gradient) * inputs * outputs) : 0;
}

// Adds what a linear layer does besides its products.
LinearSeconds KernelTimes::with_conversions(LinearSeconds seconds, double rows, double inputs, double outputs,
                                            double groups) const {
    seconds.weight += groups * added(inputs, outputs, is_low_);
    if (is_low_) {  // each input is read in bf16 and written as it is and transposed
        seconds.forward += moved(4 * groups * rows * inputs);
        seconds.input += moved(4 * groups * rows * outputs);
    }
    return seconds;
}

LinearSeconds KernelTimes::linear(double rows, double inputs, double outputs, int pieces) const {
    return with_conversions(products(rows, inputs, outputs, is_low_, pieces), rows, inputs, outputs, 1);
}

double KernelTimes::input_bytes() const {
    return job_.precision == Precision::Nvfp4 ? 0.5
           : is_low_                          ? 1
                                              : static_cast<double>(bytes_of(job_.precision).activation);
}

LinearSeconds KernelTimes::head(double rows, double inputs, double outputs) const {
    LinearSeconds seconds = products(rows, inputs, outputs, false);
    seconds.weight += added(inputs, outputs, false);
    return seconds;
}

LinearSeconds KernelTimes::experts(double groups, double rows, double inputs, double outputs) const {
    const LinearShape shape{whole(rows), whole(inputs), whole(outputs)};
    if (job_.parallel.program().experts == ExpertKernels::Sequential) {
        const LinearSeconds one = products(rows, inputs, outputs, is_low_);
        return with_conversions({groups * one.forward, groups * one.input, groups * one.weight}, rows, inputs, outputs,
                                groups);
    }
    const auto seconds = [&](ProductLayout pass) {
        return product_seconds(shape.product(pass, whole(groups)), is_low_);
    };
    return with_conversions({.forward = seconds(ProductLayout::TN),
                             .input = seconds(ProductLayout::NN),
                             .weight = seconds(ProductLayout::NT)},
                            rows, inputs, outputs, groups);
}

AttentionRates KernelTimes::attention_rates(const AttentionShape& shape) const {
    const AttentionTable* table = attention_table(job_.device.products, job_.parallel.program().attention);
    const double faster = 1 / job_.calibration.computing;
    if (table == nullptr)
        return {kOtherAttention.forward * head_flops_ * faster, kOtherAttention.backward * head_flops_ * faster};
    const double scale = (head_rates_ ? head_rates_->chip_scale : 1) * faster;
    const AttentionRates rates = table->rates(shape);
    return {rates.forward * scale, rates.backward * scale};
}

// Rates of attention were measured on whole sequences. Queries of a slice have the rate of a sequence of as many
// tokens.
PassSeconds KernelTimes::attention(const TokenRange& range, double sequences, double heads, double key_width,
                                   double value_width, int window) const {
    const double keys = range.end, queries = range.count() / job_.parallel.context;
    const AttentionKernels kernels = job_.parallel.program().attention;
    if (kernels == AttentionKernels::Unfused) {
        const double scores = sequences * heads * queries * keys;
        const double rate_shape_rows = sequences * heads * queries;
        const LinearSeconds products_of_scores = products(rate_shape_rows, key_width, keys, false);
        const LinearSeconds products_of_values = products(rate_shape_rows, keys, value_width, false);
        const bool dropout = job_.parallel.program().dropout;
        // Softmax reads and writes scores, dropout reads and writes probabilities and a mask.
        const double forward = moved(scores * (dropout ? 9 : 4)), backward = moved(scores * (dropout ? 11 : 6));
        return {products_of_scores.forward + products_of_values.forward + forward,
                products_of_scores.input + products_of_scores.weight + products_of_values.input +
                    products_of_values.weight + backward};
    }
    const auto pairs_until = [&](double end) {  // of queries and keys: without a window the causal half
        const double reach = window > 0 ? std::min<double>(window, end) : end;
        return job_.model.pairs(end, reach);
    };
    const double pairs = (pairs_until(range.end) - pairs_until(range.begin)) / job_.parallel.context;
    const double work = 2 * sequences * heads * pairs * (key_width + value_width);
    const AttentionRates rates = attention_rates({sequences, heads, queries, key_width});
    return {work / rates.forward, kBackwardWork * work / rates.backward};
}

// The scan multiplies the tokens of a chunk as attention does, and passes a state from chunk to chunk (arXiv
// 2405.21060, section 6). No device was measured: the products have the rate of attention over a chunk, and the memory
// traffic is what the kernels of state-spaces/mamba move. The convolution reads and writes the inputs, the kernels of
// the scan read them twice and write the outputs, and write, pass on and read the states of the chunks in fp32. A gated
// norm follows. The backward computes the convolution and the states again, and its gradients move twice the bytes of
// the forward.
PassSeconds KernelTimes::scan(double rows, const Mamba& mamba) const {
    const auto inner = static_cast<double>(mamba.inner()), shared = static_cast<double>(mamba.shared());
    const double convolution = 4 * (inner + 2 * shared), scanned = 2 * (3 * inner + 4 * shared), norm = 6 * inner;
    const double states = 4 * 4 * inner * mamba.state / mamba.chunk;
    const double bytes = rows * (convolution + scanned + states + norm);
    const AttentionRates rates =
        attention_rates({rows / mamba.chunk, static_cast<double>(mamba.heads), static_cast<double>(mamba.chunk),
                         static_cast<double>(mamba.head_width)});
    const double work = rows * mamba.scan_flops();
    return {moved(bytes) + work / rates.forward, moved(3 * bytes) + kBackwardWork * work / rates.backward};
}

}  // namespace pw
