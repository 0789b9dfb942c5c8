// Plans of transformers as the arguments of training programs, for tests.
#pragma once

#include "job/job.h"
#include "report/training_arguments.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/error.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

inline Job job_of_plan(const std::string& model, const std::string& parallel, const std::string& pipeline,
                       const std::vector<std::string>& set = {}) {
    Notices notices;
    return make_job(load("{workload: {model: " + model +
                             ", sequence_length: 8192}, cluster: {hosts: 8, devices_per_host: 8, device: h100-sxm-80, "
                             "between: {link: ndr400, adapters: 8}}, parallel: {" +
                             parallel + "}, pipeline: {" + pipeline +
                             "}, training: {precision: bf16, optimizer: adamw, learning_rate: 3e-4, betas: [0.9, "
                             "0.95], epsilon: 1e-8, "
                             "weight_decay: 0.1, clip_norm: 1}}",
                         set),
                    notices);
}

inline std::string text_for(const std::string& program, const std::string& model, const std::string& parallel,
                            const std::string& pipeline, const std::vector<std::string>& set = {}) {
    return training_arguments(program, job_of_plan(model, parallel, pipeline, set)).text;
}

inline bool has_line(const std::string& text, const std::string& line) {
    return contains("\n" + text, "\n" + line + "\n");
}

inline std::string refusal_of(const std::string& program, const std::string& model, const std::string& parallel,
                              const std::string& pipeline, const std::vector<std::string>& set = {}) {
    const Job job = job_of_plan(model, parallel, pipeline, set);
    return refusal([&] { training_arguments(program, job); });
}

// Returns the message of a refusal; empty where the arguments are written.
inline std::string said_of(std::string_view program, const Job& job) {
    try {
        training_arguments(program, job);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace pw
