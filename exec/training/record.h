// The record of a run: losses and norms of a step, and tensors of the first update for a dump.
#pragma once

#include "job/job.h"
#include "workloads/models/parameters.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace pw {

// Every row has one writer, a device's thread, and is read only in later phases.
class Record {
public:
    enum class Moment { Initial, Gradients, Updated };  // around the first update

    Record(const Job& job, bool keeps_tensors);

    // The losses of the current step: sums over the samples of a micro-batch.
    void take_loss(int microbatch, double sum) { losses_[static_cast<std::size_t>(microbatch)] = sum; }
    const std::vector<double>& losses() const { return losses_; }
    // The squares of the gradients, [update][layer], are in memory of the rank's first device. A plan without
    // updates has none.
    std::size_t squares() const { return updates_ * layers_; }
    void set_squares_memory(double* memory) { squares_ = memory; }
    int updates() const { return squares_ == nullptr ? 0 : static_cast<int>(updates_); }
    std::span<double> squares_of(int update) const;  // by layer
    std::vector<double> gradient_norms() const;      // by update

    bool keeps_tensors() const { return !kept_[0].empty(); }
    void keep(Moment moment, int device, std::vector<NamedTensor> tensors);  // adds to the kept tensors
    void replace(Moment moment, std::vector<std::vector<NamedTensor>> by_device) {
        kept_[static_cast<std::size_t>(moment)] = std::move(by_device);
    }
    const std::vector<std::vector<NamedTensor>>& kept(Moment moment) const {  // by device
        return kept_[static_cast<std::size_t>(moment)];
    }

private:
    const std::size_t layers_, updates_;
    std::vector<double> losses_;
    double* squares_ = nullptr;
    std::vector<std::vector<NamedTensor>> kept_[3];  // [moment][device], empty if no tensors are kept
};

}  // namespace pw
