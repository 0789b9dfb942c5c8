// An add whose inputs are outputs of batch norms that are never written.
#include "exec/cuda/layers/adding.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/norm_rows.h"
#include "exec/cuda/layers/packs.h"

namespace pw::cuda {

namespace {

template <class T>
using Eight = Pack<T, 8>;

// A summand of an add: a tensor, or the output of a norm, rounded as if it had been written.
template <class T>
struct Addend {
    Pack<float, 8> mean, scale, shift;
    bool is_normal;

    __device__ Addend(const Eight<float>* state, unsigned packs, unsigned pack) : is_normal(state != nullptr) {
        if (is_normal) {
            mean = state[kMean * packs + pack];
            scale = state[kScale * packs + pack];
            shift = state[kShift * packs + pack];
        }
    }
    __device__ Pack<float, 8> of(const Eight<T>& read) const {
        Pack<float, 8> values = reals(read);
        for (int k = 0; is_normal && k < 8; ++k)
            values.values[k] =
                real(rounded<T>(normal(values.values[k], mean.values[k], scale.values[k], shift.values[k])));
        return values;
    }
};

template <class T>
struct Addends {
    Eight<T> left, right;
};

// A state is null if the input is not the output of a norm. The mask has a byte per pack.
template <class T>
__global__ void add_normalised_rows(const Eight<T>* __restrict__ left, const Eight<float>* __restrict__ left_state,
                                    const Eight<T>* __restrict__ right, const Eight<float>* __restrict__ right_state,
                                    Eight<T>* __restrict__ y, unsigned char* __restrict__ mask, bool relu, Rows rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Addend<T> first(left_state, rows.packs, pack), second(right_state, rows.packs, pack);
    for_places<4>(
        share, rows.shares, rows.rows,
        [&](unsigned row) {
            const unsigned place = row * rows.packs + pack;
            return Addends<T>{left[place], right[place]};
        },
        [&](unsigned row, const Addends<T>& read) {
            const unsigned place = row * rows.packs + pack;
            const unsigned char passed = put_sum(first.of(read.left), second.of(read.right), relu, y[place]);
            if (mask)
                mask[place] = passed;
        });
}

}  // namespace

template <class T>
void add_normalised(cudaStream_t stream, const LayerArgs& args, std::int64_t channels, std::int64_t rows, bool relu,
                    unsigned char* mask) {
    const Rows writing = writing_rows(channels / 8, rows);
    const auto eights = [](auto* data) { return packs<T, 8>(data); };
    const auto states = [](const std::byte* data) { return packs<float, 8>(data); };
    launch(stream, std::int64_t{writing.packs} * writing.shares, add_normalised_rows<T>, eights(args.inputs[0]),
           states(args.norms[0]), eights(args.inputs[1]), states(args.norms[1]), eights(args.output), mask, relu,
           writing);
}
template void add_normalised<float>(cudaStream_t, const LayerArgs&, std::int64_t, std::int64_t, bool, unsigned char*);
template void add_normalised<Bf16>(cudaStream_t, const LayerArgs&, std::int64_t, std::int64_t, bool, unsigned char*);

}  // namespace pw::cuda
