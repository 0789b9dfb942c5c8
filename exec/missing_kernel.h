// The error of a backend for a layer that it cannot compute, thrown when its kernels are made, before the first
// step.
#pragma once

#include "workloads/error.h"
#include "workloads/models/layer_graph.h"

#include <string_view>

namespace pw {

[[noreturn]] inline void fail_without_kernel(std::string_view backend, const Layer& layer) {
    fail(
        "backend {} has no kernel for '{}', which layer '{}' needs\n  help: `pipewright list backends` names the "
        "others",
        backend, name_of(layer.kind), layer.name);
}

}  // namespace pw
