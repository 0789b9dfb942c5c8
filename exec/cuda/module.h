// The cuda backend is a module, libpipewright_cuda.so, which the program loads when a command asks for the backend.
// Only the module links NVIDIA's libraries. It calls the program's functions, which the program exports
// (PIPEWRIGHT_EXPORTS in CMakeLists.txt).
#pragma once

#include "exec/cuda/backend.h"

#include <string>

namespace pw {

// What the module's one C function, pipewright_cuda_module(), returns.
struct CudaModuleEntry {
    const char* version;  // stays first: it is read of modules of all versions, the rest only of equal ones
    const BackendFunctions* functions;
};

struct CudaModule {
    const BackendFunctions* functions = nullptr;  // null where the module could not be loaded
    bool installed = true;
    std::string status = {}, help = {};  // why it could not be loaded, and what to do
};

// Loads the module at the first call: the file that PIPEWRIGHT_CUDA_MODULE names, else where the loader looks for the
// program's libraries, ../lib/pipewright first. Tests that link the backend have another definition (linked.cpp).
const CudaModule& cuda_module();

}  // namespace pw
