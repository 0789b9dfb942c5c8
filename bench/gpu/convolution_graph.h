// One convolution by cuDNN's graph interface, in the plans that its heuristics propose.
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/owned.h"
#include "workloads/costs/convolution_choice.h"
#include "workloads/models/layer_graph.h"

#include <vector>

namespace pw {

class ConvolutionGraph {
public:
    struct Plan {
        cuda::Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> plan;
        Bytes workspace = 0;
        bool deterministic = true;
    };
    // x, w and y, or the gradients in their places that the pass reads or makes.
    struct Tensors {
        void *x, *w, *y;
    };

    // Keeps the first `most` plans that build, in the heuristics' order. NHWC; sums in fp32.
    ConvolutionGraph(cudnnHandle_t handle, const Layer& layer, int samples, cudnnDataType_t type, ConvolutionPass pass,
                     int most, Bytes most_workspace);

    const std::vector<Plan>& plans() const { return plans_; }
    void run(const Plan& plan, const Tensors& tensors, void* workspace) const;

private:
    using Descriptor = cuda::Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;
    cudnnBackendDescriptor_t keep(Descriptor made);
    cudnnBackendDescriptor_t make_operation(const Layer& layer, int samples, cudnnDataType_t type,
                                            ConvolutionPass pass);
    std::vector<cudnnBackendDescriptor_t> propose(cudnnBackendDescriptor_t graph, int most);
    void add_plan(cudnnBackendDescriptor_t engine_config, Bytes most_workspace);

    cudnnHandle_t handle_;
    std::vector<Descriptor> kept_;  // that the plans were made from
    std::vector<Plan> plans_;
};

}  // namespace pw
