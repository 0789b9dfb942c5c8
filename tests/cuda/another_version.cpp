// A module of the cuda backend of an older pipewright.
#include "exec/cuda/module.h"

extern "C" const pw::CudaModuleEntry* pipewright_cuda_module() {
    static constexpr pw::CudaModuleEntry kEntry = {"0.0.1-0123456789ab", nullptr};
    return &kEntry;
}
