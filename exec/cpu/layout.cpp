#include "exec/cpu/layers.h"

namespace pw::cpu {

namespace {

// Calls visit(offset in NCHW, offset in the blocked layout) for every element.
template <class Visit>
void for_blocked(Dims dims, int samples, std::int64_t per_block, Visit visit) {
    const std::int64_t pixels = std::int64_t{dims.height} * dims.width;
    std::int64_t plain = 0;
    for (int n = 0; n < samples; ++n)
        for (std::int64_t c = 0; c < dims.channels; ++c)
            for (std::int64_t p = 0; p < pixels; ++p) {
                const std::int64_t block = n * (dims.channels / per_block) + c / per_block;
                visit(static_cast<std::size_t>(plain++), (block * pixels + p) * per_block + c % per_block);
            }
}

}  // namespace

std::int64_t block_channels() {
    static const bool wide = [] {
        constexpr auto kWide = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
        return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kWide) == kWide;
    }();
    return wide ? 16 : 8;
}

bool is_blocked(Dims dims, std::int64_t per_block) { return dims.channels % per_block == 0; }

Bytes tensor_bytes(Dims dims, int samples) {
    return aligned(samples * dims.elements() * static_cast<Bytes>(sizeof(float)));
}

dnnl::memory::desc tensor_desc(Dims dims, int samples) {
    using Tag = dnnl::memory::format_tag;
    return {{samples, dims.channels, dims.height, dims.width},
            dnnl::memory::data_type::f32,
            !is_blocked(dims)        ? Tag::nchw
            : block_channels() == 16 ? Tag::nChw16c
                                     : Tag::nChw8c};
}

std::vector<float> read_tensor(Dims dims, int samples, const std::byte* tensor, std::int64_t per_block) {
    const float* data = floats(tensor);
    const std::int64_t count = samples * dims.elements();
    if (!is_blocked(dims, per_block))
        return {data, data + count};
    std::vector<float> values(static_cast<std::size_t>(count));
    for_blocked(dims, samples, per_block,
                [&](std::size_t plain, std::int64_t blocked) { values[plain] = data[blocked]; });
    return values;
}

void fill_tensor(Dims dims, int samples, const std::vector<float>& values, std::byte* tensor, std::int64_t per_block) {
    float* data = floats(tensor);
    if (!is_blocked(dims, per_block))
        std::copy(values.begin(), values.end(), data);
    else
        for_blocked(dims, samples, per_block,
                    [&](std::size_t plain, std::int64_t blocked) { data[blocked] = values[plain]; });
}

}  // namespace pw::cpu
