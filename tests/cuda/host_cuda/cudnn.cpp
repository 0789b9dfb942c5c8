// The calls of cuDNN: handles, and the descriptors of its graph interface, as far as convolutions need them.
#include "tests/cuda/host_cuda/convolutions.h"
#include "tests/cuda/host_cuda/streams.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

namespace host_cuda {
static std::atomic<bool> contexts_matter{false};
void set_cudnn_contexts(bool matter) { contexts_matter = matter; }
}  // namespace host_cuda

struct cudnnContext {
    bool works_here() const {
        return device == host_cuda::current_device() &&
               (!host_cuda::contexts_matter || context == host_cuda::current_context());
    }

    int device;
    const void* context = host_cuda::current_context();
    cudaStream_t stream = nullptr;
};

namespace {

using namespace host_cuda;

constexpr std::array kMain = {ConvolutionEngine::Fast, ConvolutionEngine::Ordinary, ConvolutionEngine::Unfit};
constexpr std::array kFallback = {ConvolutionEngine::Plain};

// Attributes as they were set; a plan's and an engine's convolution.
struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> attributes{};
    Convolution convolution{};
    ConvolutionEngine engine{};
    std::vector<cudnnBackendDescriptor_t> made_from{};  // all of them, also those of its parts
};

// Descriptors that have not been destroyed. cuDNN may compile a plan's kernel when it first runs, and then reads what
// the plan was made from: here a plan without that is an error.
struct Descriptors {
    std::mutex mutex;
    std::set<cudnnBackendDescriptor_t> alive;
};

Descriptors& descriptors() {
    static Descriptors all;
    return all;
}

bool are_alive(const std::vector<cudnnBackendDescriptor_t>& parts) {
    Descriptors& all = descriptors();
    const std::lock_guard lock(all.mutex);
    return std::ranges::all_of(parts, [&](cudnnBackendDescriptor_t part) { return all.alive.contains(part); });
}

struct Refused {};  // what was set does not make sense

Descriptor& read(cudnnBackendDescriptor_t descriptor) {
    if (!descriptor)
        throw Refused{};
    return *static_cast<Descriptor*>(descriptor);
}

template <class T>
std::vector<T> values_of(const Descriptor& of, cudnnBackendAttributeName_t name, std::size_t count) {
    const auto found = of.attributes.find(name);
    if (found == of.attributes.end() || found->second.size() != count * sizeof(T))
        throw Refused{};
    std::vector<T> values(count);
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
}

template <class T>
T value_of(const Descriptor& of, cudnnBackendAttributeName_t name) {
    return values_of<T>(of, name, 1).front();
}

void note_part(Descriptor& of, Descriptor& part) {
    of.made_from.push_back(&part);
    of.made_from.insert(of.made_from.end(), part.made_from.begin(), part.made_from.end());
}

// A finalized descriptor of the type that an attribute names.
const Descriptor& part_of(Descriptor& of, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
    Descriptor& part = read(value_of<cudnnBackendDescriptor_t>(of, name));
    if (!part.finalized || part.type != type)
        throw Refused{};
    note_part(of, part);
    return part;
}

// Only NHWC.
Tensor tensor_of(const Descriptor& of) {
    const auto dims = values_of<std::int64_t>(of, CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
    const auto strides = values_of<std::int64_t>(of, CUDNN_ATTR_TENSOR_STRIDES, 4);
    const std::int64_t c = dims[1], h = dims[2], w = dims[3];
    if (*std::ranges::min_element(dims) < 1 || strides != std::vector{h * w * c, std::int64_t{1}, w * c, c})
        throw Refused{};
    return {value_of<cudnnDataType_t>(of, CUDNN_ATTR_TENSOR_DATA_TYPE), static_cast<int>(dims[0]), static_cast<int>(c),
            static_cast<int>(h), static_cast<int>(w)};
}

struct Operation {
    Pass pass;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

Operation operation_of(cudnnBackendDescriptorType_t type) {
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return {Pass::Forward,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return {Pass::Data,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        return {Pass::Filter,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    throw Refused{};
}

// Equal values in both directions.
int both(const Descriptor& of, cudnnBackendAttributeName_t name) {
    const auto values = values_of<std::int64_t>(of, name, 2);
    if (values[0] != values[1])
        throw Refused{};
    return static_cast<int>(values[0]);
}

Convolution convolution_of(Descriptor& operation) {
    const Operation names = operation_of(operation.type);
    const Descriptor& how = part_of(operation, names.convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto tensor = [&](cudnnBackendAttributeName_t name) {
        return tensor_of(part_of(operation, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    };
    if (value_of<cudnnDataType_t>(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
        value_of<cudnnConvolutionMode_t>(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
        value_of<std::int64_t>(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
        both(how, CUDNN_ATTR_CONVOLUTION_DILATIONS) != 1 || value_of<float>(operation, names.alpha) != 1 ||
        value_of<float>(operation, names.beta) != 0 ||
        both(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) != both(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
        throw Refused{};
    const Convolution made{.pass = names.pass,
                           .x = tensor(names.x),
                           .w = tensor(names.w),
                           .y = tensor(names.y),
                           .pad = both(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                           .stride = both(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)};
    if (!fits(made))
        throw Refused{};
    return made;
}

cudnnStatus_t finalize(Descriptor& made) {
    switch (made.type) {
        case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
            (void)tensor_of(made);
            break;
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
            made.convolution = convolution_of(made);
            break;
        case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
            Descriptor& operation = read(value_of<cudnnBackendDescriptor_t>(made, CUDNN_ATTR_OPERATIONGRAPH_OPS));
            if (!operation.finalized || !value_of<cudnnHandle_t>(made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
                throw Refused{};
            made.convolution = operation.convolution;
            note_part(made, operation);
            break;
        }
        case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
            made.convolution =
                part_of(made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                    .convolution;
            (void)value_of<cudnnBackendHeurMode_t>(made, CUDNN_ATTR_ENGINEHEUR_MODE);
            break;
        case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
            const Descriptor& engine =
                part_of(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
            if (!value_of<cudnnHandle_t>(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->works_here())
                return CUDNN_STATUS_INTERNAL_ERROR;
            if (!is_built(engine.convolution, engine.engine))
                return CUDNN_STATUS_NOT_SUPPORTED;
            made.convolution = engine.convolution;
            made.engine = engine.engine;
            break;
        }
        default:
            break;
    }
    made.finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

void propose(const Descriptor& heuristics, std::int64_t room, std::int64_t* count,
             cudnnBackendDescriptor_t* proposals) {
    const bool falls_back =
        value_of<cudnnBackendHeurMode_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
    const std::span<const ConvolutionEngine> engines =
        falls_back ? std::span<const ConvolutionEngine>(kFallback) : std::span<const ConvolutionEngine>(kMain);
    if (room > 0)
        for (std::size_t k = 0; k < std::min(engines.size(), static_cast<std::size_t>(room)); ++k) {
            Descriptor& config = read(proposals[k]);
            config.convolution = heuristics.convolution;
            config.engine = engines[k];
            config.made_from = heuristics.made_from;
            config.finalized = true;
        }
    *count = static_cast<std::int64_t>(engines.size());
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& engine) {
    if (engine.engine != ConvolutionEngine::Fast)
        return {};
    if (engine.convolution.pass == Pass::Forward)
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
}

cudnnStatus_t run(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
    const Convolution& c = plan.convolution;
    const auto ids = values_of<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3);
    const auto tensors = values_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 3);  // x, w and y
    void* workspace = value_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const std::size_t needs = workspace_of(c, plan.engine);
    void *first = tensors[c.pass == Pass::Data], *second = tensors[c.pass == Pass::Forward ? 1 : 2];
    void* output = tensors[c.pass == Pass::Forward ? 2 : c.pass == Pass::Data ? 0 : 1];
    if (!first || !second || !output || (needs > 0 && !workspace))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (!are_alive(plan.made_from) || ids != std::vector<std::int64_t>{1, 2, 3})
        return CUDNN_STATUS_BAD_PARAM;
    for (const void* memory : {first, second, output, workspace})
        if (!handle->works_here() || !reaches(handle->device, memory))
            return CUDNN_STATUS_EXECUTION_FAILED;
    if (!is_launched(plan.engine, handle->stream->context != nullptr))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (only_shown({{first, false}, {second, false}, {output, true}}))
        return CUDNN_STATUS_SUCCESS;
    note(c, plan.engine);
    const auto work = [=, engine = plan.engine] {
        // The workspace is filled with NaNs before and after the call, so that an overlap is detected.
        if (needs > 0)
            std::memset(workspace, 0xff, needs);
        convolve(c, engine, first, second, output);
        if (needs > 0)
            std::memset(workspace, 0xff, needs);
    };
    return enqueue(handle->stream, work) == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

template <class Call>
cudnnStatus_t refusing(Call call) {
    try {
        return call();
    } catch (const Refused&) {
        return CUDNN_STATUS_BAD_PARAM;
    }
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
    const bool is_wide = type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ||
                         type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    return is_wide ? 8 : 4;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
        case CUDNN_STATUS_SUCCESS:
            return "CUDNN_STATUS_SUCCESS";
        case CUDNN_STATUS_NOT_INITIALIZED:
            return "CUDNN_STATUS_NOT_INITIALIZED";
        case CUDNN_STATUS_BAD_PARAM:
            return "CUDNN_STATUS_BAD_PARAM";
        case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
            return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
        case CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH:
            return "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH";
        case CUDNN_STATUS_NOT_SUPPORTED:
            return "CUDNN_STATUS_NOT_SUPPORTED";
        case CUDNN_STATUS_INTERNAL_ERROR:
            return "CUDNN_STATUS_INTERNAL_ERROR";
        case CUDNN_STATUS_EXECUTION_FAILED:
            return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "CUDNN_UNKNOWN_STATUS";
}

// There is no further message.
void cudnnGetLastErrorString(char* message, size_t max_size) {
    if (max_size > 0)
        message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    if (current_device() < 0)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{current_device()};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    wait_for_streams(handle->device);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
    if (streamId != nullptr && (streamId->device != handle->device || !handle->works_here() ||
                                (contexts_matter && streamId->context != handle->context)))
        return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
    handle->stream = streamId;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t* descriptor) {
    *descriptor = new Descriptor{descriptorType};
    const std::lock_guard lock(descriptors().mutex);
    descriptors().alive.insert(*descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    {
        const std::lock_guard lock(descriptors().mutex);
        descriptors().alive.erase(descriptor);
    }
    delete static_cast<Descriptor*>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType, int64_t elementCount,
                                       const void* arrayOfElements) {
    return refusing([&] {
        Descriptor& made = read(descriptor);
        if (made.finalized || elementCount < 1)
            throw Refused{};
        const auto* bytes = static_cast<const std::byte*>(arrayOfElements);
        made.attributes[attributeName].assign(bytes,
                                              bytes + static_cast<std::size_t>(elementCount) * size_of(attributeType));
        return CUDNN_STATUS_SUCCESS;
    });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return refusing([&] { return finalize(read(descriptor)); });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attributeName, cudnnBackendAttributeType_t,
                                       int64_t requestedElementCount, int64_t* elementCount, void* arrayOfElements) {
    return refusing([&] {
        const Descriptor& from = read(descriptor);
        if (!from.finalized)
            throw Refused{};
        *elementCount = 1;
        if (attributeName == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
            propose(from, requestedElementCount, elementCount, static_cast<cudnnBackendDescriptor_t*>(arrayOfElements));
        } else if (attributeName == CUDNN_ATTR_ENGINECFG_ENGINE) {
            Descriptor& engine = read(*static_cast<cudnnBackendDescriptor_t*>(arrayOfElements));
            engine.convolution = from.convolution;
            engine.engine = from.engine;
            engine.finalized = true;
        } else if (attributeName == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
            const auto notes = notes_of(from);
            *elementCount = static_cast<std::int64_t>(notes.size());
            std::ranges::copy(notes, static_cast<cudnnBackendNumericalNote_t*>(arrayOfElements));
        } else if (attributeName == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
            *static_cast<std::int64_t*>(arrayOfElements) =
                static_cast<std::int64_t>(workspace_of(from.convolution, from.engine));
        } else {
            throw Refused{};
        }
        return CUDNN_STATUS_SUCCESS;
    });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack) {
    return refusing([&] {
        const Descriptor &plan = read(executionPlan), &pack = read(variantPack);
        if (!plan.finalized || !pack.finalized)
            throw Refused{};
        return run(handle, plan, pack);
    });
}

}  // extern "C"
