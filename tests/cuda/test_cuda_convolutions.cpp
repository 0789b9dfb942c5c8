// Which of cuDNN's plans compute convolutions: only the host stand-in can be a cuDNN that lacks some of them.
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

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

namespace pw::cuda {
namespace {

using Engine = host_cuda::ConvolutionEngine;
using Engines = std::set<Engine>;

class CudaConvolutions : public testing::Test {
protected:
    void SetUp() override { forget(); }
    void TearDown() override {
        host_cuda::set_convolution_limits({});
        forget();
    }
    static void forget() { (void)host_cuda::take_convolutions(); }

    // Channels that are not a multiple of 8, on both sides or on one.
    static std::vector<Layer> narrow_layers() {
        return {make_layer(LayerKind::Convolution, {3, 12, 10}, 16, 7, 2, 3),
                make_layer(LayerKind::Convolution, {5, 7, 9}, 3, 3, 1, 1),
                make_layer(LayerKind::Convolution, {8, 6, 5}, 12, 1, 1, 0)};
    }

    // The engines that run in a step of a layer, by pass: not those that were only tried.
    static std::array<Engine, 3> engines_of(const CudaKernels& kernels, Precision precision) {
        LayerRig rig(kernels, make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1), 2);
        fill(rig, precision, 7);
        forget();
        rig.forward();
        rig.backward();
        (void)rig.plain_output();
        std::array<Engine, 3> ran{};
        for (const host_cuda::RanConvolution& run : host_cuda::take_convolutions())
            ran[static_cast<std::size_t>(run.pass)] = run.engine;
        return ran;
    }

    static Engines ran() {
        Engines all;
        for (const host_cuda::RanConvolution& run : host_cuda::take_convolutions())
            all.insert(run.engine);
        return all;
    }
};

constexpr std::array<Engine, 3> all_of(Engine engine) { return {engine, engine, engine}; }

TEST_F(CudaConvolutions, RunTheFallbackIfTheHeuristicsHaveNothing) {
    host_cuda::set_convolution_limits({.not_narrow = {Engine::Fast, Engine::Ordinary}});
    for (const bool deterministic : {true, false}) {
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
        EXPECT_EQ(ran(), Engines{Engine::Plain});
    }
}

TEST_F(CudaConvolutions, AreDeterministicIfRequired) {
    const std::array<Engine, 3> first = {Engine::Fast, Engine::Ordinary, Engine::Ordinary};
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Bf16, true), Precision::Bf16), first);
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Tf32, true), Precision::Tf32), first);
}

TEST_F(CudaConvolutions, AreTheFastestOtherwise) {
    host_cuda::set_convolution_limits({.slow = {Engine::Fast, Engine::Plain}});
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Bf16, false), Precision::Bf16), all_of(Engine::Ordinary));
    host_cuda::set_convolution_limits({.slow = {Engine::Ordinary, Engine::Plain}});
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Bf16, false), Precision::Bf16), all_of(Engine::Fast));
}

TEST_F(CudaConvolutions, RoundToTf32OnlyIfAllowed) {
    host_cuda::set_convolution_limits({.slow = {Engine::Ordinary}});
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Fp32, false), Precision::Fp32), all_of(Engine::Plain));
    host_cuda::set_convolution_limits({.slow = {Engine::Ordinary, Engine::Plain}});
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Tf32, false), Precision::Tf32), all_of(Engine::Fast));
}

// On a share of an H100 cuDNN 9.19 proposes engines that cannot be launched there. Equal bits need the same engine on
// the whole GPU.
TEST_F(CudaConvolutions, AreThoseThatRunOnShares) {
    host_cuda::set_convolution_limits({.not_on_shares = {Engine::Fast}, .slow = {Engine::Ordinary, Engine::Plain}});
    for (const int groups : {0, 1, 2})
        EXPECT_EQ(engines_of(CudaKernels({.groups = groups}, Precision::Bf16, true), Precision::Bf16),
                  all_of(Engine::Ordinary));
    EXPECT_EQ(engines_of(CudaKernels({}, Precision::Bf16, false), Precision::Bf16), all_of(Engine::Fast));
    for (const Engine engine : engines_of(CudaKernels({.groups = 2}, Precision::Bf16, false), Precision::Bf16))
        EXPECT_NE(engine, Engine::Fast);
}

TEST_F(CudaConvolutions, FailWithoutAnEngine) {
    host_cuda::set_convolution_limits({.not_narrow = {Engine::Fast, Engine::Ordinary, Engine::Plain}});
    const CudaKernels kernels({}, Precision::Bf16, true);
    Layer layer = narrow_layers().front();
    layer.name = "conv1";
    expect_says(refusal([&] { (void)kernels.make(layer, 2, false); }, ExitCode::RunFailed),
                {"layer 'conv1': cuDNN has no plan for its forward pass: CUDNN_STATUS_NOT_SUPPORTED"});
}

TEST_F(CudaConvolutions, TimeEachShapeOnce) {
    const Layer layer = make_layer(LayerKind::Convolution, {8, 6, 6}, 8, 3, 1, 1);
    const auto job = std::make_shared<JobGpus>();
    const auto timed_by = [&](const CudaKernels& kernels, int samples, bool reads_data = false) {
        forget();
        EXPECT_TRUE(kernels.make(layer, samples, reads_data));
        return host_cuda::take_convolutions().size() > 3;  // a chosen plan runs once, for each pass
    };
    const CudaKernels one({.groups = 2}, Precision::Bf16, false, job);
    const CudaKernels other({.first_group = 2, .groups = 2}, Precision::Bf16, false, job);
    EXPECT_TRUE(timed_by(one, 2));
    EXPECT_FALSE(timed_by(one, 2));
    EXPECT_FALSE(timed_by(other, 2));
    EXPECT_TRUE(timed_by(one, 3));
    EXPECT_TRUE(timed_by(CudaKernels({.groups = 4}, Precision::Bf16, false, job), 2));
    const CudaKernels fp32({.groups = 2}, Precision::Fp32, false, job);
    EXPECT_TRUE(timed_by(fp32, 2, true));
    EXPECT_EQ(one.convolutions().size(), 9u);
    EXPECT_EQ(fp32.convolutions().size(), 2u);
    const CudaKernels of_another_job({.groups = 2}, Precision::Bf16, false);
    EXPECT_TRUE(of_another_job.convolutions().empty());
    EXPECT_TRUE(timed_by(of_another_job, 2));
}

constexpr const char* kUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 2, micro_batch_size: 1}
cluster: {devices: 2}
training: {steps: 2, learning_rate: 0.01, seed: 3}
run: {backend: cuda, deterministic: false}
)";

// The numbers of the engines among the proposals.
constexpr int kFast = 0, kOrdinary = 1, kUnfit = 2, kPlain = 3;

std::vector<ConvolutionChoice> profiled_convolutions() {
    static const std::vector<ConvolutionChoice> choices = [] {
        host_cuda::set_convolution_limits({.slow = {Engine::Plain}});
        const TemporaryFolder folder;
        const Config config = load_config(folder.write("config.yaml", kUNet), {});
        return measure_profile(config, build_model(config), {1}, {}).convolutions;
    }();
    host_cuda::set_convolution_limits({});
    return choices;
}

// The predicted plans run, even if a second timing would choose others.
TEST_F(CudaConvolutions, RunAsTheyWereProfiled) {
    const Execution execution(kUNet, {});
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    ASSERT_FALSE(job.profile.convolutions.empty());
    for (ConvolutionChoice& choice : job.profile.convolutions) {
        EXPECT_EQ(choice.shape.multiprocessors, 64);
        EXPECT_EQ(choice.plan, kOrdinary);
        choice.plan = kPlain;
    }
    forget();
    const RunResult run = pw::run(job, {});
    EXPECT_EQ(ran(), Engines{Engine::Plain});
    expect_equal(run, execution.run(), "timed");
}

TEST_F(CudaConvolutions, DependOnlyOnTheShapeIfDeterministic) {
    const Execution execution(kUNet, {"run.deterministic=true"});
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    for (ConvolutionChoice& choice : job.profile.convolutions)
        choice.plan = kPlain;
    forget();
    (void)pw::run(job, {});
    EXPECT_EQ(ran(), Engines{Engine::Ordinary});
}

TEST_F(CudaConvolutions, NoteImpossiblePlansOfAProfile) {
    const Execution execution(kUNet, {});
    const auto notes_of = [](const RunResult& run) { return fmt::format("{}", fmt::join(run.notes, "\n")); };
    Job job = execution.job();
    job.profile.convolutions = profiled_convolutions();
    EXPECT_FALSE(contains(notes_of(pw::run(job, {})), "profile"));
    const RunResult usual = execution.run();
    for (const int nonsense : {99, kUnfit, kFast}) {
        job.profile.convolutions.front().plan = job.profile.convolutions.back().plan = nonsense;
        const RunResult run = pw::run(job, {});
        expect_says(notes_of(run), {"cuDNN cannot run 2 of the convolutions"});
        expect_equal(run, usual, "timed");
    }
}

}  // namespace
}  // namespace pw::cuda
