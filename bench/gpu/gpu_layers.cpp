// How far are ResNet-50's layers from what the GPU's memory and arithmetic allow? Every pass of every layer,
// timed by events in its place in a training step, with the bytes it must move and its FLOPs. A pass of
// several small kernels includes the host's launching where that is slower than the GPU.
//
//     gpu_layers [--batch 32] [--precision bf16 | tf32 | fp32] [--share MULTIPROCESSORS] [--by-timing] [--details]
#include "bench/gpu/measuring.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace pw {
namespace {

using namespace cuda;

constexpr std::array kPassNames = {"F", "I", "W"};
constexpr Ns kTimeout = 10'000'000'000;

// Of one pass of a micro-batch.
struct Pass {
    double seconds = 0, bytes = 0, flops = 0, floor = 0;

    Pass& operator+=(const Pass& other) {
        seconds += other.seconds;
        bytes += other.bytes;
        flops += other.flops;
        floor += other.floor;
        return *this;
    }
};
using Passes = std::array<Pass, 3>;  // F, I, W

Pass all_of(const Passes& passes) {
    Pass sum;
    for (const Pass& pass : passes)
        sum += pass;
    return sum;
}

struct Roof {
    double bandwidth, flops;  // per second
};

// Bytes read and written by a plain copy.
double measured_bandwidth() {
    constexpr Bytes kBytes = Bytes{1} << 30;
    constexpr int kRepeats = 10;
    const DeviceMemory from = allocate(kBytes), to = allocate(kBytes);
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const Owned<cudaStream_t, cudaStreamDestroy> stream(made);
    const Event start(Event::Kind::Timed), end(Event::Kind::Timed);
    const auto copy = [&] {
        check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, made), "cudaMemcpyAsync");
    };
    copy();
    start.record(made);
    for (int k = 0; k < kRepeats; ++k)
        copy();
    end.record(made);
    wait_for(made, kTimeout);
    return 2.0 * kRepeats * static_cast<double>(kBytes) / (static_cast<double>(elapsed(start.get(), end.get())) * 1e-9);
}

int attribute(cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
    return value;
}

// Dense products of Hopper's multiprocessors at their highest clock.
double most_flops(Precision precision, int share) {
    const double per_clock = precision == Precision::Bf16 ? 4096 : precision == Precision::Tf32 ? 2048 : 256;
    const int multiprocessors = share > 0 ? share : attribute(cudaDevAttrMultiProcessorCount);
    return per_clock * multiprocessors * 1e3 * attribute(cudaDevAttrClockRate);
}

// What the passes must move, if nothing stays in the cache between kernels. Batch norm goes over its tensors
// twice, forward and backward: its sums come first.
std::array<double, 3> bytes_moved(const Layer& layer, int samples, double element, double masks) {
    const double in = samples * static_cast<double>(layer.input.elements()) * element;
    const double out = samples * static_cast<double>(layer.output.elements()) * element;
    const double weights = static_cast<double>(layer.parameters) * element;
    switch (layer.kind) {
        case LayerKind::Convolution:
        case LayerKind::Linear:
            return {in + weights + out, out + weights + in, in + out + weights};
        case LayerKind::BatchNorm:
            return {2 * in + out, 2 * (in + out) + in, 0};
        case LayerKind::Add:
            return {2 * in + out + masks, out + masks + 2 * in, 0};
        case LayerKind::Relu:
            return {in + out, in + out + in, 0};
        case LayerKind::MaxPool:
        case LayerKind::AveragePool:
        case LayerKind::CrossEntropy:
            return {in + out + masks, in + out + masks, 0};
        default:
            break;  // not counted
    }
    return {};
}

// Per micro-batch: gradients of tensors with several readers are summed after a layer's I.
std::vector<double> bytes_summed(const Model& model, const Profile& profile, int samples) {
    std::vector<LayerBytes> bytes;
    for (const LayerProfile& layer : profile.layers)
        bytes.push_back(layer.bytes.at(samples));
    const StageLayout layout =
        layout_stage(model.layers, split_at(model.layers, {}), 0, bytes, profile.data_bytes.at(samples));
    std::vector<double> all(bytes.size(), 0);
    for (std::size_t layer = 0; layer < all.size(); ++layer)
        for (const auto* sums : {&layout.backward.before, &layout.backward.after})
            for (const Sum& sum : (*sums)[layer])
                all[layer] += 3 * static_cast<double>(sum.bytes);
    return all;
}

std::vector<Passes> passes_of(const Model& model, const Profile& profile, int samples, Precision precision,
                              const Roof& roof) {
    const std::vector<double> summed = bytes_summed(model, profile, samples);
    std::vector<Passes> all;
    for (std::size_t number = 0; number < profile.layers.size(); ++number) {
        const Layer& layer = model.layers[number];
        const LayerTimes& times = profile.layers[number].times.at(samples);
        const double masks = static_cast<double>(profile.layers[number].bytes.at(samples).saved_until_input);
        auto bytes = bytes_moved(layer, samples, precision == Precision::Bf16 ? 2 : 4, masks);
        bytes[1] += summed[number];
        const std::array medians = {times.forward.median, times.backward_input.median, times.backward_weight.median};
        const std::array flops = {layer.flops_forward, layer.flops_input, layer.flops_weight};
        Passes& passes = all.emplace_back();
        for (std::size_t k = 0; k < passes.size(); ++k) {
            if (medians[k] == 0)  // nothing to do
                continue;
            Pass& pass = passes[k];
            pass.seconds = static_cast<double>(medians[k]) * 1e-9;
            pass.bytes = bytes[k];
            pass.flops = samples * flops[k];
            pass.floor = std::max(pass.bytes / roof.bandwidth, pass.flops / roof.flops);
        }
    }
    return all;
}

std::string kind_of(const Layer& layer) {
    if (layer.kind == LayerKind::Convolution)
        return fmt::format("convolution {0}x{0}/{1}", layer.kernel, layer.stride);
    return std::string(name_of(layer.kind)) + (layer.relu ? " + relu" : "");
}

std::string cells_of(const Pass& pass, int samples) {
    if (pass.seconds == 0)
        return fmt::format("{:>9} {:>7} {:>7}", "-", "-", "-");
    const std::string teraflops = pass.flops == 0 ? "-" : fmt::format("{:.1f}", pass.flops / pass.seconds * 1e-12);
    return fmt::format("{:9.2f} {:7.0f} {:>7}", pass.seconds / samples * 1e6, pass.bytes / pass.seconds * 1e-9,
                       teraflops);
}

void print_row(const std::string& name, const Passes& passes, int samples) {
    const Pass all = all_of(passes);
    std::string line = fmt::format("{:28}", name);
    for (const Pass& pass : passes)
        line += " " + cells_of(pass, samples);
    fmt::print("{} {:9.2f} {:9.2f} {:6.2f}\n", line, all.seconds / samples * 1e6, all.floor / samples * 1e6,
               all.floor == 0 ? 0 : all.seconds / all.floor);
}

void print_head(const std::string& title) {
    std::string line = fmt::format("\n{:28}", title);
    for (const char* pass : kPassNames)
        line += fmt::format(" {:>9} {:>7} {:>7}", std::string(pass) + " us", "GB/s", "TFLOP/s");
    fmt::print("{} {:>9} {:>9} {:>6}\n", line, "all us", "floor us", "times");
}

void print_kinds(const Model& model, const std::vector<Passes>& layers, int samples) {
    std::map<std::string, Passes> kinds;
    Passes all;
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
        for (std::size_t k = 0; k < all.size(); ++k) {
            kinds[kind_of(model.layers[layer])][k] += layers[layer][k];
            all[k] += layers[layer][k];
        }
    print_head("kind, us per image");
    for (const auto& [kind, passes] : kinds)
        print_row(kind, passes, samples);
    print_row("all", all, samples);
}

// All, or those that lose most.
void print_layers(const Model& model, const std::vector<Passes>& layers, int samples, bool details) {
    constexpr std::size_t kWorst = 15;
    std::vector<std::size_t> order;
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
        order.push_back(layer);
    if (!details) {
        std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t layer) {
            const Pass all = all_of(layers[layer]);
            return all.seconds - all.floor;
        });
        order.resize(std::min(order.size(), kWorst));
    }
    print_head(details ? "layer, us per image" : "furthest above the floor");
    for (const std::size_t layer : order)
        print_row(model.layers[layer].name, layers[layer], samples);
}

void print_others(const Profile& profile, const Model& model, int samples, Precision precision) {
    Ns update = 0;
    double parameters = 0;
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
        update += profile.layers[layer].update.median;
        parameters += static_cast<double>(model.layers[layer].parameters);
    }
    // the gradient twice, for its norm too; weights and momentum read and written; the bf16 copy written
    const double moved = parameters * (6 * sizeof(float) + (precision == Precision::Bf16 ? 2 : 0));
    fmt::print("\nupdate, with the gradient's norm: {:.1f} us, {:.0f} GB/s; images: {:.2f} us each\n",
               static_cast<double>(update) * 1e-3, moved / std::max(static_cast<double>(update), 1.0),
               static_cast<double>(profile.data.at(samples).median) * 1e-3 / samples);
}

Config config_of(int samples, const std::string& precision, int share, bool by_timing) {
    const TemporaryFolder folder;
    const std::string path = folder.write("config.yaml", R"(
workload: {model: resnet50, image_size: 224, classes: 1000}
cluster: {devices: 1}
pipeline: {schedule: naive, micro_batches: 1}
run: {backend: cuda}
)");
    std::vector<std::string> set = {fmt::format("pipeline.micro_batch_size={}", samples),
                                    "training.precision=" + precision, fmt::format("run.deterministic={}", !by_timing)};
    if (share > 0) {  // the second device takes part in nothing but the hand-over
        set.emplace_back("cluster.devices=2");
        set.push_back(fmt::format("run.sms=[{}, {}]", share, kGroup));
    }
    return load_config(path, set);
}

int measure(Arguments& arguments) {
    constexpr int kWhole = 1'000'000;
    const int samples = arguments.number("--batch", 32), asked = arguments.number("--share", kWhole);
    const std::string precision_name = arguments.text("--precision", "bf16");
    const bool by_timing = arguments.flag("--by-timing"), details = arguments.flag("--details");
    arguments.done();
    const int share = asked == kWhole ? 0 : asked;
    const Config config = config_of(samples, precision_name, share, by_timing);
    const Precision precision = config.training.precision;
    const Model model = build_model(config);
    const Roof roof{measured_bandwidth(), most_flops(precision, share)};
    const Profile profile = measure_profile(config, model, {samples}, {});

    fmt::print("{}, {} images, {}, {}, algorithms by {}\n", GpuShare({}, precision, true).name(), samples,
               precision_name, share == 0 ? "the whole GPU" : fmt::format("{} multiprocessors", share),
               by_timing ? "timing" : "shape");
    fmt::print("floor: the larger of bytes at {:.0f} GB/s (a copy of 1 GiB) and FLOPs at {:.0f} TFLOP/s\n",
               roof.bandwidth * 1e-9, roof.flops * 1e-12);
    const std::vector<Passes> layers = passes_of(model, profile, samples, precision, roof);
    print_kinds(model, layers, samples);
    print_layers(model, layers, samples, details);
    print_others(profile, model, samples, precision);
    Pass all;
    for (const Passes& passes : layers)
        all += all_of(passes);
    return shown(all.seconds > 0, fmt::format("{:.0f} images/s by the sum of the passes; the floor allows {:.0f}",
                                              samples / all.seconds, samples / all.floor));
}

}  // namespace
}  // namespace pw

int main(int count, char** values) { return pw::measured(count, values, 180, pw::measure); }
