// Convolutions and linear layers of the cuda backend against the reference: in the first layer of a model, and with
// timed algorithms.
#include "exec/cuda/backend.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/layers/layers.h"
#include "tests/support/cuda_precisions.h"
#include "tests/support/layer_laws.h"

#include <gtest/gtest.h>

#include <utility>

namespace pw {
namespace {

using cuda::CudaKernels;

class CudaProducts : public testing::TestWithParam<Precision> {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
    }

    static Layer stem() { return make_layer(LayerKind::Convolution, {3, 17, 16}, 8, 7, 2, 3); }

    void expect_as_reference(bool deterministic, bool reads_data) const {
        for (const auto& [layer, samples] : {std::pair(stem(), 2), {make_layer(LayerKind::Linear, {6, 3, 5}, 7), 4}}) {
            const CudaKernels kernels({}, GetParam(), deterministic);
            LayerRig tested(kernels, layer, samples, reads_data);
            LayerRig expected(reference_kernels(), layer, samples, reads_data);
            for (LayerRig* each : {&tested, &expected}) {
                fill(*each, GetParam(), 7);
                each->forward();
                LayerArgs args = each->args();
                std::byte* const unwanted[] = {nullptr};
                if (reads_data)
                    args.input_gradients = unwanted;
                each->kernel->backward_input(args);
                each->kernel->backward_weight(args);
            }
            const double bound = tolerance_of(layer, GetParam());
            EXPECT_LE(relative_error(tested.plain_output(), expected.plain_output()), bound) << samples;
            for (std::size_t k = 0; k < expected.parameter_gradients().size(); ++k)
                EXPECT_LE(relative_error(tested.parameter_gradients()[k], expected.parameter_gradients()[k]), bound)
                    << samples;
            if (!reads_data) {
                EXPECT_LE(relative_error(tested.plain_input_gradient(0), expected.plain_input_gradient(0)), bound)
                    << samples;
            }
        }
    }
};

TEST_P(CudaProducts, OfTheDataNeedNoInputGradient) { expect_as_reference(true, true); }

// A fourth channel of zeros in images and weights does not change the results, and stays zero.
TEST_P(CudaProducts, OfTheDataHaveAFourthChannelOfZeros) {
    const CudaKernels kernels({}, GetParam(), true);
    LayerRig padded(kernels, stem(), 2, true), plain(kernels, stem(), 2);
    EXPECT_EQ(padded.sizes.weights, cuda::block_bytes(8 * 7 * 7 * 4, GetParam()));
    const auto sum = kernels.shared(2 * sizeof(double));
    auto* squares = reinterpret_cast<double*>(sum->data());
    for (LayerRig* rig : {&padded, &plain}) {
        fill(*rig, GetParam(), 7);
        for (const bool accumulate : {false, true}) {
            rig->forward();
            rig->kernel->backward_weight(rig->args(accumulate));
        }
        kernels.sum_of_squares(rig->weight_gradient.get(), rig->weight_gradient.size(), squares++);
    }
    const double bound = tolerance_of(stem(), GetParam());
    EXPECT_EQ(padded.parameters(), plain.parameters());
    expect_close(padded.plain_output(), plain.plain_output(), bound, "output");
    expect_close(padded.parameter_gradients(), plain.parameter_gradients(), bound, "parameter gradient");
    kernels.finish();
    EXPECT_NEAR(squares[-2], squares_of(padded.parameter_gradients()), 1e-5 * squares[-2]);
    const auto image = random_for(GetParam(), 2 * 3 * 17 * 16, 3);
    padded.kernel->fill_input(image, padded.inputs[0].get());
    EXPECT_EQ(padded.kernel->read_input(padded.inputs[0].get()), image);
}

TEST_P(CudaProducts, ByTimedAlgorithmsAreTheSame) { expect_as_reference(false, false); }

INSTANTIATE_TEST_SUITE_P(Precisions, CudaProducts, testing::Values(Precision::Fp32, Precision::Tf32, Precision::Bf16),
                         [](const auto& tested) { return case_title(tested.param); });

}  // namespace
}  // namespace pw
