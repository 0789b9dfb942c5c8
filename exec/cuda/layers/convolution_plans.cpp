#include "exec/cuda/layers/convolution_plans.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace pw::cuda {

namespace {

using Descriptor = CudnnDescriptor;

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

// Dimensions are given as NCHW (KCRS). The strides say that channels are contiguous.
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

Descriptor convolution(const ConvolutionShape& shape) {
    Descriptor made = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const std::int64_t padding = shape.padding, stride = shape.stride;
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

constexpr std::array kNeverAllowed = {
    CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    CUDNN_NUMERICAL_NOTE_FFT,
    CUDNN_NUMERICAL_NOTE_WINOGRAD,
    CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
    CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
    CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
};

// The notes of an engine on its arithmetic.
std::vector<cudnnBackendNumericalNote_t> notes_of(cudnnBackendDescriptor_t config) {
    const Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t place = engine.get();
    std::int64_t count = 0;
    check(
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place),
        "cudnnBackendGetAttribute");
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    check(cudnnBackendGetAttribute(place, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   static_cast<std::int64_t>(notes.size()), &count, notes.data()),
          "cudnnBackendGetAttribute");
    notes.resize(static_cast<std::size_t>(count));
    return notes;
}

}  // namespace

ConvolutionProposals::ConvolutionProposals(cudnnHandle_t handle, const ConvolutionShape& shape, Precision precision)
    : handle_(handle), precision_(precision) {
    Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, {make_operation(shape)});
    set<cudnnHandle_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {handle});
    finalize(graph);
    const cudnnBackendDescriptor_t kept = keep(std::move(graph));
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
        propose(kept, mode);
}

cudnnBackendDescriptor_t ConvolutionProposals::keep(Descriptor made) {
    kept_->push_back(std::move(made));
    return kept_->back().get();
}

cudnnBackendDescriptor_t ConvolutionProposals::make_operation(const ConvolutionShape& shape) {
    const Names names = names_of(shape.pass);
    const cudnnDataType_t type = precision_ == Precision::Bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const auto made_of = [&](int extent) { return (extent + 2 * shape.padding - shape.kernel) / shape.stride + 1; };
    Descriptor made = make(names.operation);
    const auto x = keep(tensor(kX, type, shape.samples, shape.channels, shape.height, shape.width));
    const auto w = keep(tensor(kW, type, shape.outputs, shape.channels, shape.kernel, shape.kernel));
    const auto y = keep(tensor(kY, type, shape.samples, shape.outputs, made_of(shape.height), made_of(shape.width)));
    set<cudnnBackendDescriptor_t>(made, names.convolution, {keep(convolution(shape))});
    set<cudnnBackendDescriptor_t>(made, names.x, {x});
    set<cudnnBackendDescriptor_t>(made, names.w, {w});
    set<cudnnBackendDescriptor_t>(made, names.y, {y});
    set<float>(made, names.alpha, {1});
    set<float>(made, names.beta, {0});
    finalize(made);
    return keep(std::move(made));
}

// A mode without proposals for the shape is no error: another mode may have some.
void ConvolutionProposals::propose(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode) {
    Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set<cudnnBackendDescriptor_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
    set<cudnnBackendHeurMode_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, {mode});
    std::int64_t count = 0;
    if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &count, nullptr) != CUDNN_STATUS_SUCCESS)
        return;
    std::vector<cudnnBackendDescriptor_t> found;
    for (std::int64_t k = 0; k < count; ++k)
        found.push_back(keep(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)));
    if (!found.empty())
        check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       count, &count, found.data()),
              "cudnnBackendGetAttribute");
    found.resize(std::min(found.size(), static_cast<std::size_t>(count)));
    configs_.insert(configs_.end(), found.begin(), found.end());
    (void)keep(std::move(heuristics));
}

// Products of fp32 values on tensor cores are in TF32. Transforms round differently from sums of products, and have
// any of several notes.
bool ConvolutionProposals::is_allowed(cudnnBackendDescriptor_t config, bool repeats) const {
    return std::ranges::none_of(notes_of(config), [&](cudnnBackendNumericalNote_t note) {
        return std::ranges::find(kNeverAllowed, note) != kNeverAllowed.end() ||
               (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && precision_ == Precision::Fp32) ||
               (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && repeats);
    });
}

std::optional<ConvolutionPlan> ConvolutionProposals::plan(int proposal, bool repeats, Bytes most) const {
    if (proposal < 0 || proposal >= count())
        return {};
    const cudnnBackendDescriptor_t config = configs_[static_cast<std::size_t>(proposal)];
    if (!is_allowed(config, repeats))
        return {};
    Descriptor made = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set<cudnnHandle_t>(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {handle_});
    set<cudnnBackendDescriptor_t>(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {config});
    if (cudnnBackendFinalize(made.get()) != CUDNN_STATUS_SUCCESS)  // the engine is not for this GPU or shape
        return {};
    std::int64_t count = 0, workspace = 0;
    check(cudnnBackendGetAttribute(made.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                   &workspace),
          "cudnnBackendGetAttribute");
    if (workspace > most)
        return {};
    return ConvolutionPlan(kept_, std::move(made), workspace);
}

cudnnStatus_t ConvolutionPlan::run(cudnnHandle_t handle, const Tensors& tensors, void* workspace) const {
    const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY});
    set<const void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {tensors.x, tensors.w, tensors.y},
                     CUDNN_TYPE_VOID_PTR);
    set<const void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace}, CUDNN_TYPE_VOID_PTR);
    finalize(pack);
    return cudnnBackendExecute(handle, plan_.get(), pack.get());
}

}  // namespace pw::cuda
