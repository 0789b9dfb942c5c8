// Which interface of cuDNN is faster for the convolutions of ResNet-50 at 224 pixels? The legacy interface as
// the executor uses it, with algorithms by shape and by timing, against the graph interface's first proposals.
// A convolution is repeated on the same tensors: small ones come from the cache, for all alike.
//
//     gpu_convolutions [--batch 32] [--precision bf16 | tf32 | fp32] [--seconds 150]
#include "bench/gpu/convolution_graph.h"
#include "bench/gpu/measuring.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "exec/engine/mailbox.h"
#include "job/config/config.h"
#include "tests/support/layer_rig.h"
#include "workloads/error.h"
#include "workloads/models/resnet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

namespace pw {
namespace {

using namespace cuda;

constexpr int kMostPlans = 5;
constexpr Bytes kMostWorkspace = Bytes{256} << 20;  // as for the legacy interface
constexpr std::array kPasses = {ConvolutionPass::Forward, ConvolutionPass::BackwardInput,
                                ConvolutionPass::BackwardWeight};
constexpr std::array kPassNames = {"F", "I", "W"};

// Microseconds.
struct Times {
    double by_shape = 0, by_timing = 0;                // legacy
    std::optional<double> graph, graph_deterministic;  // the best
    int plan = -1, plans = 0;                          // the best graph plan's number
};

struct Convolution {
    Layer layer;
    bool reads_data = false;
    int count = 0;  // in the network
    std::array<std::optional<Times>, 3> passes;
};

bool same_shape(const Layer& a, const Layer& b) {
    return a.input == b.input && a.output == b.output && a.kernel == b.kernel && a.stride == b.stride;
}

std::vector<Convolution> convolutions_of(const Model& model) {
    std::vector<Convolution> all;
    for (int number = 0; number < static_cast<int>(boost::num_vertices(model.layers)); ++number) {
        const Layer& layer = model.layers[static_cast<std::size_t>(number)];
        if (layer.kind != LayerKind::Convolution)
            continue;
        auto found = std::ranges::find_if(all, [&](const Convolution& one) { return same_shape(one.layer, layer); });
        if (found == all.end())
            found = all.insert(all.end(), {layer, inputs_of_layer(model.layers, number).empty(), 0, {}});
        ++found->count;
    }
    return all;
}

Precision precision_named(const std::string& name) {
    if (const std::optional<Precision> precision = parse_choice<Precision>(name))
        return *precision;
    fail("there is no precision '{}'\n  help: use one of: {}", name, fmt::join(names_of<Precision>(), ", "));
}

// Tensors of ordinary values: zeros would need less power.
void fill_random(const Kernels& kernels, Precision precision, std::byte* to, Bytes bytes) {
    static const std::vector<float> values = random_values(1 << 20, 7);
    std::vector<Bf16> halves(values.size());
    std::ranges::transform(values, halves.begin(), [](float value) { return __float2bfloat16_rn(value); });
    const bool is_bf16 = precision == Precision::Bf16;
    const auto have = static_cast<Bytes>(values.size() * (is_bf16 ? sizeof(Bf16) : sizeof(float)));
    const void* from = is_bf16 ? static_cast<const void*>(halves.data()) : values.data();
    check(cudaMemcpy(to, from, static_cast<std::size_t>(std::min(have, bytes)), cudaMemcpyHostToDevice), "cudaMemcpy");
    for (Bytes done = have; done < bytes; done *= 2)
        kernels.copy(to, to + done, std::min(done, bytes - done));
    kernels.finish();
}

template <class Work>
double time_of(const Kernels& kernels, Work work) {
    constexpr double kEnough = 3000;  // microseconds a round
    const auto round = [&](int repeats) {
        const Mark start = kernels.mark();
        for (int k = 0; k < repeats; ++k)
            work();
        const auto time = static_cast<double>(kernels.time_between(start, kernels.mark())) * 1e-3 / repeats;
        kernels.finish();
        return time;
    };
    (void)round(2);
    const int repeats = static_cast<int>(std::clamp(kEnough / std::max(round(2), 1.0), 3.0, 200.0));
    return std::min({round(repeats), round(repeats), round(repeats)});
}

// The layer as the executor makes it, on tensors of its own.
class Legacy {
public:
    Legacy(const CudaKernels& kernels, const Convolution& convolution, int samples)
        : rig(kernels, convolution.layer, samples, convolution.reads_data), kernels_(kernels) {
        for (const Block* block : {&rig.inputs[0], &rig.output_gradient, &rig.weights})
            fill_random(kernels, kernels.device().precision(), block->get(), block->size());
    }

    double time(ConvolutionPass pass) {
        const LayerArgs args = rig.args();
        return time_of(kernels_, [&] {
            if (pass == ConvolutionPass::Forward)
                rig.kernel->forward(args, true);
            else if (pass == ConvolutionPass::BackwardInput)
                rig.kernel->backward_input(args);
            else
                rig.kernel->backward_weight(args);
        });
    }

    LayerRig rig;

private:
    const CudaKernels& kernels_;
};

// Weight gradients of bf16 are converted to fp32 after every variant, because the executor needs fp32.
void time_graph(const CudaKernels& kernels, LayerRig& rig, const Layer& shape, ConvolutionPass pass, void* workspace,
                Times& times) {
    const GpuShare& device = kernels.device();
    const bool is_bf16 = device.precision() == Precision::Bf16, makes_weights = pass == ConvolutionPass::BackwardWeight;
    const std::int64_t values = block_values(rig.sizes.weights, device.precision());
    const auto read_by_products = [&](std::byte* block) -> void* {
        return is_bf16 ? static_cast<void*>(shadow(block, values)) : block;
    };
    const ConvolutionGraph graph(device.cudnn(), shape, rig.samples, is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT,
                                 pass, kMostPlans, kMostWorkspace);
    ConvolutionGraph::Tensors tensors{rig.inputs[0].get(), read_by_products(rig.weights.get()), rig.output.get()};
    if (pass == ConvolutionPass::BackwardInput)
        tensors.x = rig.input_gradients[0].get();
    if (pass != ConvolutionPass::Forward)
        tensors.y = rig.output_gradient.get();
    if (makes_weights)
        tensors.w = read_by_products(rig.weight_gradient.get());
    const std::int64_t count = rig.layer.parameters;
    times.plans = static_cast<int>(graph.plans().size());
    for (int k = 0; k < times.plans; ++k) {
        const ConvolutionGraph::Plan& plan = graph.plans()[static_cast<std::size_t>(k)];
        const double time = time_of(kernels, [&] {
            graph.run(plan, tensors, workspace);
            if (is_bf16 && makes_weights)
                widen_gradient(device.stream(), static_cast<const Bf16*>(tensors.w), floats(rig.weight_gradient.get()),
                               count, values, false);
        });
        if (!times.graph || time < *times.graph) {
            times.graph = time;
            times.plan = k;
        }
        if (plan.deterministic)
            times.graph_deterministic = std::min(times.graph_deterministic.value_or(time), time);
    }
}

std::string us(const std::optional<double>& time) { return time ? fmt::format("{:.1f}", *time) : "-"; }

std::string shape_of(const Layer& layer) {
    return fmt::format("{}x{}x{} -> {}, {}x{}/{}", layer.input.channels, layer.input.height, layer.input.width,
                       layer.output.channels, layer.kernel, layer.kernel, layer.stride);
}

void measure_one(const CudaKernels& by_shape, const CudaKernels& by_timing, Convolution& one, int samples,
                 void* workspace) {
    Legacy first(by_shape, one, samples), second(by_timing, one, samples);
    Layer shape = one.layer;  // as the executor has it
    if (one.reads_data)
        shape.input.channels = cuda::padded_channels(shape.input.channels);
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
        if (one.reads_data && kPasses[pass] == ConvolutionPass::BackwardInput)
            continue;
        Times times;
        times.by_shape = first.time(kPasses[pass]);
        times.by_timing = second.time(kPasses[pass]);
        try {
            time_graph(by_shape, first.rig, shape, kPasses[pass], workspace, times);
        } catch (const Error& error) {
            fmt::print("{} {}: {}\n", one.layer.name, kPassNames[pass], error.what());
        }
        one.passes[pass] = times;
        fmt::print("{:26} {:>2} {:>2} {:>10} {:>10} {:>10} {:>14} {:>6}\n", shape_of(one.layer), one.count,
                   kPassNames[pass], us(times.by_shape), us(times.by_timing), us(times.graph),
                   us(times.graph_deterministic), fmt::format("{}/{}", times.plan + 1, times.plans));
    }
}

// Microseconds per image; passes that the graph interface does not support use the legacy one.
struct Sums {
    double by_shape = 0, by_timing = 0, graph = 0, graph_deterministic = 0;

    void add(const Times& times, double weight) {
        by_shape += weight * times.by_shape;
        by_timing += weight * times.by_timing;
        graph += weight * times.graph.value_or(times.by_timing);
        graph_deterministic += weight * times.graph_deterministic.value_or(times.by_shape);
    }
};

void print_sums(const std::string& what, const Sums& sums, const Sums& all) {
    fmt::print("{:29} {:>2} {:10.2f} {:10.2f} {:10.2f} {:14.2f} {:5.1f}%\n", what, "", sums.by_shape, sums.by_timing,
               sums.graph, sums.graph_deterministic, 100 * sums.by_timing / std::max(all.by_timing, 1e-9));
}

Sums summarise(const std::vector<Convolution>& all, int samples) {
    Sums total;
    std::array<Sums, 3> passes;
    std::vector<Sums> own(all.size());
    for (std::size_t k = 0; k < all.size(); ++k)
        for (std::size_t pass = 0; pass < kPasses.size(); ++pass)
            if (const auto& times = all[k].passes[pass])
                for (Sums* sums : {&total, &passes[pass], &own[k]})
                    sums->add(*times, static_cast<double>(all[k].count) / samples);
    fmt::print("\n{:29} {:>2} {:>10} {:>10} {:>10} {:>14} {:>6}\n", "us per image, all of a shape", "", "by shape",
               "by timing", "graph", "deterministic", "share");
    for (std::size_t k = 0; k < all.size(); ++k)
        print_sums(fmt::format("{} ({})", shape_of(all[k].layer), all[k].count), own[k], total);
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass)
        print_sums(kPassNames[pass], passes[pass], total);
    print_sums("all", total, total);
    return total;
}

std::string winner(double legacy, double graph) {
    const bool graph_wins = graph < legacy;
    const double faster = std::min(graph, legacy), slower = std::max(graph, legacy);
    return fmt::format("the {} interface wins by {:.1f} % ({:.1f} against {:.1f} us per image)",
                       graph_wins ? "graph" : "legacy", 100 * (slower / std::max(faster, 1e-9) - 1), faster, slower);
}

int measure(Arguments& arguments) {
    const int samples = arguments.number("--batch", 32), most_seconds = arguments.number("--seconds", 150);
    const std::string precision_name = arguments.text("--precision", "bf16");
    arguments.done();
    const Precision precision = precision_named(precision_name);
    const CudaKernels by_shape({}, precision, true), by_timing({}, precision, false);
    const DeviceMemory workspace = allocate(kMostWorkspace);
    std::vector<Convolution> all = convolutions_of(build_resnet50(224, 1000));
    fmt::print("{}, cuDNN {}, {}, {} images\n\n{:26} {:>2} {:>2} {:>10} {:>10} {:>10} {:>14} {:>6}\n",
               by_shape.device().name(), cudnnGetVersion(), precision_name, samples, "us per convolution", "", "",
               "by shape", "by timing", "graph", "deterministic", "plan");
    const Ns start = clock_now();
    std::size_t done = 0;
    for (; done < all.size() && clock_now() - start < most_seconds * Ns{1'000'000'000}; ++done)
        measure_one(by_shape, by_timing, all[done], samples, workspace.get());
    const Sums total = summarise(all, samples);
    if (done < all.size())
        fmt::print("{} of {} shapes were left out: the time was up\n", all.size() - done, all.size());
    return shown(done > 0, fmt::format("{}; deterministic: {}", winner(total.by_timing, total.graph),
                                       winner(total.by_shape, total.graph_deterministic)));
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, 400, pw::measure); }
