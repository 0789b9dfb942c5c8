// The layers of llama against closed forms and against other layers, for every backend on the host.
#include "tests/support/layer_laws.h"
#include "tests/support/sequence_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace pw {
namespace {

class LlamaLayers : public testing::TestWithParam<const HostKernels*> {
protected:
    LayerRig rig(const LayerCase& tested) const { return filled(*GetParam(), tested); }
    void set_input(LayerRig& rig, const std::vector<float>& values, int position = 0) const {
        rig.kernel->fill_input(values, rig.inputs[static_cast<std::size_t>(position)].get(), position);
    }
    static void run(LayerRig& rig) {
        rig.forward();
        rig.backward();
    }
};
INSTANTIATE_TEST_SUITE_P(Kernels, LlamaLayers, testing::Values(&cpu_kernels(), &reference_kernels()),
                         [](const auto& kernels) { return std::string(kernels.param->name()); });

// Joins queries, keys and values, {rows, width} each, into the rows of an attention's input.
std::vector<float> joined(const std::vector<std::vector<float>>& parts, std::size_t width) {
    std::vector<float> all;
    for (std::size_t row = 0; row < parts[0].size(); row += width)
        for (const std::vector<float>& part : parts)
            all.insert(all.end(), part.begin() + static_cast<std::ptrdiff_t>(row),
                       part.begin() + static_cast<std::ptrdiff_t>(row + width));
    return all;
}

// Repeats every head of the rows, as Hugging Face's repeat_kv does.
std::vector<float> repeated(const std::vector<float>& values, std::size_t head_width, int times) {
    std::vector<float> all;
    for (std::size_t head = 0; head < values.size(); head += head_width)
        for (int time = 0; time < times; ++time)
            all.insert(all.end(), values.begin() + static_cast<std::ptrdiff_t>(head),
                       values.begin() + static_cast<std::ptrdiff_t>(head + head_width));
    return all;
}

// The inverse of repeated(), for gradients: sums the copies.
std::vector<float> summed(const std::vector<float>& values, std::size_t head_width, int times) {
    std::vector<float> all(values.size() / static_cast<std::size_t>(times));
    for (std::size_t i = 0; i < values.size(); ++i)
        all[i / (head_width * static_cast<std::size_t>(times)) * head_width + i % head_width] += values[i];
    return all;
}

TEST_P(LlamaLayers, GroupedAttentionIsAttentionOfRepeatedHeads) {
    constexpr int kLength = 40, kHeads = 4, kSamples = 2;
    constexpr std::size_t kWidth = 24, kHeadWidth = kWidth / kHeads;
    for (const int key_value_heads : {4, 2, 1}) {
        const int times = kHeads / key_value_heads;
        LayerRig grouped = rig(grouped_attention(kLength, kWidth, kHeads, key_value_heads, kSamples));
        LayerRig whole = rig(attention(kLength, kWidth, kHeads, kSamples));
        std::vector<std::vector<float>> parts;
        for (int k = 0; k < 3; ++k) {
            parts.push_back(random_values(grouped.input_elements(k), static_cast<unsigned>(k)));
            set_input(grouped, parts.back(), k);
        }
        set_input(
            whole,
            joined({parts[0], repeated(parts[1], kHeadWidth, times), repeated(parts[2], kHeadWidth, times)}, kWidth));
        run(grouped);
        run(whole);
        EXPECT_EQ(grouped.plain_output(), whole.plain_output()) << key_value_heads;
        const std::vector<float> queries = grouped.plain_input_gradient(0);
        std::vector<float> made[3];
        const std::vector<float> gradients = whole.plain_input_gradient(0);
        for (std::size_t i = 0; i < gradients.size(); ++i)
            made[i / kWidth % 3].push_back(gradients[i]);
        EXPECT_EQ(grouped.plain_input_gradient(0), made[0]) << key_value_heads;
        for (const std::size_t k : {1u, 2u})
            expect_close(grouped.plain_input_gradient(k), summed(made[k], kHeadWidth, times),
                         times == 1 ? 0 : kTolerance, "gradient");
    }
}

TEST_P(LlamaLayers, SkipTheGradientsThatAreNotNeeded) {
    for (const LayerCase& tested :
         {grouped_attention(40, 24, 4, 2, 2), simple("GatedSilu", LayerKind::GatedSilu, 5, 33, 2)}) {
        LayerRig full = rig(tested);
        run(full);
        for (std::size_t missing = 0; missing < full.inputs.size(); ++missing) {
            LayerRig part = rig(tested);
            part.forward();
            LayerArgs args = part.args();
            std::vector<std::byte*> gradients(args.input_gradients.begin(), args.input_gradients.end());
            gradients[missing] = nullptr;
            args.input_gradients = gradients;
            part.kernel->backward_input(args);
            for (std::size_t k = 0; k < full.inputs.size(); ++k) {
                if (k == missing)
                    EXPECT_TRUE(
                        std::ranges::all_of(part.plain_input_gradient(k), [](float x) { return std::isnan(x); }));
                else
                    EXPECT_EQ(part.plain_input_gradient(k), full.plain_input_gradient(k)) << tested.name << missing;
            }
        }
    }
}

// Pairs are half a head apart; the first turns by the position, the second by its hundredth.
TEST_P(LlamaLayers, RotaryTurnsPairsByTheirPosition) {
    LayerRig tested = rig(rotary(3, 8, 2, 1));
    const std::vector<float> row{1, 0, 0, 1, 2, 3, -1, 0.5f};
    std::vector<float> input, expected;
    for (const double position : {0.0, 1.0, 2.0}) {
        input.insert(input.end(), row.begin(), row.end());
        const double c = std::cos(position), s = std::sin(position), c2 = std::cos(position / 100),
                     s2 = std::sin(position / 100);
        for (const double value : {c, -s2, s, c2, 2 * c + s, 3 * c2 - 0.5 * s2, -c + 2 * s, 0.5 * c2 + 3 * s2})
            expected.push_back(static_cast<float>(value));
    }
    set_input(tested, input);
    tested.forward();
    expect_close(tested.plain_output(), expected, 1e-6, "output");
    EXPECT_TRUE(std::equal(row.begin(), row.end(), tested.plain_output().begin())) << "row 0 is not turned";
    tested.fill_gradient(tested.plain_output());
    tested.backward();
    expect_close(tested.plain_input_gradient(0), input, 1e-6, "turned back");
}

TEST_P(LlamaLayers, RotaryMakesProductsDependOnDistancesOnly) {
    constexpr int kLength = 60;
    constexpr std::size_t kWidth = 32;
    LayerRig tested = rig(rotary(kLength, kWidth, 1, 1));
    const std::vector<float> query = random_values(kWidth, 1), key = random_values(kWidth, 2);
    const auto turned = [&](const std::vector<float>& row) {
        std::vector<float> all;
        for (int position = 0; position < kLength; ++position)
            all.insert(all.end(), row.begin(), row.end());
        set_input(tested, all);
        tested.forward();
        return tested.plain_output();
    };
    const std::vector<float> queries = turned(query), keys = turned(key);
    const auto product = [&](std::size_t of_query, std::size_t of_key) {
        double sum = 0;
        for (std::size_t i = 0; i < kWidth; ++i)
            sum += double{queries[of_query * kWidth + i]} * keys[of_key * kWidth + i];
        return sum;
    };
    for (const std::size_t distance : {0u, 1u, 7u, 31u})
        for (const std::size_t position : {3u, 28u})
            EXPECT_NEAR(product(position + distance, position), product(distance, 0), 1e-5);
    EXPECT_GT(std::abs(product(7, 0) - product(0, 0)), 0.1);
}

TEST_P(LlamaLayers, RmsNormDividesByTheRootMeanSquare) {
    LayerRig tested = rig(simple("RmsNorm", LayerKind::RmsNorm, 2, 4, 1));
    tested.kernel->load({{1, 1, 2, -1}}, tested.weights.get(), tested.statistics.get());
    set_input(tested, {1, -7, 5, 5, 100, 100, 100, 100});  // roots of 25 and 10000
    tested.forward();
    expect_close(tested.plain_output(), {0.2f, -1.4f, 2, -1, 1, 1, 2, -1}, 1e-6, "output");
    EXPECT_EQ(tested.parameters().size(), 1u);
}

TEST_P(LlamaLayers, RmsNormOfZerosIsZero) {
    LayerRig tested = rig(simple("RmsNorm", LayerKind::RmsNorm, 2, 20, 1));
    set_input(tested, std::vector<float>(40));
    run(tested);
    for (const float value : tested.plain_output())
        EXPECT_EQ(value, 0);
    for (const float slope : tested.plain_input_gradient(0))
        EXPECT_TRUE(std::isfinite(slope));
}

TEST_P(LlamaLayers, GatedSiluFollowsTheLogisticFunction) {
    LayerRig tested = rig(simple("GatedSilu", LayerKind::GatedSilu, 1, 8, 1));
    set_input(tested, {0, 1, -1, 2, -2, 30, -30, -1000});
    set_input(tested, {3, 1, 1, 2, 1, -1, 1, 1}, 1);
    tested.fill_gradient(std::vector<float>(8, 1));
    run(tested);
    expect_close(tested.plain_output(), {0, 0.731058579f, -0.268941421f, 3.523188312f, -0.238405844f, -30, 0, 0}, 1e-6,
                 "output");
    expect_close(tested.plain_input_gradient(0),
                 {1.5f, 0.927670512f, 0.072329488f, 2.181568497f, -0.090784249f, -1, 0, 0}, 1e-6,
                 "gradient of the gate");
    expect_close(tested.plain_input_gradient(1),
                 {0, 0.731058579f, -0.268941421f, 1.761594156f, -0.238405844f, 30, 0, 0}, 1e-6,
                 "gradient of the factor");
}

}  // namespace
}  // namespace pw
