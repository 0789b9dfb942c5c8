#include "exec/cuda/layers/family.h"

#include "exec/cuda/layers/packs.h"

#include <algorithm>
#include <cmath>

namespace pw::cuda {

namespace {

using Bf16 = __nv_bfloat16;
using Four = Pack<float, 4>;

// A line of a plane in a sample's crop. Pixels outside the image are zero.
struct Line {
    const unsigned char* pixels;
    int first, step, width;  // column 0 is pixel `first` (width 0: the line is outside the image)
    __device__ float operator[](int column) const {
        const int from = first + step * column;
        return from >= 0 && from < width ? static_cast<float>(pixels[from]) : 0.0F;
    }
};

__device__ Line line_of(const StoredImages& images, const unsigned char* plane, const Sample& sample, int row) {
    const int from = sample.row + row, width = images.stored_width;
    if (from < 0 || from >= images.stored_height)
        return {plane, 0, 0, 0};
    return {plane + from * width, sample.column + (sample.flip ? width - 1 : 0), sample.flip ? -1 : 1, width};
}

// One thread per pixel of the result, all channels.
template <class T>
__global__ void read_pixels(StoredImages images, const Sample* samples, T* out, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const std::int64_t line = i / images.width;
    const Tap row = images.rows[line % images.height], column = images.columns[i % images.width];
    const std::int64_t stored = std::int64_t{images.stored_height} * images.stored_width;
    const Sample sample = samples[line / images.height];
    const unsigned char* planes = images.pixels + sample.place * images.stored_channels * stored;
    for (int channel = 0; channel < images.channels; ++channel) {
        const unsigned char* plane = planes + (images.stored_channels == 1 ? 0 : channel) * stored;
        const Line above = line_of(images, plane, sample, row.low);
        const Line below = line_of(images, plane, sample, row.high);
        const auto [scale, shift] = images.scales[channel];
        const float top = above[column.low] * (1 - column.weight) + above[column.high] * column.weight;
        const float bottom = below[column.low] * (1 - column.weight) + below[column.high] * column.weight;
        const float value = (top * (1 - row.weight) + bottom * row.weight) * scale + shift;
        out[i * images.written_channels + channel] = rounded<T>(value);
    }
    for (int channel = images.channels; channel < images.written_channels; ++channel)
        out[i * images.written_channels + channel] = rounded<T>(0);
}

__global__ void read_stream(const std::int32_t* tokens, std::int64_t length, const Sample* samples, float* out,
                            std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        out[i] = static_cast<float>(tokens[samples[i / length].place * length + i % length]);
}

template <class T>
using Widest = Pack<T, kWidest<T>>;

template <class T>
__global__ void add_packs(const Widest<T>* left, const Widest<T>* right, Widest<T>* to, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Pack<float, kWidest<T>> l = reals(left[i]), r = reals(right[i]);
    Pack<float, kWidest<T>> sum;
    for (int k = 0; k < kWidest<T>; ++k)
        sum.values[k] = l.values[k] + r.values[k];
    to[i] = rounded<T>(sum);
}

__global__ void add_blocks(Summands summands, Four* to, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    Four sum = reinterpret_cast<const Four*>(summands.from[0])[i];
    for (int k = 1; k < summands.count; ++k) {
        const Four more = reinterpret_cast<const Four*>(summands.from[k])[i];
        for (int lane = 0; lane < 4; ++lane)
            sum.values[lane] += more.values[lane];
    }
    to[i] = sum;
}

__global__ void make_clip_factor(const double* squares, std::int64_t count, double largest, double* factor,
                                 std::int64_t items) {
    if (item() >= items)
        return;
    double sum = 0;
    for (std::int64_t k = 0; k < count; ++k)
        sum += squares[k];
    const double ratio = largest / (sqrt(sum) + 1e-6);
    *factor = ratio < 1 ? ratio : 1;
}

__global__ void multiply(const double* factor, Four* values, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items || *factor == 1)
        return;
    const float times = static_cast<float>(*factor);
    Four four = values[i];
    for (float& value : four.values)
        value *= times;
    values[i] = four;
}

Four* fours(float* values) { return reinterpret_cast<Four*>(values); }

}  // namespace

template <class T>
void read_images(cudaStream_t stream, const StoredImages& images, const Sample* samples, std::int64_t count, T* out) {
    const std::int64_t items = count * images.height * images.width;
    launch(stream, items, read_pixels<T>, images, samples, out, items);
}
template void read_images<float>(cudaStream_t, const StoredImages&, const Sample*, std::int64_t, float*);
template void read_images<Bf16>(cudaStream_t, const StoredImages&, const Sample*, std::int64_t, Bf16*);

void read_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t length, const Sample* samples,
                 std::int64_t count, float* out) {
    launch(stream, count * length, read_stream, tokens, length, samples, out, count * length);
}

template <class T>
void add_tensor(cudaStream_t stream, const T* from, T* to, std::int64_t bytes) {
    const auto items = bytes / static_cast<std::int64_t>(sizeof(Widest<T>));
    auto* sum = reinterpret_cast<Widest<T>*>(to);
    launch(stream, items, add_packs<T>, sum, reinterpret_cast<const Widest<T>*>(from), sum, items);
}
template void add_tensor<float>(cudaStream_t, const float*, float*, std::int64_t);
template void add_tensor<Bf16>(cudaStream_t, const Bf16*, Bf16*, std::int64_t);

void sum_blocks(cudaStream_t stream, const Summands& summands, float* to, std::int64_t count) {
    launch(stream, count / 4, add_blocks, summands, fours(to), count / 4);
}

void clip_factor(cudaStream_t stream, const double* squares, std::int64_t count, double largest, double* factor) {
    launch(stream, 1, make_clip_factor, squares, count, largest, factor, 1);
}

void scale(cudaStream_t stream, const double* factor, float* values, std::int64_t count) {
    launch(stream, count / 4, multiply, factor, fours(values), count / 4);
}

}  // namespace pw::cuda
