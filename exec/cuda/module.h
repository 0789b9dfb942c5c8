// The cuda backend is a module, libpipewright_cuda.so, which the program loads when a command needs the backend.
// Only the module links NVIDIA's libraries. It calls functions that the program exports (PIPEWRIGHT_EXPORTS in
// CMakeLists.txt).
#pragma once

#include "exec/cuda/backend.h"

#include <string>

namespace pw {

// The result of the module's only C function, pipewright_cuda_module().
struct CudaModuleEntry {
    const char*
        version;  // must stay first: it is read from modules of any version, the rest only if versions are equal
    const BackendFunctions* functions;
};

struct CudaModule {
    const BackendFunctions* functions = nullptr;  // null if the module could not be loaded
    bool installed = true;
    std::string status = {}, help = {};  // the reason why it could not be loaded, and the remedy
};

// Loads the module at the first call: the file that PIPEWRIGHT_CUDA_MODULE names, otherwise the one that the loader
// finds among the program's libraries, ../lib/pipewright first. Tests that link the backend have another definition
// (linked.cpp).
const CudaModule& cuda_module();

}  // namespace pw
