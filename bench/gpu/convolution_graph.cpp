#include "bench/gpu/convolution_graph.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace pw {

namespace {

using cuda::check;
using Descriptor = cuda::Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>;

constexpr std::int64_t kX = 1, kW = 2, kY = 3;  // names of the tensors

template <class Value>
constexpr cudnnBackendAttributeType_t kTypeOf = CUDNN_TYPE_INT64;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<float> = CUDNN_TYPE_FLOAT;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;

Descriptor make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
    return Descriptor(made);
}

template <class Value>
void set(const Descriptor& of, cudnnBackendAttributeName_t name, const std::vector<Value>& values,
         cudnnBackendAttributeType_t type = kTypeOf<Value>) {
    check(cudnnBackendSetAttribute(of.get(), name, type, static_cast<std::int64_t>(values.size()), values.data()),
          "cudnnBackendSetAttribute");
}

void finalize(const Descriptor& made) { check(cudnnBackendFinalize(made.get()), "cudnnBackendFinalize"); }

// Dimensions are given as NCHW (KCRS); the strides say that channels are contiguous.
Descriptor tensor(std::int64_t name, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                  std::int64_t w) {
    Descriptor made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, {name});
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
    set<cudnnDataType_t>(made, CUDNN_ATTR_TENSOR_DATA_TYPE, {type});
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
    set<std::int64_t>(made, CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c});
    finalize(made);
    return made;
}

Descriptor convolution(const Layer& layer) {
    Descriptor made = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const std::int64_t padding = layer.padding, stride = layer.stride;
    set<cudnnDataType_t>(made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_DATA_FLOAT});
    set<cudnnConvolutionMode_t>(made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_CROSS_CORRELATION});
    set<std::int64_t>(made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    set<std::int64_t>(made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {padding, padding});
    set<std::int64_t>(made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {padding, padding});
    set<std::int64_t>(made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {stride, stride});
    set<std::int64_t>(made, CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1});
    finalize(made);
    return made;
}

// The names of an operation's parts in each pass.
struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

Names names_of(ConvolutionPass pass) {
    if (pass == ConvolutionPass::Forward)
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (pass == ConvolutionPass::BackwardInput)
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

bool is_deterministic(cudnnBackendDescriptor_t engine_config) {
    const Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t place = engine.get();
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(engine_config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &place),
          "cudnnBackendGetAttribute");
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    check(cudnnBackendGetAttribute(place, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   static_cast<std::int64_t>(notes.size()), &count, notes.data()),
          "cudnnBackendGetAttribute");
    return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ==
           notes.begin() + count;
}

}  // namespace

ConvolutionGraph::ConvolutionGraph(cudnnHandle_t handle, const Layer& layer, int samples, cudnnDataType_t type,
                                   ConvolutionPass pass, int most, Bytes most_workspace)
    : handle_(handle) {
    constexpr int kProposals = 4;  // per plan wanted: not all build
    Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, {make_operation(layer, samples, type, pass)});
    set<cudnnHandle_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {handle});
    finalize(graph);
    for (const cudnnBackendDescriptor_t config : propose(keep(std::move(graph)), kProposals * most))
        if (static_cast<int>(plans_.size()) < most)
            add_plan(config, most_workspace);
}

cudnnBackendDescriptor_t ConvolutionGraph::keep(Descriptor made) {
    kept_.push_back(std::move(made));
    return kept_.back().get();
}

cudnnBackendDescriptor_t ConvolutionGraph::make_operation(const Layer& layer, int samples, cudnnDataType_t type,
                                                          ConvolutionPass pass) {
    const Names names = names_of(pass);
    const Dims &in = layer.input, &out = layer.output;
    Descriptor made = make(names.operation);
    const auto x = keep(tensor(kX, type, samples, in.channels, in.height, in.width));
    const auto w = keep(tensor(kW, type, out.channels, in.channels, layer.kernel, layer.kernel));
    const auto y = keep(tensor(kY, type, samples, out.channels, out.height, out.width));
    set<cudnnBackendDescriptor_t>(made, names.convolution, {keep(convolution(layer))});
    set<cudnnBackendDescriptor_t>(made, names.x, {x});
    set<cudnnBackendDescriptor_t>(made, names.w, {w});
    set<cudnnBackendDescriptor_t>(made, names.y, {y});
    set<float>(made, names.alpha, {1});
    set<float>(made, names.beta, {0});
    finalize(made);
    return keep(std::move(made));
}

std::vector<cudnnBackendDescriptor_t> ConvolutionGraph::propose(cudnnBackendDescriptor_t graph, int most) {
    Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set<cudnnBackendDescriptor_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
    set<cudnnBackendHeurMode_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_HEUR_MODE_A});
    finalize(heuristics);
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                   &count, nullptr),
          "cudnnBackendGetAttribute");
    std::vector<cudnnBackendDescriptor_t> configs;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(count, most); ++k)
        configs.push_back(keep(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)));
    if (!configs.empty())
        check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       static_cast<std::int64_t>(configs.size()), &count, configs.data()),
              "cudnnBackendGetAttribute");
    configs.resize(std::min(configs.size(), static_cast<std::size_t>(count)));
    (void)keep(std::move(heuristics));
    return configs;
}

void ConvolutionGraph::add_plan(cudnnBackendDescriptor_t engine_config, Bytes most_workspace) {
    Plan plan{make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    set<cudnnHandle_t>(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {handle_});
    set<cudnnBackendDescriptor_t>(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {engine_config});
    if (cudnnBackendFinalize(plan.plan.get()) != CUDNN_STATUS_SUCCESS)  // the engine is not for this GPU or shape
        return;
    std::int64_t count = 0, workspace = 0;
    check(cudnnBackendGetAttribute(plan.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                   &count, &workspace),
          "cudnnBackendGetAttribute");
    plan.workspace = workspace;
    plan.deterministic = is_deterministic(engine_config);
    if (plan.workspace <= most_workspace)
        plans_.push_back(std::move(plan));
}

void ConvolutionGraph::run(const Plan& plan, const Tensors& tensors, void* workspace) const {
    const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY});
    set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {tensors.x, tensors.w, tensors.y}, CUDNN_TYPE_VOID_PTR);
    set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace}, CUDNN_TYPE_VOID_PTR);
    finalize(pack);
    check(cudnnBackendExecute(handle_, plan.plan.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace pw
