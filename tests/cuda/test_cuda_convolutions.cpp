// The algorithms of convolutions if cuDNN does not have all of them in every math for every shape: only the host
// stand-in can be such a cuDNN.
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/cuda_precisions.h"
#include "tests/support/execution.h"
#include "tests/support/layer_laws.h"
#include "tests/support/refusal.h"

#include <cudnn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

namespace pw::cuda {
namespace {

class CudaConvolutions : public testing::Test {
protected:
    void SetUp() override { forget(); }
    void TearDown() override {
        host_cuda::set_convolution_limits({});
        forget();
    }
    static void forget() {
        (void)host_cuda::take_convolutions();
        (void)host_cuda::take_timings();
    }

    // Channels that are not a multiple of 8, on both sides or on one.
    static std::vector<Layer> narrow_layers() {
        return {make_layer(LayerKind::Convolution, {3, 12, 10}, 16, 7, 2, 3),
                make_layer(LayerKind::Convolution, {5, 7, 9}, 3, 3, 1, 1),
                make_layer(LayerKind::Convolution, {8, 6, 5}, 12, 1, 1, 0)};
    }

    static void expect_as_reference(const host_cuda::ConvolutionLimits& limits, bool deterministic) {
        forget();
        host_cuda::set_convolution_limits(limits);
        const CudaKernels kernels({}, Precision::Bf16, deterministic);
        for (const Layer& layer : narrow_layers()) {
            LayerRig tested(kernels, layer, 2), expected(reference_kernels(), layer, 2);
            for (LayerRig* each : {&tested, &expected}) {
                fill(*each, Precision::Bf16, 7);
                each->forward();
                each->backward();
            }
            expect_close(tested.plain_output(), expected.plain_output(), 1e-2, "output");
            expect_close(tested.plain_input_gradient(0), expected.plain_input_gradient(0), 1e-2, "input gradient");
            expect_close(tested.parameter_gradients(), expected.parameter_gradients(), 1e-2, "parameter gradient");
        }
    }

    static std::set<int> ran(int host_cuda::RanConvolution::*what) {
        std::set<int> all;
        for (const host_cuda::RanConvolution& run : ran_)
            all.insert(run.*what);
        return all;
    }
    static void take() { ran_ = host_cuda::take_convolutions(); }

    static inline std::vector<host_cuda::RanConvolution> ran_;
};

TEST_F(CudaConvolutions, TakeAnotherMathIfOneIsMissing) {
    for (const bool deterministic : {true, false}) {
        expect_as_reference({}, deterministic);
        take();
        EXPECT_EQ(ran(&host_cuda::RanConvolution::math), std::set<int>{CUDNN_TENSOR_OP_MATH});
        expect_as_reference({.narrow_tensor_ops = true}, deterministic);
        take();
        EXPECT_EQ(ran(&host_cuda::RanConvolution::math), std::set<int>{CUDNN_DEFAULT_MATH});
        expect_as_reference({.narrow_default = true}, deterministic);
        take();
        EXPECT_EQ(ran(&host_cuda::RanConvolution::math), std::set<int>{CUDNN_TENSOR_OP_MATH});
    }
}

// On a share of an H100 cuDNN 9.19 supports convolutions that cannot be launched.
TEST_F(CudaConvolutions, OnAShareUseOnlyWhatRunsThere) {
    host_cuda::set_convolution_limits({.tensor_ops_on_shares = true});
    for (const bool deterministic : {true, false})
        for (const int groups : {0, 2}) {
            forget();
            const CudaKernels kernels({.groups = groups}, Precision::Bf16, deterministic);
            LayerRig rig(kernels, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
            fill(rig, Precision::Bf16, 7);
            rig.forward();
            rig.backward();
            (void)rig.plain_output();
            take();
            EXPECT_EQ(ran(&host_cuda::RanConvolution::math),
                      std::set<int>{groups > 0 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH});
        }
}

TEST_F(CudaConvolutions, TakeOtherDeterministicAlgorithmsIfRequired) {
    expect_as_reference({.narrow_algorithms = true}, true);
    take();
    for (const host_cuda::RanConvolution& run : ran_)
        EXPECT_TRUE(run.algorithm == 5 || (run.pass == 0 && run.algorithm == 0)) << run.pass << " " << run.algorithm;
    expect_as_reference({.narrow_algorithms = true}, false);
    take();
    EXPECT_EQ(ran(&host_cuda::RanConvolution::algorithm),
              std::set<int>{0});  // the first one of the list, which counts as the fastest
}

TEST_F(CudaConvolutions, UseHeuristicsIfTimingsFail) {
    expect_as_reference({.find_narrow = true}, false);
    take();
    EXPECT_EQ(ran(&host_cuda::RanConvolution::algorithm), std::set<int>{1});
    EXPECT_GT(host_cuda::take_timings(), 0);
    expect_as_reference({.narrow_algorithms = true, .find_narrow = true}, false);
    take();
    EXPECT_EQ(ran(&host_cuda::RanConvolution::algorithm), std::set<int>{0});  // the first one of the heuristics
}

TEST_F(CudaConvolutions, FailWithoutAnAlgorithm) {
    host_cuda::set_convolution_limits({.narrow_tensor_ops = true, .narrow_default = true});
    const CudaKernels kernels({}, Precision::Bf16, true);
    Layer layer = narrow_layers().front();
    layer.name = "conv1";
    expect_says(refusal([&] { (void)kernels.make(layer, 2, false); }, ExitCode::RunFailed),
                {"layer 'conv1': cuDNN has no algorithm for its forward pass: CUDNN_STATUS_NOT_SUPPORTED"});
}

TEST_F(CudaConvolutions, TimeEachShapeOnce) {
    const Layer layer = make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1);
    const auto job = std::make_shared<JobGpus>();
    const CudaKernels one({.groups = 2}, Precision::Bf16, false, job);
    const CudaKernels other({.first_group = 2, .groups = 2}, Precision::Bf16, false, job);
    for (const CudaKernels* kernels : {&one, &one, &other})
        EXPECT_TRUE(kernels->make(layer, 2, false));
    EXPECT_EQ(host_cuda::take_timings(), 3);  // one per pass

    EXPECT_TRUE(one.make(layer, 3, false));
    EXPECT_EQ(host_cuda::take_timings(), 3);
    const CudaKernels larger({.groups = 4}, Precision::Bf16, false, job);
    EXPECT_TRUE(larger.make(layer, 2, false));
    EXPECT_EQ(host_cuda::take_timings(), 3);
    const CudaKernels fp32({.groups = 2}, Precision::Fp32, false, job);
    EXPECT_TRUE(fp32.make(layer, 2, true));
    EXPECT_EQ(host_cuda::take_timings(), 2);
    EXPECT_EQ(one.convolutions().size(), 9u);
    EXPECT_EQ(fp32.convolutions().size(), 2u);
    const CudaKernels of_another_job({.groups = 2}, Precision::Bf16, false);
    EXPECT_TRUE(of_another_job.convolutions().empty());
    EXPECT_TRUE(of_another_job.make(layer, 2, false));
    EXPECT_EQ(host_cuda::take_timings(), 3);
}

constexpr const char* kUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 2, micro_batch_size: 1}
cluster: {devices: 2}
training: {steps: 2, learning_rate: 0.01, seed: 3}
run: {backend: cuda, deterministic: false}
)";

std::vector<ConvolutionChoice> profiled_convolutions() {
    static const std::vector<ConvolutionChoice> choices = [] {
        const TemporaryFolder folder;
        const Config config = load_config(folder.write("config.yaml", kUNet), {});
        return measure_profile(config, build_model(config), {1}, {}).convolutions;
    }();
    return choices;
}

// The predicted algorithms run, even if a second timing would choose others.
TEST_F(CudaConvolutions, RunAsTheyWereProfiled) {
    const Execution execution(kUNet, {});
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    ASSERT_FALSE(job.profile.convolutions.empty());
    for (ConvolutionChoice& choice : job.profile.convolutions) {
        EXPECT_EQ(choice.shape.multiprocessors, 64);
        EXPECT_EQ(choice.way, (ConvolutionWay{0, ConvolutionMath::Fma}));
        choice.way.algorithm = 1;
    }
    forget();
    const RunResult run = pw::run(job, {});
    take();
    EXPECT_EQ(host_cuda::take_timings(), 0);
    EXPECT_EQ(ran(&host_cuda::RanConvolution::algorithm), std::set<int>{1});
    forget();
    expect_equal(run, execution.run(), "timed");
    EXPECT_GT(host_cuda::take_timings(), 0);
}

TEST_F(CudaConvolutions, DependOnlyOnTheShapeIfDeterministic) {
    const Execution execution(kUNet, {"run.deterministic=true"});
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    forget();
    (void)pw::run(job, {});
    take();
    EXPECT_EQ(ran(&host_cuda::RanConvolution::algorithm), std::set<int>{1});
    EXPECT_EQ(host_cuda::take_timings(), 0);
}

TEST_F(CudaConvolutions, NoteImpossibleAlgorithmsOfAProfile) {
    const Execution execution(kUNet, {});
    const auto notes_of = [](const RunResult& run) { return fmt::format("{}", fmt::join(run.notes, "\n")); };
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    forget();
    EXPECT_FALSE(contains(notes_of(pw::run(job, {})), "profile"));
    for (const ConvolutionWay nonsense : {ConvolutionWay{99, ConvolutionMath::Fma}, {1, ConvolutionMath::TensorOp}}) {
        job.profile.convolutions.front().way = job.profile.convolutions.back().way = nonsense;
        forget();
        const RunResult run = pw::run(job, {});
        expect_says(notes_of(run), {"cuDNN cannot run 2 of the convolutions"});
        expect_equal(run, execution.run(), "timed");
    }
}

}  // namespace
}  // namespace pw::cuda
