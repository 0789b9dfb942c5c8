// Replaces module.cpp in programs that link the backend: its tests and measurements.
#include "exec/cuda/module.h"

namespace pw {

const CudaModule& cuda_module() {
    static const CudaModule module = {&kCudaFunctions};
    return module;
}

}  // namespace pw
