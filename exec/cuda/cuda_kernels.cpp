#include "exec/cuda/cuda_kernels.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/device/captured_work.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/layers/family.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/stage_update.h"
#include "exec/missing_kernel.h"
#include "job/setup/setup.h"
#include "workloads/error.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pw {

namespace cuda {

namespace {

class GpuMemoryBlock : public Memory {
public:
    GpuMemoryBlock(DeviceMemory memory, Bytes bytes) : memory_(std::move(memory)) {
        data_ = memory_.get();
        size_ = bytes;
    }

private:
    DeviceMemory memory_;
};

class SharedMemory : public Memory {
public:
    explicit SharedMemory(Bytes bytes) : memory_(allocate_pinned(bytes)) {
        data_ = memory_.get();
        size_ = bytes;
    }

private:
    PinnedMemory memory_;
};

template <class T>
std::unique_ptr<LayerKernel> make_layer(GpuShare& device, const Layer& layer, int samples, bool reads_data) {
    switch (layer.kind) {
        case LayerKind::Convolution:
            return make_convolution<T>(device, layer, samples, reads_data);
        case LayerKind::BatchNorm:
            return make_batch_norm<T>(device, layer, samples);
        case LayerKind::Relu:
        case LayerKind::Gelu:
            return make_activation<T>(device, layer, samples);
        case LayerKind::Add:
            return make_add<T>(device, layer, samples);
        case LayerKind::GatedSilu:
            return make_gated_silu<T>(device, layer, samples);
        case LayerKind::MaxPool:
            return make_max_pool<T>(device, layer, samples);
        case LayerKind::AveragePool:
            return make_average_pool<T>(device, layer, samples);
        case LayerKind::Linear:
        case LayerKind::RowLinear:
            return make_linear<T>(device, layer, samples);
        case LayerKind::Concat:
            return make_concat<T>(device, layer, samples);
        case LayerKind::Upsample:
            return make_upsample<T>(device, layer, samples);
        case LayerKind::Dropout:
            return make_dropout<T>(device, layer, samples);
        case LayerKind::Embedding:
            return make_embedding<T>(device, layer, samples);
        case LayerKind::PositionBias:
            return make_position_bias<T>(device, layer, samples);
        case LayerKind::Rotary:
            return make_rotary<T>(device, layer, samples);
        case LayerKind::LayerNorm:
        case LayerKind::RmsNorm:
            return make_row_norm<T>(device, layer, samples);
        case LayerKind::Attention:
        case LayerKind::GroupedAttention:
            return make_attention<T>(device, layer, samples);
        case LayerKind::CrossEntropy:
            return make_cross_entropy<T>(device, layer, samples);
        case LayerKind::MeanSquaredError:
            return make_mean_squared_error<T>(device, layer, samples);
        default:
            break;  // refused
    }
    fail_without_kernel("cuda", layer);
}

// True for token numbers, one per row: bf16 would round numbers above 256.
bool is_token(Dims data) { return data.channels == 1 && data.width == 1; }

template <class Value>
DeviceMemory upload(const Value* values, std::size_t count, cudaStream_t stream) {
    if (count == 0)
        return {};
    DeviceMemory copy = allocate(static_cast<Bytes>(count * sizeof(Value)));
    check(cudaMemcpyAsync(copy.get(), values, count * sizeof(Value), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return copy;
}

DeviceMemory upload_taps(std::span<const Dataset::Tap> taps, cudaStream_t stream) {
    std::vector<Tap> plain;
    for (const Dataset::Tap& tap : taps)
        plain.push_back({tap.low, tap.high, tap.weight});
    return upload(plain.data(), plain.size(), stream);
}

DeviceMemory upload_scales(const Dataset& data, cudaStream_t stream) {
    std::vector<Normalisation> plain;
    for (int channel = 0; channel < data.input().channels; ++channel) {
        const auto [scale, shift] = data.normalisation(channel);
        plain.push_back({scale, shift});
    }
    return upload(plain.data(), plain.size(), stream);
}

template <class T>
T* as(std::byte* data) {
    return reinterpret_cast<T*>(data);
}
template <class T>
const T* as(const std::byte* data) {
    return reinterpret_cast<const T*>(data);
}

}  // namespace

struct CudaKernels::Stored {
    Stored(const Dataset& data, cudaStream_t stream)
        : pixels(upload(data.pixels().data(), data.pixels().size(), stream)),
          rows(upload_taps(data.rows(), stream)),
          columns(upload_taps(data.columns(), stream)),
          scales(upload_scales(data, stream)),
          tokens(upload(data.tokens().data(), data.tokens().size(), stream)),
          images{.pixels = as<unsigned char>(pixels.get()),
                 .rows = as<Tap>(rows.get()),
                 .columns = as<Tap>(columns.get()),
                 .scales = as<Normalisation>(scales.get()),
                 .channels = data.input().channels,
                 .stored_channels = data.stored().channels,
                 .stored_height = data.stored().height,
                 .stored_width = data.stored().width,
                 .height = data.input().height,
                 .width = data.input().width} {}

    DeviceMemory pixels, rows, columns, scales, tokens;
    StoredImages images;
};

CudaKernels::CudaKernels(const Seat& seat, Precision precision, bool deterministic)
    : CudaKernels(seat, precision, deterministic, std::make_shared<JobGpus>()) {}

CudaKernels::CudaKernels(const Seat& seat, Precision precision, bool deterministic, std::shared_ptr<JobGpus> job)
    : device_(std::make_unique<GpuShare>(seat, precision, deterministic, std::move(job))),
      factor_(allocate(sizeof(double))) {}

CudaKernels::~CudaKernels() = default;

std::unique_ptr<LayerKernel> CudaKernels::make(const Layer& layer, int samples, bool reads_data) const {
    if (reads_data) {
        const bool pads = layer.kind == LayerKind::Convolution;
        if (pads_data_.value_or(pads) != pads)
            fail_with(ExitCode::RunFailed,
                      "layer '{}' reads the data, but so does another layer that is {} convolution", layer.name,
                      pads ? "no" : "a");
        pads_data_ = pads;
    }
    const auto make_one = device_->precision() == Precision::Bf16 ? make_layer<Bf16> : make_layer<float>;
    return make_one(*device_, layer, samples, reads_data);
}

// The numbers of the samples follow the tensor, since kernels read them once per pixel.
Bytes CudaKernels::data_bytes(Dims input, int samples) const {
    return image_bytes(input, samples) + aligned(samples * static_cast<Bytes>(sizeof(Sample)));
}

Bytes CudaKernels::image_bytes(Dims input, std::int64_t samples) const {
    const Dims read{padded_channels(input.channels), input.height, input.width};
    return tensor_bytes(samples * read.elements(), is_token(input) ? Precision::Fp32 : device_->precision());
}

void CudaKernels::take_data(const Dataset& data) const { stored_ = std::make_unique<Stored>(data, device_->stream()); }

void CudaKernels::load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const {
    assert(stored_);
    const auto count = static_cast<std::int64_t>(samples.size());
    std::byte* own = out + image_bytes(data.input(), count);
    copy(reinterpret_cast<const std::byte*>(samples.data()), own, static_cast<Bytes>(samples.size_bytes()));
    const auto* shown = as<Sample>(own);
    StoredImages& images = stored_->images;
    images.written_channels = pads_data_.value_or(false) ? padded_channels(images.channels) : images.channels;
    if (stored_->tokens)
        read_tokens(device_->stream(), as<std::int32_t>(stored_->tokens.get()), images.height, shown, count,
                    floats(out));
    else if (device_->precision() == Precision::Bf16)
        read_images(device_->stream(), images, shown, count, as<Bf16>(out));
    else
        read_images(device_->stream(), images, shown, count, as<float>(out));
}

void CudaKernels::fill(std::byte* to, unsigned char value, Bytes bytes) const {
    if (bytes > 0)
        check(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), device_->stream()), "cudaMemsetAsync");
}

void CudaKernels::copy(const std::byte* from, std::byte* to, Bytes bytes) const {
    if (bytes > 0)
        check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, device_->stream()),
              "cudaMemcpyAsync");
}

void CudaKernels::add(const std::byte* from, std::byte* to, Bytes bytes) const {
    if (device_->precision() == Precision::Bf16)
        add_tensor(device_->stream(), as<Bf16>(from), as<Bf16>(to), bytes);
    else
        add_tensor(device_->stream(), floats(from), floats(to), bytes);
}

void CudaKernels::sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const {
    if (from.size() > Summands::kMost)
        fail_with(ExitCode::RunFailed, "{} holders of a stage on GPU {}: at most {} can sum their gradients",
                  from.size(), device_->gpu(), int{Summands::kMost});
    Summands summands{};
    for (const std::byte* block : from)
        summands.from[summands.count++] = floats(block + first);
    sum_blocks(device_->stream(), summands, floats(to + first), bytes / static_cast<Bytes>(sizeof(float)));
}

void CudaKernels::clip_factor(std::span<const double> squares, double largest, double* factor) const {
    cuda::clip_factor(device_->stream(), squares.data(), static_cast<std::int64_t>(squares.size()), largest, factor);
}

void CudaKernels::scale(const double* factor, std::byte* gradient, Bytes bytes) const {
    copy(reinterpret_cast<const std::byte*>(factor), factor_.get(), sizeof(double));
    cuda::scale(device_->stream(), as<double>(factor_.get()), floats(gradient),
                bytes / static_cast<Bytes>(sizeof(float)));
}

std::unique_ptr<StageKernel> CudaKernels::make_stage(const std::vector<StageBlock>& blocks) const {
    return std::make_unique<StageUpdate>(*device_, blocks);
}

// Treats a single block as a stage of one layer, for the duration of the call. No step uses this.
template <class Act>
void CudaKernels::with_block(Bytes bytes, Act act) const {
    const StageUpdate stage(*device_, {{.weights = bytes}});
    act(stage);
    check(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");
}

void CudaKernels::sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const {
    with_block(bytes, [&](const StageKernel& stage) { stage.measure(gradient, sum); });
}

void CudaKernels::update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradient,
                         const OptimizerStates& states, std::byte* new_weights, Bytes bytes) const {
    with_block(bytes,
               [&](const StageKernel& stage) { stage.update(rule, weights, gradient, states, new_weights, nullptr); });
}

void CudaKernels::predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                          Bytes bytes) const {
    with_block(bytes, [&](const StageKernel& stage) { stage.predict(weights, momentum, factor, out); });
}

std::unique_ptr<Memory> CudaKernels::reserve(Bytes bytes, const std::string& whose) const {
    const auto size = std::max<Bytes>(bytes, 1);
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(size));
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();  // clears the error, which is reported here
        const GpuMemory gpu = memory_of(device_->gpu());
        fail_with(ExitCode::RunFailed, "{}: cannot reserve {} on GPU {}: {} of {} are free", whose, print_bytes(size),
                  device_->gpu(), print_bytes(gpu.free), print_bytes(gpu.total));
    }
    check(status, "cudaMalloc");
    auto block = std::make_unique<GpuMemoryBlock>(DeviceMemory(static_cast<std::byte*>(memory)), size);
    fill(block->data(), 0, size);
    check(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");  // other streams may use the memory
    return block;
}

std::unique_ptr<Memory> CudaKernels::shared(Bytes bytes) const {
    return std::make_unique<SharedMemory>(std::max<Bytes>(bytes, 1));
}

std::vector<ConvolutionChoice> CudaKernels::convolutions() const {
    return device_->job().convolutions.timed(device_->precision());
}

Mark CudaKernels::mark() const {
    if (marks_used_ == marks_.size())
        marks_.emplace_back(Event::Kind::Timed);
    const Event& event = marks_[marks_used_];
    captures_ ? event.record_each_launch(device_->stream()) : event.record(device_->stream());
    return static_cast<Mark>(marks_used_++);
}

Ns CudaKernels::time_between(Mark from, Mark to) const {
    const cudaEvent_t first = marks_[static_cast<std::size_t>(from)].get();
    const cudaEvent_t last = marks_[static_cast<std::size_t>(to)].get();
    check(cudaEventSynchronize(first), "cudaEventSynchronize");
    check(cudaEventSynchronize(last), "cudaEventSynchronize");
    return elapsed(first, last);
}

void CudaKernels::finish() const {
    check(cudaStreamSynchronize(device_->stream()), "cudaStreamSynchronize");
    marks_used_ = marks_kept_;
}

std::unique_ptr<RepeatedCalls> CudaKernels::as_one(std::function<void()> calls) const {
    class Launched : public RepeatedCalls {
    public:
        Launched(CapturedWork work, cudaStream_t stream) : RepeatedCalls({}), work_(std::move(work)), stream_(stream) {}
        void run() override { work_.launch(stream_); }

    private:
        CapturedWork work_;
        cudaStream_t stream_;
    };
    CapturedWork work;
    CapturedWork::begin(device_->stream());
    captures_ = true;
    calls();
    captures_ = false;
    work.end(device_->stream());
    marks_kept_ = marks_used_;
    return std::make_unique<Launched>(std::move(work), device_->stream());
}

}  // namespace cuda

std::vector<std::string> cuda_addresses(const Setup& setup, int devices) {
    cuda::JobGpus job;
    std::vector<std::string> addresses;
    for (const cuda::Seat& seat : cuda::seats_of(setup, devices, job))
        addresses.push_back(cuda::address_of(seat.gpu));
    return addresses;
}

OpenDevice open_cuda_kernels(const Setup& setup, int devices) {
    return [setup, devices, job = std::make_shared<cuda::JobGpus>()](int device) -> std::shared_ptr<const Kernels> {
        const cuda::Seat seat = cuda::seats_of(setup, devices, *job)[static_cast<std::size_t>(device)];
        return std::make_shared<cuda::CudaKernels>(seat, setup.training.precision, setup.run.deterministic, job);
    };
}

}  // namespace pw
