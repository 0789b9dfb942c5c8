// The updates of the optimizers, by the kernels of host devices.
#include "tests/support/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pw {
namespace {

constexpr double kTolerance = 1e-6;  // relative to the largest weight

const HostKernels* const kFamilies[] = {&reference_kernels(), &cpu_kernels()};

TEST(AdamW, IsThePapers) {
    for (const HostKernels* kernels : kFamilies)
        EXPECT_LT(difference_from_paper(*kernels, 1024, 4096), kTolerance) << kernels->name();
}

// Made by PyTorch 2.11:
//     import math, torch
//     w = torch.nn.Parameter(torch.tensor([1.0, -0.5, 0.25, 0.0]))
//     adamw = torch.optim.AdamW([w], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
//     for t in range(1, 21):
//         w.grad = torch.tensor([math.sin(t * (i + 1)) * 10 ** -i for i in range(4)])
//         adamw.step()
//     print([f"{value:.9g}" for value in w.tolist()])
TEST(AdamW, IsPyTorchs) {
    const std::vector<double> expected = {0.944642127, -0.505330801, 0.236195818, 0.0131203625};
    for (const HostKernels* kernels : kFamilies) {
        UpdatedBlock block(*kernels, {1.0f, -0.5f, 0.25f, 0.0f}, 64, 2);
        AdamW adamw = kAdamW;
        for (; adamw.number <= 20; ++adamw.number) {
            std::vector<float> gradient;
            for (int i = 0; i < 4; ++i)
                gradient.push_back(
                    static_cast<float>(std::sin(static_cast<double>(adamw.number) * (i + 1)) * std::pow(10.0, -i)));
            block.update(adamw, gradient);
        }
        const std::vector<float> weights = block.weights(4);
        for (std::size_t i = 0; i < 4; ++i)
            EXPECT_NEAR(weights[i], expected[i], kTolerance) << kernels->name() << " " << i;
    }
}

// Values after the parameters fill the block up: they are zero, as are their gradients, and stay so.
TEST(AdamW, LeavesPaddingAtZero) {
    for (const HostKernels* kernels : kFamilies) {
        UpdatedBlock block(*kernels, {1.0f}, 64, 2);
        block.update(kAdamW, {0.5f});
        const std::vector<float> weights = block.weights(16);
        EXPECT_NE(weights[0], 1.0f);
        for (std::size_t i = 1; i < weights.size(); ++i)
            EXPECT_EQ(weights[i], 0.0f) << kernels->name();
    }
}

}  // namespace
}  // namespace pw
