// The passes of a convolution by cuDNN's graph interface, in the plans that its heuristics propose. Calls of the legacy
// interface take the host longer than the GPU needs for a micro-batch (docs/gpu.md).
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/owned.h"
#include "workloads/costs/convolution_choice.h"
#include "workloads/models/precision.h"
#include "workloads/units.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace pw::cuda {

using CudnnDescriptor = Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;

class ConvolutionPlan {
public:
    // x, w and y of the convolution, or the gradients in their places that the pass reads or makes.
    struct Tensors {
        const void *x, *w, *y;
    };

    // `made_from` are the descriptors that the plan refers to: cuDNN may read them when the plan first runs.
    ConvolutionPlan(std::shared_ptr<const std::vector<CudnnDescriptor>> made_from, CudnnDescriptor plan,
                    Bytes workspace)
        : made_from_(std::move(made_from)), plan_(std::move(plan)), workspace_(workspace) {}
    Bytes workspace() const { return workspace_; }
    // Queues the pass on the handle's stream. It overwrites the tensor that it makes.
    cudnnStatus_t run(cudnnHandle_t handle, const Tensors& tensors, void* workspace) const;

private:
    std::shared_ptr<const std::vector<CudnnDescriptor>> made_from_;
    CudnnDescriptor plan_;
    Bytes workspace_;
};

// What cuDNN proposes for a pass, best first: its heuristics' proposals, then its fallbacks. They follow from the shape
// and the GPU, whatever share of it a device has. Tensors are NHWC, filters KRSC. Sums are in fp32.
class ConvolutionProposals {
public:
    ConvolutionProposals(cudnnHandle_t handle, const ConvolutionShape& shape, Precision precision);

    int count() const { return static_cast<int>(configs_.size()); }
    // Returns the plan of a proposal. Nothing if cuDNN cannot build it, if it needs more workspace than `most`, if it
    // rounds more than the precision allows, or if its bits may change from call to call although `repeats`.
    std::optional<ConvolutionPlan> plan(int proposal, bool repeats, Bytes most) const;

private:
    cudnnBackendDescriptor_t keep(CudnnDescriptor made);
    cudnnBackendDescriptor_t make_operation(const ConvolutionShape& shape);
    void propose(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode);
    bool is_allowed(cudnnBackendDescriptor_t config, bool repeats) const;

    cudnnHandle_t handle_;
    Precision precision_;
    std::shared_ptr<std::vector<CudnnDescriptor>> kept_ = std::make_shared<std::vector<CudnnDescriptor>>();
    std::vector<cudnnBackendDescriptor_t> configs_;  // of engines
};

}  // namespace pw::cuda
