// The common part of all layers of this backend: sizes, and copies between the host and the device.
#include "exec/cuda/layers/layers.h"

#include "workloads/error.h"

#include <algorithm>
#include <cassert>

namespace pw::cuda {

namespace {

constexpr std::int64_t kBlockValues = 32;  // the fp32 part and the bf16 part are multiples of this number of values
constexpr std::int64_t kMostItems = std::int64_t{1} << 31;

Bytes bytes_per_value(Precision precision) { return precision == Precision::Bf16 ? 2 : 4; }

// Calls visit(offset in NCHW, offset in NHWC) for every element.
template <class Visit>
void for_elements(Dims dims, int samples, Visit visit) {
    const auto channels = static_cast<std::size_t>(dims.channels);
    const std::size_t pixels = static_cast<std::size_t>(dims.height) * static_cast<std::size_t>(dims.width);
    std::size_t plain = 0;
    for (std::size_t n = 0; n < static_cast<std::size_t>(samples); ++n)
        for (std::size_t c = 0; c < channels; ++c)
            for (std::size_t p = 0; p < pixels; ++p)
                visit(plain++, (n * pixels + p) * channels + c);
}

// Both wait until the device has done its earlier work and the copy.
std::vector<std::byte> copy_of(const std::byte* data, Bytes bytes, cudaStream_t stream) {
    std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
    if (bytes == 0)
        return copy;
    check(cudaMemcpyAsync(copy.data(), data, copy.size(), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return copy;
}

void put(const std::vector<std::byte>& from, std::byte* data, cudaStream_t stream) {
    if (from.empty())
        return;
    check(cudaMemcpyAsync(data, from.data(), from.size(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Bf16* halves(std::byte* data) { return reinterpret_cast<Bf16*>(data); }
const Bf16* halves(const std::byte* data) { return reinterpret_cast<const Bf16*>(data); }

}  // namespace

Bytes tensor_bytes(std::int64_t elements, Precision precision) {
    return aligned(elements * bytes_per_value(precision));
}

Bytes block_bytes(std::int64_t parameters, Precision precision) {
    return round_up(parameters, kBlockValues) * (precision == Precision::Bf16 ? 6 : 4);
}

std::int64_t block_values(Bytes bytes, Precision precision) { return bytes / (precision == Precision::Bf16 ? 6 : 4); }

CudaLayer::CudaLayer(GpuShare& device, const Layer& layer, int samples)
    : device_(device), layer_(layer), samples_(samples) {
    if (is_loss(layer.kind))
        layer_.output = {};  // it has no output tensor
    bytes_.output = tensor_bytes(samples * layer_.output.elements(), device.precision());
}

void CudaLayer::refuse(const std::string& why, const std::string& help) const {
    fail("layer '{}': {}\n  help: {}", layer_.name, why, help);
}

void CudaLayer::check_items(std::int64_t items) const {
    if (items >= kMostItems)
        refuse(fmt::format("{} samples have {} items, but the kernels of the backend cuda can have fewer than {}",
                           samples_, items, kMostItems),
               "choose a smaller pipeline.micro_batch_size");
}

void CudaLayer::load_block(const std::vector<float>& values, std::byte* block, Bytes bytes) const {
    assert(std::ssize(values) <= block_values(bytes, device_.precision()));
    std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
    std::ranges::copy(values, floats(copy.data()));
    if (device_.precision() == Precision::Bf16)
        std::ranges::transform(values, shadow(copy.data(), block_values(bytes, device_.precision())),
                               [](float value) { return __float2bfloat16_rn(value); });
    put(copy, block, device_.stream());
}

std::vector<float> CudaLayer::store_block(const std::byte* block, std::int64_t count) const {
    const auto copy = copy_of(block, count * static_cast<Bytes>(sizeof(float)), device_.stream());
    const float* values = floats(copy.data());
    return {values, values + count};
}

std::vector<float> CudaLayer::read(Dims dims, const std::byte* tensor, Precision stored) const {
    const std::int64_t elements = samples_ * dims.elements();
    const auto copy = copy_of(tensor, tensor_bytes(elements, stored), device_.stream());
    const bool is_bf16 = stored == Precision::Bf16;
    std::vector<float> values(static_cast<std::size_t>(elements));
    for_elements(dims, samples_, [&](std::size_t plain, std::size_t place) {
        values[plain] = is_bf16 ? __bfloat162float(halves(copy.data())[place]) : floats(copy.data())[place];
    });
    return values;
}

void CudaLayer::fill(Dims dims, const std::vector<float>& values, std::byte* tensor, Precision stored) const {
    const auto elements = static_cast<std::int64_t>(values.size());
    assert(elements == samples_ * dims.elements());
    std::vector<std::byte> copy(static_cast<std::size_t>(tensor_bytes(elements, stored)));
    const bool is_bf16 = stored == Precision::Bf16;
    for_elements(dims, samples_, [&](std::size_t plain, std::size_t place) {
        if (is_bf16)
            halves(copy.data())[place] = __float2bfloat16_rn(values[plain]);
        else
            floats(copy.data())[place] = values[plain];
    });
    put(copy, tensor, device_.stream());
}

}  // namespace pw::cuda
