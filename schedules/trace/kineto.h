// Which events of torch.profiler's files are tasks of a pipeline.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pw {

bool is_kineto_task(const nlohmann::json& event);

}  // namespace pw
