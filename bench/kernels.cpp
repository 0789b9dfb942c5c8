// Times the cpu kernels on one core over the layers of ResNet-50, in the order of a training step
// and on each other's tensors, so that the caches hold what they would hold in a real pass. Times
// are the thread's own: another process on the core does not count.
//
//     bench_kernels [samples] [image size] [core] [passes] [details]
#include "tests/support/layer_rig.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <map>

namespace pw {
namespace {

constexpr std::array kPasses = {"forward", "backward_input", "backward_weight"};
using Times = std::array<double, 3>;  // milliseconds

template <class Work>
double milliseconds_of(Work work) {
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
    };
    const double start = now();
    work();
    return now() - start;
}

// Zeroed and on large pages, like the executor's arena; freed when the process ends.
std::byte* allocate(Bytes size) {
    const auto bytes = static_cast<std::size_t>(std::max<Bytes>(size, 64));
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(data, bytes, MADV_HUGEPAGE);
    std::memset(data, 0, bytes);
    return static_cast<std::byte*>(data);
}

struct Step {
    Layer layer;
    std::vector<int> makers;  // of its inputs; -1: the data
    std::unique_ptr<LayerKernel> kernel;
    LayerBytes sizes;
    LayerArgs args;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> gradients;
    Times best{};
};

class Network {
public:
    Network(int samples, int size) : samples_(samples) {
        add_layers(size);
        labels_.assign(static_cast<std::size_t>(samples), 1);
        for (int& label : labels_)
            label = static_cast<int>(&label - labels_.data());
        data_ = allocate(cpu_kernels().data_bytes({3, size, size}, samples));
        for (Step& step : steps)
            make_kernel(step);
        std::byte* scratch = allocate(scratch_);
        for (std::byte*& buffer : gradients_)
            buffer = allocate(largest_);
        for (Step& step : steps)
            step.args.scratch = scratch;
        connect();
    }

    void run() {
        for (Step& step : steps)
            keep_smaller(step.best[0], [&] { step.kernel->forward(step.args, true); });
        for (std::size_t i = steps.size(); i-- > 0;) {
            Step& step = steps[i];
            if (i > 0)
                keep_smaller(step.best[1], [&] { step.kernel->backward_input(step.args); });
            keep_smaller(step.best[2], [&] { step.kernel->backward_weight(step.args); });
        }
    }

    std::vector<Step> steps;

private:
    template <class Work>
    static void keep_smaller(double& best, Work work) {
        const double time = milliseconds_of(work);
        best = best == 0 ? time : std::min(best, time);
    }

    int add(const std::string& name, LayerKind kind, std::vector<int> makers, int outputs, int kernel = 1,
            int stride = 1, bool relu = false) {
        const Dims input = makers[0] < 0 ? data_dims_ : steps[static_cast<std::size_t>(makers[0])].layer.output;
        Step& step = steps.emplace_back();
        step.layer = make_layer(kind, input, outputs, kernel, stride, kernel / 2, relu);
        step.layer.name = name;
        step.makers = std::move(makers);
        return static_cast<int>(steps.size()) - 1;
    }

    int add_convolution(const std::string& name, int maker, int outputs, int kernel, int stride, bool relu) {
        const int made = add(name, LayerKind::Convolution, {maker}, outputs, kernel, stride);
        return add(name + ".norm", LayerKind::BatchNorm, {made}, outputs, 1, 1, relu);
    }

    void add_layers(int size) {
        data_dims_ = {3, size, size};
        int at = add("pool", LayerKind::MaxPool, {add_convolution("stem", -1, 64, 7, 2, true)}, 64, 3, 2);
        constexpr std::array kBlocks = {3, 4, 6, 3};
        for (std::size_t stage = 0; stage < kBlocks.size(); ++stage)
            for (int block = 0; block < kBlocks[stage]; ++block) {
                const int width = 64 << stage, stride = block == 0 && stage > 0 ? 2 : 1;
                const std::string name = fmt::format("layer{}.{}.", stage + 1, block);
                int skip = at;
                at = add_convolution(name + "conv1", at, width, 1, 1, true);
                at = add_convolution(name + "conv2", at, width, 3, stride, true);
                at = add_convolution(name + "conv3", at, 4 * width, 1, 1, false);
                if (block == 0)
                    skip = add_convolution(name + "downsample", skip, 4 * width, 1, stride, false);
                at = add(name + "add", LayerKind::Add, {at, skip}, 4 * width, 1, 1, true);
            }
        at = add("average", LayerKind::AveragePool, {at}, 2048);
        add("loss", LayerKind::CrossEntropy, {add("fc", LayerKind::Linear, {at}, 1000)}, 1);
    }

    void make_kernel(Step& step) {
        step.kernel = cpu_kernels().make(step.layer, samples_, step.makers[0] < 0);
        step.sizes = step.kernel->bytes();
        step.args.output = allocate(step.sizes.output);
        std::byte* weights = allocate(step.sizes.weights);
        step.args.weights = weights;
        step.args.weight_gradient = allocate(step.sizes.weights);
        step.args.statistics = allocate(step.sizes.statistics);
        step.args.saved = allocate(step.sizes.saved_until_input);
        step.args.labels = labels_;
        step.args.loss = &loss_;
        std::vector<std::vector<float>> values;
        for (const ParameterShape& shape : parameters_of(step.layer))
            values.push_back(initial_values(shape, 1));
        step.kernel->load(values, weights, step.args.statistics);
        largest_ = std::max(largest_, step.sizes.output);
        scratch_ = std::max(scratch_, step.sizes.scratch);
        if (step.makers[0] < 0)
            step.kernel->fill_input(random_values(samples_ * step.layer.input.elements(), 1), data_);
    }

    // The gradients of the tensors rotate through a few buffers, as in a planned workspace.
    void connect() {
        const auto gradient_of = [&](int layer) {
            return gradients_[static_cast<std::size_t>(layer) % gradients_.size()];
        };
        for (std::size_t i = 0; i < steps.size(); ++i) {
            Step& step = steps[i];
            step.args.output_gradient = gradient_of(static_cast<int>(i));
            for (int maker : step.makers) {
                step.inputs.push_back(maker < 0 ? data_ : steps[static_cast<std::size_t>(maker)].args.output);
                step.gradients.push_back(maker < 0 ? nullptr : gradient_of(maker));
            }
            step.args.inputs = step.inputs;
            step.args.input_gradients = step.gradients;
        }
    }

    int samples_;
    Dims data_dims_;
    std::byte* data_ = nullptr;
    std::array<std::byte*, 9> gradients_{};  // more than the layers of a block: a skipped one survives
    std::vector<int> labels_;
    double loss_ = 0;
    Bytes scratch_ = 0, largest_ = 0;
};

void print_times(const std::vector<Step>& steps, int samples, bool details) {
    std::map<std::string, Times> kinds;
    Times all{};
    for (const Step& step : steps) {
        if (details)
            fmt::print("{:24} {:8.3f} {:8.3f} {:8.3f}\n", step.layer.name, step.best[0] / samples,
                       step.best[1] / samples, step.best[2] / samples);
        for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
            kinds[std::string(name_of(step.layer.kind))][pass] += step.best[pass] / samples;
            all[pass] += step.best[pass] / samples;
        }
    }
    fmt::print("{:14} {:>10} {:>15} {:>16} {:>8}  ms per image\n", "kind", kPasses[0], kPasses[1], kPasses[2], "all");
    kinds.emplace("~ all", all);
    for (const auto& [kind, times] : kinds)
        fmt::print("{:14} {:10.2f} {:15.2f} {:16.2f} {:8.2f}\n", kind, times[0], times[1], times[2],
                   times[0] + times[1] + times[2]);
    fmt::print("{:.2f} images/s\n", 1000 / (all[0] + all[1] + all[2]));
}

void time_sums(Bytes weights, int passes) {
    std::byte *w = allocate(weights), *g = allocate(weights), *v = allocate(weights);
    double update = 1e9, add = 1e9;
    for (int pass = 0; pass < passes; ++pass) {
        update = std::min(update, milliseconds_of([&] { cpu_kernels().update(Sgd{}, w, g, {v}, w, weights); }));
        add = std::min(add, milliseconds_of([&] { cpu_kernels().add(g, v, weights); }));
    }
    fmt::print("update {:.2f} ms, sum of gradients {:.2f} ms, of {:.1f} MB\n", update, add,
               static_cast<double>(weights) / 1e6);
}

void run(int samples, int size, int passes, bool details) {
    Network network(samples, size);
    for (int pass = 0; pass < passes; ++pass)
        network.run();
    print_times(network.steps, samples, details);
    Bytes weights = 0;
    for (const Step& step : network.steps)
        weights += step.sizes.weights;
    time_sums(weights, passes);
}

}  // namespace
}  // namespace pw

int main(int count, char** values) {
    const auto option = [&](int place, int otherwise) {
        return count > place ? static_cast<int>(std::strtol(values[place], nullptr, 10)) : otherwise;
    };
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<std::size_t>(option(3, 0)), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    pw::cpu_kernels().start_device(1);
    pw::run(option(1, 8), option(2, 224), option(4, 5), count > 5);
}
