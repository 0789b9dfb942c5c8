#include "exec/cuda/layers/algorithms.h"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace pw::cuda {

namespace {

struct Choices {
    using Key = std::tuple<bool, Precision, ConvolutionShape>;  // timed or not
    std::mutex mutex;
    std::map<Key, ConvolutionWay> ways;
    int impossible = 0;
};

Choices& choices() {
    static Choices all;
    return all;
}

}  // namespace

cudnnMathType_t math_type(ConvolutionMath math) {
    return math == ConvolutionMath::Fma       ? CUDNN_FMA_MATH
           : math == ConvolutionMath::Default ? CUDNN_DEFAULT_MATH
                                              : CUDNN_TENSOR_OP_MATH;
}

std::vector<ConvolutionMath> maths_of(Precision precision) {
    switch (precision) {
        case Precision::Fp32:
            return {ConvolutionMath::Fma};
        case Precision::Tf32:
            return {ConvolutionMath::Default};
        case Precision::Bf16:
            break;
    }
    return {ConvolutionMath::Default, ConvolutionMath::TensorOp};
}

ConvolutionWay way_of(const WayRequest& request, const std::function<bool(const ConvolutionWay&)>& is_possible,
                      const std::function<ConvolutionWay()>& choose) {
    Choices& all = choices();
    const std::lock_guard lock(all.mutex);
    const Choices::Key key{request.timed, request.precision, request.shape};
    if (const auto found = all.ways.find(key); found != all.ways.end()) {
        if (is_possible(found->second))
            return found->second;
        ++all.impossible;
    }
    const ConvolutionWay way = choose();
    all.ways.insert_or_assign(key, way);
    return way;
}

void take_ways(const std::vector<ConvolutionChoice>& given, Precision precision) {
    Choices& all = choices();
    const std::lock_guard lock(all.mutex);
    for (const auto& [shape, way] : given)
        all.ways.insert_or_assign({true, precision, shape}, way);
}

std::vector<ConvolutionChoice> timed_ways(Precision precision) {
    Choices& all = choices();
    const std::lock_guard lock(all.mutex);
    std::vector<ConvolutionChoice> timed;
    for (const auto& [key, way] : all.ways)
        if (std::get<bool>(key) && std::get<Precision>(key) == precision)
            timed.push_back({std::get<ConvolutionShape>(key), way});
    return timed;
}

int count_impossible_ways() {
    Choices& all = choices();
    const std::lock_guard lock(all.mutex);
    return std::exchange(all.impossible, 0);
}

void forget_ways() {
    Choices& all = choices();
    const std::lock_guard lock(all.mutex);
    all.ways.clear();
    all.impossible = 0;
}

}  // namespace pw::cuda
