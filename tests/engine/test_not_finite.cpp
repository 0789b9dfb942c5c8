// A run whose loss or gradients are no longer finite reports this and the layer where it began.
#include "exec/training/npy.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Initial parameters of kMlp in a folder; scale() multiplies the weights of a layer.
class Initial {
public:
    Initial() {
        RunOptions options;
        options.save = path();
        Execution(kMlp, {"pipeline.schedule=forward-only", "training.steps=1"}).run(options);
    }
    void scale(const std::string& layer, float factor) const {
        const std::string file = path() + "/" + layer + ".weight.npy";
        std::vector<float> values = read_npy(file);
        std::ranges::transform(values, values.begin(), [&](float value) { return value * factor; });
        write_npy(file, read_npy_shape(file), values);
    }
    std::string path() const { return (folder_.path() / "initial").string(); }

private:
    TemporaryFolder folder_;
};

std::vector<std::string> starting_from(const Initial& initial, const std::vector<std::string>& more) {
    return with({"training.initial=" + initial.path()}, more);
}

// With cuts before and after the layer, in synchronous, asynchronous and evaluating schedules, and in the oracle.
TEST(NotFinite, TheErrorNamesTheFirstLayer) {
    const Initial initial;
    initial.scale("fc2", kNan);
    for (const char* backend : {"reference", "cpu"})
        for (const char* split : {"[fc2]", "[fc3]"})
            for (const char* schedule : {"gpipe", "zb-h1", "pipedream", "forward-only"}) {
                const Execution execution(kMlp, starting_from(initial, {std::string("run.backend=") + backend,
                                                                        std::string("pipeline.split=") + split,
                                                                        std::string("pipeline.schedule=") + schedule}));
                for (const bool oracle : {false, true})
                    expect_says(refusal([&] { oracle ? execution.oracle() : execution.run(); }, ExitCode::RunFailed),
                                {"step 1: the loss of micro-batch 0 is not finite", "that of layer 'fc2'",
                                 "whose parameters are not finite either", "run.allow_nan"});
            }
}

// The first layer that overflows may have finite parameters.
TEST(NotFinite, TheErrorNamesTheLayerThatOverflows) {
    const Initial initial;
    initial.scale("fc1", 1e30f);
    initial.scale("fc2", 1e30f);
    const Execution execution(kMlp, starting_from(initial, {"pipeline.split=[fc3]"}));
    expect_says(refusal([&] { execution.run(); }, ExitCode::RunFailed),
                {"step 1:", "layer 'fc2', whose parameters are finite"});
}

TEST(NotFinite, TheErrorNamesALaterStep) {
    const Execution execution(kMlp, {"training.learning_rate=1e6", "training.steps=12", "cluster.devices=2"});
    const std::string said = refusal([&] { execution.run(); }, ExitCode::RunFailed);
    expect_says(said, {"is not finite", "layer"});
    EXPECT_FALSE(contains(said, "step 1:")) << said;
}

// The gradient of fc3's input is about 1e25, which fc2 multiplies with activations of 1e20; the loss is still
// finite.
TEST(NotFinite, GradientsAreCheckedToo) {
    const Initial initial;
    initial.scale("fc1", 1e20f);
    initial.scale("fc2", 1e-20f);
    initial.scale("fc3", 1e25f);
    for (const char* backend : {"reference", "cpu"}) {
        const Execution execution(kMlp,
                                  starting_from(initial, {"cluster.devices=2", std::string("run.backend=") + backend}));
        expect_says(refusal([&] { execution.run(); }, ExitCode::RunFailed),
                    {"step 1: the gradient norm is not finite", "'fc2'"});
    }
}

TEST(NotFinite, AllowNanContinuesTheRun) {
    const RunResult run =
        Execution(kMlp, {"training.learning_rate=1e6", "training.steps=12", "run.allow_nan=true", "cluster.devices=2"})
            .run();
    ASSERT_EQ(run.losses.size(), 12u);
    EXPECT_TRUE(std::isfinite(run.losses.front()));
    EXPECT_FALSE(std::isfinite(run.losses.back()));
    EXPECT_FALSE(std::isfinite(run.gradient_norms.back()));
}

}  // namespace
}  // namespace pw
