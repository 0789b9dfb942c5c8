#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"

namespace pw::cpu {

namespace {

// Calls visit(place in NCHW, place in nChw16c) for every element.
template <class Visit>
void for_blocked(Dims dims, int samples, Visit visit) {
    const std::int64_t pixels = std::int64_t{dims.height} * dims.width;
    std::int64_t plain = 0;
    for (int n = 0; n < samples; ++n)
        for (std::int64_t c = 0; c < dims.channels; ++c)
            for (std::int64_t p = 0; p < pixels; ++p) {
                const std::int64_t block = n * (dims.channels / kLanes) + c / kLanes;
                visit(static_cast<std::size_t>(plain++), (block * pixels + p) * kLanes + c % kLanes);
            }
}

}  // namespace

bool is_blocked(Dims dims) { return dims.channels % kLanes == 0; }

Bytes tensor_bytes(Dims dims, int samples) {
    return round_up(samples * dims.elements() * static_cast<Bytes>(sizeof(float)));
}

dnnl::memory::desc tensor_desc(Dims dims, int samples) {
    using Tag = dnnl::memory::format_tag;
    return {{samples, dims.channels, dims.height, dims.width},
            dnnl::memory::data_type::f32,
            is_blocked(dims) ? Tag::nChw16c : Tag::nchw};
}

std::vector<float> read_tensor(Dims dims, int samples, const std::byte* tensor) {
    const float* data = floats(tensor);
    const std::int64_t count = samples * dims.elements();
    if (!is_blocked(dims))
        return {data, data + count};
    std::vector<float> values(static_cast<std::size_t>(count));
    for_blocked(dims, samples, [&](std::size_t plain, std::int64_t blocked) { values[plain] = data[blocked]; });
    return values;
}

void fill_tensor(Dims dims, int samples, const std::vector<float>& values, std::byte* tensor) {
    float* data = floats(tensor);
    if (!is_blocked(dims))
        std::copy(values.begin(), values.end(), data);
    else
        for_blocked(dims, samples, [&](std::size_t plain, std::int64_t blocked) { data[blocked] = values[plain]; });
}

}  // namespace pw::cpu
