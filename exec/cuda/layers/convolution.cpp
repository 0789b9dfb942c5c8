// Convolutions by cuDNN: NHWC tensors, KRSC filters.
#include "exec/cuda/device/events.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/layers/convolution_plans.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw::cuda {

namespace {

constexpr Bytes kMostWorkspace = Bytes{256} << 20;
constexpr int kMostTimed = 10;  // plans of a pass

// The passes of a convolution, each by a plan that is chosen once.
class ConvolutionCalls {
public:
    struct Sizes {
        Bytes input, output, weights;
    };
    using Tensors = ConvolutionPlan::Tensors;

    ConvolutionCalls(GpuShare& device, const Layer& layer, Dims read, int samples, const Sizes& sizes,
                     bool with_input_gradient)
        : device_(device), layer_(layer), read_(read), samples_(samples), sizes_(sizes) {
        for (const auto& [name, pass] : kChoices<ConvolutionPass>)
            if (pass != ConvolutionPass::BackwardInput || with_input_gradient)
                plan_of(pass) = choose(pass);
        trial_.reset();
    }

    Bytes workspace() const {
        Bytes most = 0;
        for (const std::optional<ConvolutionPlan>& plan : plans_)
            most = std::max(most, plan ? plan->workspace() : 0);
        return most;
    }

    void run(ConvolutionPass pass, const Tensors& tensors, void* workspace) const {
        const cudnnStatus_t status = plan_of(pass)->run(device_.cudnn(), tensors, workspace);
        if (status != CUDNN_STATUS_SUCCESS)
            check(status, fmt::format("layer '{}': {}", layer_.name, name_of(pass)).c_str());
    }

private:
    std::optional<ConvolutionPlan>& plan_of(ConvolutionPass pass) { return plans_[static_cast<std::size_t>(pass)]; }
    const std::optional<ConvolutionPlan>& plan_of(ConvolutionPass pass) const {
        return plans_[static_cast<std::size_t>(pass)];
    }

    // The memory in which plans are timed or tried.
    struct Trial {
        DeviceMemory x, y, w, workspace;
    };
    struct Chosen {
        int proposal;
        ConvolutionPlan plan;  // has run
    };

    ConvolutionShape shape_of(ConvolutionPass pass) const {
        return {.pass = pass,
                .samples = samples_,
                .channels = read_.channels,
                .height = read_.height,
                .width = read_.width,
                .outputs = layer_.output.channels,
                .kernel = layer_.kernel,
                .stride = layer_.stride,
                .padding = layer_.padding,
                .multiprocessors = device_.multiprocessors()};
    }

    // Returns whether the plan can be launched. On a share of a GPU cuDNN proposes engines that cannot ("cluster
    // misconfiguration", in bf16 with cuDNN 9.19 on an H100), and only a launch shows it.
    bool runs(const ConvolutionPlan& plan) {
        try {
            if (!trial_)
                trial_ = std::make_unique<Trial>(Trial{allocate(sizes_.input), allocate(sizes_.output),
                                                       allocate(sizes_.weights), allocate(kMostWorkspace)});
        } catch (const Error&) {
            if (!device_.deterministic())
                throw;
            return true;  // without memory for the trial: the reservation of the device's block says so
        }
        status_ =
            plan.run(device_.cudnn(), {trial_->x.get(), trial_->w.get(), trial_->y.get()}, trial_->workspace.get());
        if (status_ != CUDNN_STATUS_SUCCESS)
            (void)cudaGetLastError();
        return status_ == CUDNN_STATUS_SUCCESS;
    }

    // Returns the least time of a call of a plan that runs.
    Ns time_of(const ConvolutionPlan& plan) {
        constexpr int kRounds = 3, kCalls = 4;
        Ns least = std::numeric_limits<Ns>::max();
        for (int round = 0; round < kRounds; ++round) {
            const Event from(Event::Kind::Timed), to(Event::Kind::Timed);
            from.record(device_.stream());
            for (int call = 0; call < kCalls; ++call)
                (void)runs(plan);
            to.record(device_.stream());
            check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
            least = std::min(least, elapsed(from.get(), to.get()) / kCalls);
        }
        return least;
    }

    // The first plan that runs on the smallest share, even if the device has more: shares of all sizes and whole GPUs
    // take the same one, for equal bits.
    std::optional<Chosen> first(const ConvolutionProposals& proposals) {
        for (int k = 0; k < proposals.count(); ++k)
            if (auto plan = proposals.plan(k, true, kMostWorkspace);
                plan && device_.on_smallest_share([&] { return runs(*plan); }) && runs(*plan))
                return Chosen{k, std::move(*plan)};
        return {};
    }

    std::optional<Chosen> fastest(const ConvolutionProposals& proposals) {
        std::optional<Chosen> best;
        Ns best_time = 0;
        for (int k = 0, timed = 0; k < proposals.count() && timed < kMostTimed; ++k)
            if (auto plan = proposals.plan(k, false, kMostWorkspace); plan && runs(*plan)) {
                ++timed;
                if (const Ns time = time_of(*plan); !best || time < best_time) {
                    best.emplace(Chosen{k, std::move(*plan)});
                    best_time = time;
                }
            }
        return best;
    }

    std::optional<ConvolutionPlan> choose(ConvolutionPass pass) {
        const ConvolutionProposals proposals(device_.cudnn(), shape_of(pass), device_.precision());
        const bool timed = !device_.deterministic();
        status_ = CUDNN_STATUS_NOT_SUPPORTED;
        std::optional<ConvolutionPlan> plan;
        const auto is_possible = [&](int proposal) {
            plan = proposals.plan(proposal, !timed, kMostWorkspace);
            return plan && runs(*plan);
        };
        (void)device_.job().convolutions.plan_of({shape_of(pass), device_.precision(), timed}, is_possible, [&] {
            std::optional<Chosen> chosen = timed ? fastest(proposals) : first(proposals);
            if (!chosen)
                fail_with(ExitCode::RunFailed, "layer '{}': cuDNN has no plan for its {} pass: {}", layer_.name,
                          name_of(pass), cudnnGetErrorString(status_));
            plan = std::move(chosen->plan);
            return chosen->proposal;
        });
        return plan;
    }

    GpuShare& device_;
    const Layer& layer_;
    const Dims read_;
    const int samples_;
    const Sizes sizes_;
    cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;  // of the last plan that was tried
    std::unique_ptr<Trial> trial_;                 // not null only while plans are chosen
    std::array<std::optional<ConvolutionPlan>, 3> plans_;
};

template <class T>
class Convolution : public CudaLayer {
public:
    Convolution(GpuShare& device, const Layer& layer, int samples, bool reads_data)
        : CudaLayer(device, layer, samples),
          read_{reads_data ? padded_channels(layer.input.channels) : layer.input.channels, layer.input.height,
                layer.input.width},
          count_(std::int64_t{layer.output.channels} * read_.channels * layer.kernel * layer.kernel) {
        bytes_.weights = block_bytes(count_, device.precision());
        values_ = block_values(bytes_.weights, device.precision());
        calls_ = std::make_unique<ConvolutionCalls>(
            device, layer_, read_, samples,
            ConvolutionCalls::Sizes{tensor_bytes(samples * read_.elements(), device.precision()), bytes_.output,
                                    bytes_.weights},
            !reads_data);
        made_at_ = aligned(calls_->workspace());
        bytes_.scratch = made_at_ + (kIsBf16 ? 0 : bytes_.weights);
    }

    void forward(const LayerArgs& args, bool) override {
        calls_->run(ConvolutionPass::Forward, {args.inputs[0], read_by_products<T>(args.weights, values_), args.output},
                    args.scratch);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            calls_->run(ConvolutionPass::BackwardInput,
                        {args.input_gradients[0], read_by_products<T>(args.weights, values_), args.output_gradient},
                        args.scratch);
    }

    // cuDNN overwrites what it makes. In fp32 the first gradient is made in its place.
    void backward_weight(const LayerArgs& args) override {
        float* gradient = floats(args.weight_gradient);
        T* made = nullptr;
        if constexpr (kIsBf16)
            made = shadow(args.weight_gradient, values_);
        else
            made = args.accumulate ? floats(args.scratch + made_at_) : gradient;
        calls_->run(ConvolutionPass::BackwardWeight, {args.inputs[0], made, args.output_gradient}, args.scratch);
        if (kIsBf16 || args.accumulate)
            add_weight_gradient(device_.stream(), made, gradient, count_, values_, args.accumulate);
        else if (values_ > count_)
            check(cudaMemsetAsync(gradient + count_, 0, static_cast<std::size_t>(values_ - count_) * sizeof(float),
                                  device_.stream()),
                  "cudaMemsetAsync");
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> filter(static_cast<std::size_t>(count_));
        for_weights([&](std::size_t plain, std::size_t place) { filter[place] = values[0][plain]; });
        load_block(filter, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> filter = store_block(weights, count_);
        std::vector<float> plain(filter.size() / static_cast<std::size_t>(read_.channels) *
                                 static_cast<std::size_t>(layer_.input.channels));
        for_weights([&](std::size_t at, std::size_t place) { plain[at] = filter[place]; });
        return {plain};
    }

    std::vector<float> read_input(const std::byte* tensor, int) const override {
        return with_channels(this->read(read_, tensor), read_.channels, layer_.input.channels);
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int) const override {
        this->fill(read_, with_channels(values, layer_.input.channels, read_.channels), tensor);
    }

private:
    static constexpr bool kIsBf16 = std::is_same_v<T, Bf16>;

    // Returns plain images with another number of channels: with fewer ones, or with channels of zeros after their
    // own.
    std::vector<float> with_channels(const std::vector<float>& values, int had, int channels) const {
        const std::int64_t pixels = std::int64_t{read_.height} * read_.width;
        std::vector<float> changed;
        for (auto image = values.begin(); image != values.end(); image += had * pixels) {
            changed.insert(changed.end(), image, image + std::min(had, channels) * pixels);
            changed.resize(changed.size() + static_cast<std::size_t>(std::max(channels - had, 0) * pixels));
        }
        return changed;
    }

    // Calls visit(offset in OIHW, offset in KRSC) for every weight, except weights of padding channels.
    template <class Visit>
    void for_weights(Visit visit) const {
        const std::int64_t channels = layer_.input.channels, taps = std::int64_t{layer_.kernel} * layer_.kernel;
        std::size_t plain = 0;
        for (std::int64_t o = 0; o < layer_.output.channels; ++o)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t tap = 0; tap < taps; ++tap)
                    visit(plain++, static_cast<std::size_t>((o * taps + tap) * read_.channels + c));
    }

    const Dims read_;                  // the padded input
    std::int64_t count_, values_ = 0;  // number of weights, padding included, and number of values in their block
    Bytes made_at_ = 0;                // in the scratch: gradients of weights, until they are added
    std::unique_ptr<const ConvolutionCalls> calls_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_convolution(GpuShare& device, const Layer& layer, int samples, bool reads_data) {
    return std::make_unique<Convolution<T>>(device, layer, samples, reads_data);
}
template std::unique_ptr<LayerKernel> make_convolution<float>(GpuShare&, const Layer&, int, bool);
template std::unique_ptr<LayerKernel> make_convolution<Bf16>(GpuShare&, const Layer&, int, bool);

}  // namespace pw::cuda
