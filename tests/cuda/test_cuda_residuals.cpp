// Batch norms that run together with adds have the same bits as those that a cut separates, and the numbers of the
// reference kernels; the memory is the predicted one. The small networks have all kinds of inputs of an add.
#include "exec/cuda/backend.h"
#include "exec/measuring/profile.h"
#include "job/load.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/thoroughness.h"
#include "workloads/models/model_builder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace pw {
namespace {

constexpr const char* kTraining = R"(
workload: {model: mlp, image_size: 8}
cluster: {devices: 1}
pipeline: {schedule: naive, micro_batches: 2, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.01, seed: 3}
)";

int norm_of_convolution(Builder& build, const std::string& name, int input, int channels, int kernel = 1,
                        int stride = 1, bool relu = false) {
    return build.batch_norm(name + ".bn", build.convolution(name + ".conv", input, channels, kernel, stride), relu);
}

int finished(Builder& build, int last) {
    return build.loss(LayerKind::CrossEntropy, build.linear("fc", build.average_pool("avgpool", last), 10));
}

// As in ResNet-50: a block with a projection and one without, twice. Colour images make the data set large.
Model residual(int channels, int colours) {
    Model model{"residual", {colours, 8, 8}, 10, {}};
    Builder build(model);
    int last = build.max_pool("maxpool", norm_of_convolution(build, "stem", kData, channels, 3, 1, true), 3, 2);
    for (int block = 0; block < 4; ++block) {
        const bool projects = block % 2 == 0;
        const std::string name = fmt::format("block{}", block);
        const int stride = block == 2 ? 2 : 1, width = block < 2 ? channels : 2 * channels;
        int main = norm_of_convolution(build, name + ".first", last, channels, 3, stride, true);
        main = norm_of_convolution(build, name + ".second", main, width);
        const int shortcut = projects ? norm_of_convolution(build, name + ".shortcut", last, width, 1, stride) : last;
        last = build.add_relu(name + ".add", main, shortcut);
    }
    finished(build, last);
    return model;
}

// No ReLU; a tensor that three layers read, or one layer twice; adjacent convolutions and norms, in both orders.
Model odd() {
    Model model{"odd", {1, 8, 8}, 10, {}};
    Builder build(model);
    const auto add = [&](const std::string& name, int first, int second) {
        const Dims in = build.made_by(first);
        return build.add({.name = name, .kind = LayerKind::Add, .input = in, .output = in}, {first, second});
    };
    const int x = norm_of_convolution(build, "stem", kData, 8, 3, 1, true);
    const int one = add("add1", norm_of_convolution(build, "a", x, 8), x);
    const int two = build.add_relu("add2", one, x);
    const int left = build.convolution("left", two, 8, 3, 1), right = build.convolution("right", two, 8, 1, 1);
    const int three = add("add3", left, right);
    const int four = build.add_relu("add4", build.batch_norm("again", three, false), three);
    const int five = add("add5", four, four);
    const int b = norm_of_convolution(build, "b", five, 16), c = norm_of_convolution(build, "c", five, 16, 3);
    const int six = build.add_relu("add6", c, b);
    const int seven = build.add_relu("add7", six, norm_of_convolution(build, "d", six, 16));
    const int eight = add("add8", norm_of_convolution(build, "e", seven, 16, 1, 1, true), seven);
    finished(build, add("add9", eight, norm_of_convolution(build, "f", seven, 16)));
    return model;
}

class CudaResiduals : public testing::TestWithParam<std::tuple<std::string, std::string>> {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
    }
    static std::string precision() { return std::get<1>(GetParam()); }
    static Model model() {
        const std::string name = std::get<0>(GetParam());
        return name == "Odd" ? odd() : name == "Residual8" ? residual(8, 3) : residual(12, 4);
    }
    static Execution execution(const std::vector<std::string>& set) {
        return {kTraining, with({"run.backend=cuda", "training.precision=" + precision()}, set), model()};
    }
    static Execution reference(const std::vector<std::string>& set) {
        return {kTraining, with({"run.backend=reference"}, set), model()};
    }
};

// Every tenth cut in fp32 and others in bf16; PIPEWRIGHT_SOAK=1 tries all in both. For tensors that
// three layers read, the order of the sums is the same for all cuts only if they are summed by layer.
TEST_P(CudaResiduals, EveryCutGivesTheSameBits) {
    const bool tries_all = soaks();
    const std::vector<std::string> by_layer = {"run.fan_out_gradients=layer"};
    const RunResult whole = execution(by_layer).run();
    const Model cut = model();
    const auto layers = static_cast<int>(boost::num_vertices(cut.layers));
    for (int layer = precision() == "fp32" || tries_all ? 1 : 2; layer < layers; layer += tries_all ? 1 : 10) {
        const std::string first = cut.layers[layer].name, second = cut.layers[std::min(layer + 3, layers - 1)].name;
        const std::string schedule = layer / 2 % 2 == 0 ? "pipeline.schedule=1f1b" : "pipeline.schedule=zb-h1";
        const std::vector<std::string> in_two = {schedule, "cluster.devices=2",
                                                 fmt::format("pipeline.split=[{}]", first)};
        expect_equal(execution(with(in_two, by_layer)).run(), whole, first);
        if (layer % 3 == 1 && first != second) {
            const std::vector<std::string> in_three = {schedule, "cluster.devices=3", "pipeline.recompute=[0]",
                                                       fmt::format("pipeline.split=[{}, {}]", first, second)};
            expect_equal(execution(with(in_three, by_layer)).run(), whole, first + " " + second);
            const Execution by_stage = execution(in_three);
            expect_equal(by_stage.run(), by_stage.oracle(), "by stage " + first + " " + second);
        }
    }
}

TEST_P(CudaResiduals, NumbersAreThoseOfTheReference) {
    const RunResult made = execution({}).run(), expected = reference({}).run();
    const double tolerance = precision() == "bf16" ? 0.1 : 1e-4;
    ASSERT_EQ(made.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(made.losses[step], expected.losses[step], tolerance * expected.losses[step]) << step;
        EXPECT_NEAR(made.gradient_norms[step], expected.gradient_norms[step], tolerance * expected.gradient_norms[step])
            << step;
    }
}

TEST_P(CudaResiduals, EvaluationIsThatOfTheReference) {
    const std::vector<std::string> evaluation = {"pipeline.schedule=forward-only", "training.steps=1"};
    const double made = execution(evaluation).run().losses.at(0), expected = reference(evaluation).run().losses.at(0);
    EXPECT_NEAR(made, expected, (precision() == "bf16" ? 0.1 : 1e-4) * expected);
}

TEST_P(CudaResiduals, MemoryIsThePredictedOne) {
    const TemporaryFolder folder;
    const Config config =
        load_config(folder.write("config.yaml", kTraining), {"run.backend=cuda", "training.precision=" + precision()});
    const Profile profile = measure_profile(config, model(), {2}, {});
    EXPECT_TRUE(std::ranges::any_of(profile.layers, [](const LayerProfile& layer) { return layer.bytes.at(2).joins; }));
    for (const char* way : {"1f1b", "zb-h1", "pipedream"}) {
        if (!soaks() && (precision() == "fp32") != (way == std::string("1f1b")))
            continue;  // the other precision tests it
        const std::vector<std::string> set = {"cluster.devices=2", std::string("pipeline.schedule=") + way,
                                              "pipeline.split=even"};
        expect_predicted_memory(execution(set), way, profile);
    }
}

INSTANTIATE_TEST_SUITE_P(Networks, CudaResiduals,
                         testing::Combine(testing::Values("Residual8", "Residual12", "Odd"),
                                          testing::Values("fp32", "bf16")),
                         [](const auto& tested) {
                             return std::get<0>(tested.param) + (std::get<1>(tested.param) == "fp32" ? "Fp32" : "Bf16");
                         });

}  // namespace
}  // namespace pw
