// AdamW in double, from the paper, and kernels that do the same updates.
#pragma once

#include "exec/kernels.h"
#include "tests/support/layer_rig.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace pw {

inline constexpr AdamW kAdamW{.learning_rate = 0.01, .weight_decay = 0.1, .betas = {0.9, 0.99}};

// Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, Algorithm 2, lines 6 to 12, with a schedule
// multiplier of 1 and, as in PyTorch, learning_rate * weight_decay for lambda.
class AdamWOfThePaper {
public:
    explicit AdamWOfThePaper(const std::vector<float>& weights)
        : weights_(weights.begin(), weights.end()), m_(weights.size()), v_(weights.size()) {}

    void update(const std::vector<float>& gradient) {
        ++t_;
        const double beta1 = kAdamW.betas[0], beta2 = kAdamW.betas[1];
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            const double g = gradient[i];
            m_[i] = beta1 * m_[i] + (1 - beta1) * g;
            v_[i] = beta2 * v_[i] + (1 - beta2) * g * g;
            const double m = m_[i] / (1 - std::pow(beta1, t_)), v = v_[i] / (1 - std::pow(beta2, t_));
            weights_[i] -= kAdamW.learning_rate * m / (std::sqrt(v) + kAdamW.epsilon) +
                           kAdamW.learning_rate * kAdamW.weight_decay * weights_[i];
        }
    }

    // Returns the largest difference, relative to the largest weight.
    double difference(const std::vector<float>& weights) const {
        double difference = 0, largest = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            difference = std::max(difference, std::abs(static_cast<double>(weights[i]) - weights_[i]));
            largest = std::max(largest, std::abs(weights_[i]));
        }
        return difference / largest;
    }

private:
    std::vector<double> weights_, m_, v_;
    int t_ = 0;
};

// A block of `bytes` bytes on the kernels' device, which begins with weights, and its states; all others are zero.
class UpdatedBlock {
public:
    UpdatedBlock(const Kernels& kernels, const std::vector<float>& weights, Bytes bytes, int states)
        : kernels_(kernels),
          bytes_(bytes),
          weights_(kernels, bytes, 0),
          gradient_(kernels, bytes, 0),
          states_(kernels, states * bytes, 0) {
        write(weights, weights_);
    }

    void update(const UpdateRule& rule, const std::vector<float>& gradient) {
        write(gradient, gradient_);
        kernels_.update(rule, weights_.get(), gradient_.get(), {states_.get(), bytes_}, weights_.get(), bytes_);
    }

    std::vector<float> weights(std::size_t count) const {
        std::vector<float> values(count);
        kernels_.copy(weights_.get(), reinterpret_cast<std::byte*>(values.data()), bytes_of(values));
        kernels_.finish();
        return values;
    }

private:
    static Bytes bytes_of(const std::vector<float>& values) {
        return static_cast<Bytes>(values.size() * sizeof(float));
    }
    void write(const std::vector<float>& values, const Block& block) const {
        kernels_.copy(reinterpret_cast<const std::byte*>(values.data()), block.get(), bytes_of(values));
        kernels_.finish();
    }

    const Kernels& kernels_;
    const Bytes bytes_;
    Block weights_, gradient_, states_;
};

// Does twenty updates of a block of `bytes` bytes in which `count` weights lie. Returns the largest difference from the
// paper's weights after any of them, relative to the largest weight.
inline double difference_from_paper(const Kernels& kernels, std::int64_t count, Bytes bytes) {
    const std::vector<float> start = random_values(count, 1);
    AdamWOfThePaper paper(start);
    UpdatedBlock block(kernels, start, bytes, 2);
    double largest = 0;
    AdamW adamw = kAdamW;
    for (; adamw.number <= 20; ++adamw.number) {
        // gradients of all sizes, from one update to the next
        const std::vector<float> gradient = random_values(count, 100 + static_cast<unsigned>(adamw.number),
                                                          std::pow(10.0f, static_cast<float>(-(adamw.number % 6))));
        block.update(adamw, gradient);
        paper.update(gradient);
        largest = std::max(largest, paper.difference(block.weights(start.size())));
    }
    return largest;
}

}  // namespace pw
