// The module's side of module.h.
#include "exec/cuda/module.h"
#include "exec/cuda/module_version.h"

extern "C" const pw::CudaModuleEntry* pipewright_cuda_module() {
    static constexpr pw::CudaModuleEntry kEntry = {pw::kModuleVersion, &pw::kCudaFunctions};
    return &kEntry;
}
