// The common parts of gpu_probe: lines of checks, and a share of the GPU, made call by call.
#pragma once

#include "bench/gpu/measuring.h"

#include <array>
#include <functional>
#include <string>

namespace pw {

// Prints the line of one check, which throws its failure and returns its findings.
void probe(const std::string& name, const std::function<std::string()>& check_it);
int failed_probes();  // of this process
inline int verdict() { return failed_probes() == 0 ? kShown : kNotShown; }

inline constexpr Ns kPatience = 4'000'000'000;  // for the work on a stream

// A green context and two streams on it. Nothing is given back: the process ends with its part.
struct Share {
    CUgreenCtx context = nullptr;
    unsigned multiprocessors = 0;
    unsigned groups = 0;  // in which the GPU can be divided
    std::array<cudaStream_t, 2> streams{};
};
// Makes one of two groups of eight multiprocessors, unless the driver makes larger groups. `flags` are the split's
// (CUdevSmResourceSplit_flags).
Share make_share(unsigned groups = 2, unsigned flags = 0);
// From here on this thread's library handles are made inside the share.
void enter(const Share& share);

cudnnHandle_t cudnn_on(cudaStream_t stream);

// probe_convolutions.cpp
int check_convolutions(Arguments& arguments);
int check_clusters(Arguments& arguments);

}  // namespace pw
