// A whole model in double, with memory of its own, for laws of its gradients.
#pragma once

#include "exec/training/stage_program.h"
#include "tests/support/derivatives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace pw {

class WholeModel {
public:
    WholeModel(const Model& model, int samples)
        : kernels_(reference_kernels_double()),
          split_(split_at(model.layers, {})),
          program_(model, split_, 0, kernels_, samples) {
        std::vector<LayerBytes> bytes;
        for (const int layer : program_.layers())
            bytes.push_back(program_.bytes_of(layer));
        const StageLayout layout =
            layout_stage(model.layers, split_, 0, bytes, kernels_.data_bytes(model.input, samples));
        const StageBytes sizes = stage_bytes(layout);
        weights = take(sizes.weights + sizes.frozen);
        gradients = take(sizes.weights);
        data = take(sizes.data);
        places_.weights = weights->get();
        places_.gradients = gradients->get();
        places_.statistics = take(sizes.statistics)->get();
        places_.data = data->get();
        places_.until_input = take(sizes.until_input)->get();
        places_.until_weight = take(sizes.until_weight)->get();
        places_.gradient_kept = take(sizes.gradient_kept)->get();
        places_.workspace = take(std::max({sizes.forward_workspace, sizes.backward_workspace, sizes.input_workspace,
                                           sizes.weight_workspace}))
                                ->get();
        places_.loss = &loss_;
        program_.set_layout(layout);
        const std::int64_t labels = std::int64_t{samples} * labels_per_sample(model);
        for (std::int64_t i = 0; i < labels; ++i) {
            doubles(*data)[static_cast<std::size_t>(i)] = static_cast<double>(i * 5 % model.classes);
            labels_.push_back(static_cast<int>((i * 3 + 1) % model.classes));
        }
        places_.labels = labels_;
        const std::vector<float> values =
            random_values((sizes.weights + sizes.frozen) / Bytes{sizeof(double)}, 1, 0.7f);
        std::ranges::copy(values, doubles(*weights).begin());
    }

    double loss() {
        program_.forward(places_, true);
        return loss_ * kScale;
    }
    void backward() { program_.backward(places_, kScale, {}, true); }
    void backward_in_two() {
        program_.backward(places_, kScale, {}, false);
        program_.backward_weight(places_, {});
    }
    std::size_t parameters() const { return doubles(*gradients).size(); }  // trained

    Block *weights, *gradients, *data;

private:
    static constexpr double kScale = 0.5;

    Block* take(Bytes bytes) {
        blocks_.push_back(std::make_unique<Block>(kernels_, std::max<Bytes>(bytes, 64), 0));
        return blocks_.back().get();
    }

    const HostKernels& kernels_;
    StageSplit split_;
    StageProgram program_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<int> labels_;
    Places places_;
    double loss_ = 0;
};

inline void expect_gradients_are_derivatives(const Model& model) {
    WholeModel whole(model, 2);
    whole.loss();
    whole.backward();
    double largest = 0;
    for (std::size_t i = 0; i < whole.parameters(); ++i) {
        const double expected = central_difference(doubles(*whole.weights)[i], [&] { return whole.loss(); });
        ASSERT_NEAR(doubles(*whole.gradients)[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << i;
        largest = std::max(largest, std::abs(expected));
    }
    EXPECT_GT(largest, 0.01);
}

inline void expect_backward_in_two_is_the_backward(const Model& model) {
    WholeModel one(model, 2), two(model, 2);
    EXPECT_EQ(one.loss(), two.loss());
    one.backward();
    two.backward_in_two();
    EXPECT_TRUE(std::ranges::equal(doubles(*one.gradients), doubles(*two.gradients)));
}

}  // namespace pw
