// How torch.profiler's files say which event is a task of a pipeline.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pw {

bool is_kineto_task(const nlohmann::json& event);

}  // namespace pw
