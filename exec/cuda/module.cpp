#include "exec/cuda/module.h"
#include "exec/cuda/module_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include <dlfcn.h>

namespace pw {

namespace {

constexpr const char* kFile = "libpipewright_cuda.so";

struct VendorLibrary {
    std::string_view name, product, package;  // package: in the Python package index
};
constexpr VendorLibrary kVendorLibraries[] = {
    {"libcublas", "cuBLAS 13", "nvidia-cublas"},
    {"libcudnn", "cuDNN 9", "nvidia-cudnn-cu13"},
    {"libnccl", "NCCL 2", "nvidia-nccl-cu13"},
};

std::string how_to_get(std::string_view library) {
    const auto* const row = std::find_if(std::begin(kVendorLibraries), std::end(kVendorLibraries),
                                         [&](const VendorLibrary& each) { return library.starts_with(each.name); });
    if (row == std::end(kVendorLibraries))
        return fmt::format("install {}, or add its folder to LD_LIBRARY_PATH (docs/gpu.md)", library);
    return fmt::format("install {} (pip install {}) and add the folder of {} to LD_LIBRARY_PATH (docs/gpu.md)",
                       row->product, row->package, library);
}

CudaModule of_another_build(const std::string& path, const std::string& fact) {
    return {nullptr, true, fmt::format("{} is of another build of pipewright: {}", path, fact),
            "install the program and the module of one build"};
}

// `fact` is the loader's message: "libcudnn.so.9: cannot open shared object file: No such file or directory".
CudaModule not_loaded(const std::string& path, const std::string& fact) {
    if (const std::size_t end = fact.find(": cannot open shared object file"); end != std::string::npos) {
        const std::string library = fact.substr(0, end);
        if (library != path)
            return {nullptr, true, fmt::format("{} is missing", library), how_to_get(library)};
        return {nullptr, false, "not installed",
                path == kFile ? fmt::format("build its module {}: cmake --preset cuda (docs/gpu.md)", path)
                              : fmt::format("PIPEWRIGHT_CUDA_MODULE names {}, which does not exist", path)};
    }
    if (const std::size_t symbol = fact.find("undefined symbol: _Z"); symbol != std::string::npos)
        return of_another_build(path, fact.substr(symbol));
    return {nullptr, true, fact, "see docs/gpu.md for the versions of NVIDIA's libraries"};
}

CudaModule load() {
    const char* const named = std::getenv("PIPEWRIGHT_CUDA_MODULE");
    const std::string path = named != nullptr ? named : kFile;
    void* const module =
        dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded: it has threads and static objects
    if (module == nullptr)
        return not_loaded(path, dlerror());
    using Entry = const CudaModuleEntry* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(module, "pipewright_cuda_module"));
    if (entry == nullptr)
        return of_another_build(path, "it has no function pipewright_cuda_module");
    if (entry()->version != std::string_view(kModuleVersion))
        return of_another_build(path,
                                fmt::format("its version is {}, the program's {}", entry()->version, kModuleVersion));
    return {entry()->functions};
}

}  // namespace

const CudaModule& cuda_module() {
    static const CudaModule module = load();
    return module;
}

}  // namespace pw
