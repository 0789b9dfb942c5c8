// The calls of a step of ResNet-50, counted without a GPU: the stand-in of the toolkit records every call and runs
// none, so that the layers can have their full size.
#include "exec/cuda/cuda_kernels.h"
#include "exec/training/batch_statistics.h"
#include "exec/training/stage_program.h"
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/execution.h"
#include "workloads/models/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>

namespace pw {
namespace {

constexpr int kSamples = 32;  // with more samples the sums of batch norm have the same number of stages

constexpr const char* kFullSize = R"(
workload: {model: resnet50, image_size: 224, classes: 1000}
cluster: {devices: 1}
pipeline: {schedule: gpipe, micro_batches: 1, micro_batch_size: 32}
training: {steps: 1}
run: {backend: cuda, precision: bf16, allow_nan: true}
)";

struct Calls {
    int number = 0;
    Bytes bytes = 0;
};

// The rule: a call (a kernel, a library's product, a copy or a fill) reads each of its input tensors and writes
// each of its output tensors once and completely. Tensors are the data, the outputs of layers, the gradients of
// both, and the data that F saves for I. Parameters and their gradients do not count, since their bytes do not grow
// with the images, nor does the first row of a tensor, which a struct hides.
class Step : public PassObserver {
public:
    explicit Step(const Model& model)
        : model_(model),
          kernels_(cuda::Seat{}, Precision::Bf16, true),
          split_(split_at(model.layers, {})),
          program_(model, split_, 0, kernels_, kSamples) {
        for (const int layer : program_.layers())
            sizes_.push_back(program_.bytes_of(layer));
        data_bytes_ = kernels_.data_bytes(model.input, kSamples);
        const StageLayout layout = layout_stage(model.layers, split_, 0, sizes_, data_bytes_);
        bytes_ = stage_bytes(layout);
        program_.set_layout(layout);
        program_.set_observer(this);
        lend();
    }
    ~Step() { host_cuda::only_show_calls(nullptr); }

    void run() {
        const Dataset data = Dataset::synthetic(model_.input, model_.classes, 1);
        kernels_.take_data(data);
        const StatisticsTable batches(kernels_, {places_.statistics}, {kSamples});
        host_cuda::only_show_calls([this](auto arguments) { note(arguments); });
        tensors_[places_.data] = data_bytes_;
        at_ = "data";
        kernels_.load_data(data, {samples_, kSamples}, places_.data);
        program_.forward(places_, true);
        program_.backward(places_, 1.0, {}, true);
        at_ = "update";
        program_.update(Sgd{}, places_.weights, places_.gradients, {momentum_}, weights_, squares_);
        program_.gather_statistics(batches.of(0, 0, false), running_);
    }

    void before(int layer, Pass pass, const LayerArgs& args) override {
        at_ = pass == Pass::Update ? "update" : pass == Pass::Sum ? "sum of gradients" : described(layer, pass);
        if (pass == Pass::Update || pass == Pass::Sum)
            return;
        const LayerBytes& own = sizes_[layer];
        for (std::size_t k = 0; k < args.inputs.size(); ++k)
            tensors_[args.inputs[k]] = input_bytes(layer, k);
        for (std::size_t k = 0; k < args.input_gradients.size(); ++k)
            tensors_[args.input_gradients[k]] = input_bytes(layer, k);
        tensors_[args.output] = tensors_[args.output_gradient] = own.output;
        tensors_[args.saved] = own.saved_until_input;
        tensors_.erase(nullptr);
    }
    void after(int, Pass, const LayerArgs&) override {}

    Calls total() const {
        Calls all;
        for (const auto& [name, calls] : by_name_) {
            all.number += calls.number;
            all.bytes += calls.bytes;
        }
        return all;
    }
    void print() const {
        for (const auto& [name, calls] : by_name_)
            fmt::print("{:32} {:5} calls {:8.2f} MB per image\n", name, calls.number, megabytes(calls));
        fmt::print("{:32} {:5} calls {:8.2f} MB per image\n", "a step", total().number, megabytes(total()));
    }
    static double megabytes(const Calls& calls) { return static_cast<double>(calls.bytes) / kSamples / 1e6; }

private:
    std::string described(int layer, Pass pass) const {
        const char* names[] = {"F", "I", "W"};
        return fmt::format("{} {}", name_of(model_.layers[layer].kind), names[static_cast<int>(pass)]);
    }

    Bytes input_bytes(int layer, std::size_t position) const {
        const std::vector<int> makers = inputs_of_layer(model_.layers, layer);
        return makers.empty() ? data_bytes_ : sizes_[makers[position]].output;
    }

    void note(std::span<const host_cuda::Argument> arguments) {
        Calls& here = by_name_[at_];
        ++here.number;
        for (const host_cuda::Argument& argument : arguments)
            if (const auto known = tensors_.find(argument.memory); known != tensors_.end())
                here.bytes += known->second;
    }

    std::byte* take(Bytes bytes) {
        memory_.push_back(kernels_.reserve(std::max<Bytes>(bytes, 64), "a step"));
        return memory_.back()->data();
    }
    void lend() {
        places_.data = take(bytes_.data);
        places_.until_input = take(bytes_.until_input);
        places_.until_weight = take(bytes_.until_weight);
        places_.workspace = take(std::max(bytes_.forward_workspace, bytes_.backward_workspace));
        places_.weights = weights_ = take(bytes_.weights);
        places_.gradients = take(bytes_.weights);
        momentum_ = take(bytes_.weights);
        places_.statistics = take(bytes_.statistics);
        running_ = take(bytes_.statistics);
        memory_.push_back(kernels_.shared(static_cast<Bytes>((1 + sizes_.size()) * sizeof(double))));
        places_.loss = reinterpret_cast<double*>(memory_.back()->data());
        squares_ = places_.loss + 1;
        memory_.push_back(kernels_.shared(kSamples * static_cast<Bytes>(sizeof(Sample) + sizeof(int))));
        samples_ = reinterpret_cast<Sample*>(memory_.back()->data());
        places_.labels = {reinterpret_cast<const int*>(samples_ + kSamples), kSamples};
    }

    const Model& model_;
    const cuda::CudaKernels kernels_;
    const StageSplit split_;
    StageProgram program_;
    std::vector<LayerBytes> sizes_;
    StageBytes bytes_;
    Bytes data_bytes_ = 0;
    std::vector<std::unique_ptr<Memory>> memory_;
    Places places_;
    std::byte *weights_ = nullptr, *momentum_ = nullptr, *running_ = nullptr;
    double* squares_ = nullptr;
    Sample* samples_ = nullptr;
    std::map<const void*, Bytes> tensors_;  // the current tensors by address
    std::map<std::string, Calls> by_name_;
    std::string at_;
};

class CudaCalls : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::set_memory(std::size_t{64} << 30);
        host_cuda::only_show_calls([](auto) {});  // reserved memory is not filled
    }
    void TearDown() override { host_cuda::only_show_calls(nullptr); }
};

TEST_F(CudaCalls, OfAStepOfResNet50AreCounted) {
    const Model model = build_resnet50(224, 1000);
    Step step(model);
    step.run();
    step.print();
    EXPECT_LE(step.total().number, 546);
    EXPECT_LE(Step::megabytes(step.total()), 341.8);
}

// The calls that a third step adds to a run.
int calls_of_a_step(const char* yaml, const std::vector<std::string>& set) {
    std::atomic<int> calls{0};
    const auto calls_of = [&](int steps) {
        const Execution execution(yaml, with(set, {fmt::format("training.steps={}", steps)}));
        calls = 0;
        host_cuda::only_show_calls([&](auto) { ++calls; });
        (void)execution.run();
        host_cuda::only_show_calls([](auto) {});
        return calls.load();
    };
    return calls_of(3) - calls_of(2);
}

TEST_F(CudaCalls, AreThoseOfARun) {
    const Model model = build_resnet50(224, 1000);
    Step step(model);
    step.run();
    EXPECT_EQ(calls_of_a_step(kFullSize, {"run.graph=none"}), step.total().number);
}

// A graph of the second step replaces the calls of the third one, those of tasks all but the calls of U.
TEST_F(CudaCalls, AreFewerWithGraphs) {
    const std::vector<std::string> small = {"run.backend=cuda", "run.allow_nan=true", "cluster.devices=2"};
    for (const char* way : {"pipeline.schedule=1f1b", "pipeline.schedule=zb-h1", "cluster.devices=1"}) {
        EXPECT_EQ(calls_of_a_step(kMlp, with(small, {way, "run.graph=step"})), 0) << way;
        const int with_tasks = calls_of_a_step(kMlp, with(small, {way, "run.graph=task"}));
        EXPECT_GT(with_tasks, 0) << way;
        EXPECT_LT(4 * with_tasks, calls_of_a_step(kMlp, with(small, {way, "run.graph=none"}))) << way;
    }
}

}  // namespace
}  // namespace pw
