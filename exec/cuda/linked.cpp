// In place of module.cpp in programs that the backend is linked into: its tests and measurements.
#include "exec/cuda/module.h"

namespace pw {

const CudaModule& cuda_module() {
    static const CudaModule module = {&kCudaFunctions};
    return module;
}

}  // namespace pw
