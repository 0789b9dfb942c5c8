// Rotary positions (arXiv 2104.09864) with the pairs of Hugging Face's rotate_half.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"
#include "exec/training/rotary_angle.h"

#include <cmath>

namespace pw::cuda {

namespace {

struct Turns {
    unsigned length, heads, pairs;  // pairs of a head: half its width
    double base;
};

template <class T>
struct PairOfValues {
    T first, second;
};

// A thread takes a position and a pair, in all samples and heads, so that it computes the angle once: in double, its
// sine and cosine rounded to fp32. `direction` is 1, or -1 to turn back.
template <class T>
__global__ void turn(const T* __restrict__ x, T* __restrict__ y, Turns turns, float direction, unsigned samples,
                     unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned position = thread / turns.pairs, pair = thread - position * turns.pairs;
    const double angle = rotary_angle(turns.base, turns.pairs, position, pair);
    const auto cosine = static_cast<float>(cos(angle)), sine = direction * static_cast<float>(sin(angle));
    const auto place_of = [&](unsigned each) {
        const unsigned sample = each / turns.heads, head = each - sample * turns.heads;
        return ((sample * turns.length + position) * turns.heads + head) * 2 * turns.pairs + pair;
    };
    for_places<4>(
        0, 1, samples * turns.heads,
        [&](unsigned each) {
            const unsigned place = place_of(each);
            return PairOfValues<T>{x[place], x[place + turns.pairs]};
        },
        [&](unsigned each, const PairOfValues<T>& read) {
            const unsigned place = place_of(each);
            const float first = real(read.first), second = real(read.second);
            y[place] = rounded<T>(first * cosine - second * sine);
            y[place + turns.pairs] = rounded<T>(second * cosine + first * sine);
        });
}

template <class T>
class Rotary : public CudaLayer {
public:
    Rotary(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          turns_{static_cast<unsigned>(layer.input.height), static_cast<unsigned>(layer.heads),
                 static_cast<unsigned>(layer.input.width / layer.heads / 2), layer.rotary_base} {
        check_items(samples * layer.input.elements());
    }

    void forward(const LayerArgs& args, bool) override { turn_all(args.inputs[0], args.output, 1); }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            turn_all(args.output_gradient, args.input_gradients[0], -1);
    }

private:
    void turn_all(const std::byte* from, std::byte* to, float direction) const {
        const unsigned items = turns_.length * turns_.pairs;
        launch(device_.stream(), items, turn<T>, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), turns_,
               direction, samples_, items);
    }

    Turns turns_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_rotary(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Rotary<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_rotary<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_rotary<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
