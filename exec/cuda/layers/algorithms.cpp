#include "exec/cuda/layers/algorithms.h"

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math) {
    return math == ConvolutionMath::Fma       ? CUDNN_FMA_MATH
           : math == ConvolutionMath::Default ? CUDNN_DEFAULT_MATH
                                              : CUDNN_TENSOR_OP_MATH;
}

std::vector<ConvolutionMath> maths_of(Precision precision) {
    if (precision == Precision::Fp32)
        return {ConvolutionMath::Fma};
    if (precision == Precision::Tf32)
        return {ConvolutionMath::Default};
    return {ConvolutionMath::TensorOp, ConvolutionMath::Default};
}

}  // namespace pw::cuda
