// All readers of files, with inputs from libFuzzer: READER=csv build/asan/bin/fuzz FOLDER_OF_INPUTS
#include "tests/fuzz/fuzz.h"

#include "exec/checkpoint/safetensors.h"
#include "exec/training/npy.h"
#include "job/config/blocks.h"
#include "job/config/rank_table.h"
#include "job/load.h"
#include "report/accuracy.h"
#include "schedules/csv/csv.h"
#include "schedules/import/any_trace.h"
#include "schedules/import/task_patterns.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "schedules/trace/trace.h"
#include "schedules/trace/trace_json.h"
#include "schedules/trace/trace_plan.h"
#include "search/piper/piper_instance.h"
#include "search/placement/placement_instance.h"
#include "sim/metrics.h"
#include "sim/replay.h"
#include "tests/support/temporary_folder.h"
#include "workloads/costs/products.h"
#include "workloads/costs/profiled_layers.h"
#include "workloads/error.h"
#include "workloads/models/transformer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

namespace pw {
namespace {

const TemporaryFolder& folder() {
    static const TemporaryFolder folder;
    return folder;
}

// Writes a file for readers that take a path.
std::string file(const char* name, const std::string& bytes) { return folder().write(name, bytes); }

void read_quantities(const std::string& text) {
    if (const auto time = parse_time(text); time && parse_time(exact_time(*time)) != time)
        std::abort();
    if (const auto bytes = parse_bytes(text); bytes && parse_bytes(exact_bytes(*bytes)) != bytes)
        std::abort();
    if (const auto rate = parse_bandwidth(text); rate && parse_bandwidth(exact_bandwidth(*rate)) != rate)
        std::abort();
    parse_flops(text);
}

void read_plan(const std::string& text) {
    const CsvPlan read = parse_csv(text, "plan.csv", {});
    prove(read, {});
}

void read_whole_trace(const std::string& bytes) {
    const std::string path = file("trace.json", bytes);
    const Trace trace = read_trace(path);
    check_trace(trace, path);
    const Metrics metrics = metrics_of(trace);
    if (metrics.makespan < 0 || metrics.step_time < 0 || metrics.ideal > metrics.makespan)
        std::abort();
}

void replay_any_trace(const char* name, const std::string& bytes) {
    const std::string path = file(name, bytes);
    std::vector<std::string> notes;
    const Trace read = read_any_trace({path}, notes);
    check_trace(read, path);
    const Trace trace = with_updates(read);
    const Plan plan = plan_of(trace);
    const TransferMode mode{.sent_copies = false};
    const Mechanics mechanics = mechanics_of(plan, check(plan, mode), mode, trace);
    if (mechanics.begin > 0 || error_parts(plan, check(plan, mode), mode, trace, nullptr, trace).predicted < 0)
        std::abort();
}

// The first line is a pattern, the rest a name.
void match_pattern(const std::string& bytes) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string name = bytes.substr(std::min(end + 1, bytes.size()));
    const NamedTask task = TaskNames({bytes.substr(0, end)}).task_in(name);
    if (task.microbatch && (*task.microbatch < 0 || *task.microbatch > kMostNumber))
        std::abort();
}

void read_digits(const std::string& bytes) {
    for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
        file(name, bytes);
    Dataset::mnist(folder().path().string(), {1, 28, 28}, 1);
}

// Tensors that are written and read again do not change.
void read_tensor_file(const std::string& bytes) {
    const TensorFile read = read_tensors(file("tensors.safetensors", bytes));
    const std::string again = (folder().path() / "again.safetensors").string();
    if (write_tensors(again, read.tensors, read.metadata) != digest_of(again))
        std::abort();
    const TensorFile same = read_tensors(again);
    if (same.metadata != read.metadata || hash_of(same.tensors) != hash_of(read.tensors))
        std::abort();
}

void read_transformer_file(const std::string& bytes) {
    const std::string path = file("config.json", bytes);
    is_transformer_config(path);
    const TransformerParameters parameters = parameters_of(read_transformer_config(path));
    if (parameters.active <= 0 || parameters.active > parameters.total)
        std::abort();
}

struct Target {
    std::string_view name;
    std::function<void(const std::string& bytes)> read;
};

const Target kTargets[] = {
    {"config", [](const std::string& bytes) { load_config(file("config.yaml", bytes), {}); }},
    {"units", read_quantities},
    {"csv", read_plan},
    {"trace", read_whole_trace},
    {"foreign", [](const std::string& bytes) { replay_any_trace("foreign.json", bytes); }},
    {"kineto", [](const std::string& bytes) { replay_any_trace("rank.json", bytes); }},
    {"primus", [](const std::string& bytes) { replay_any_trace("pp_rank_0.json", bytes); }},
    {"varuna", [](const std::string& bytes) { replay_any_trace("stage0of1", bytes); }},
    {"nsight", [](const std::string& bytes) { replay_any_trace("ranges.csv", bytes); }},
    {"nsight_sqlite", [](const std::string& bytes) { replay_any_trace("x.sqlite", bytes); }},
    {"chakra", [](const std::string& bytes) { replay_any_trace("rank.json", bytes); }},
    {"chakra_binary", [](const std::string& bytes) { replay_any_trace("rank.0.et", bytes); }},
    {"paddle", [](const std::string& bytes) { replay_any_trace("workerlog.0", bytes); }},
    {"patterns", match_pattern},
    {"megatron", [](const std::string& bytes) { replay_any_trace("train.log", bytes); }},
    {"profile", [](const std::string& bytes) { read_profile(file("profile.yaml", bytes)); }},
    {"products", [](const std::string& bytes) { read_products(file("products.yaml", bytes)); }},
    {"layers", [](const std::string& bytes) { read_layer_yaml(std::make_shared<Source>("l.yaml", bytes), 4); }},
    {"layer_csv", [](const std::string& bytes) { read_layer_csv(std::make_shared<Source>("l.csv", bytes), 4); }},
    {"metis", [](const std::string& bytes) { read_metis_json(std::make_shared<Source>("m_bs2.json", bytes), 4); }},
    {"galvatron",
     [](const std::string& bytes) {
         read_galvatron_json(std::make_shared<Source>(file("computation_bf16.json", bytes), bytes),
                             {.blocks = 2, .memory_profile = file("memory_bf16.json", bytes)});
     }},
    {"graph", [](const std::string& bytes) { read_graph_txt(std::make_shared<Source>("g.graph.txt", bytes), 4); }},
    {"max_load", [](const std::string& bytes) { parse_placement_instance(bytes, "instance.json"); }},
    {"piper", [](const std::string& bytes) { parse_piper_instance(bytes, "instance.json"); }},
    {"transformer", read_transformer_file},
    {"ranks", [](const std::string& bytes) { read_rank_table(file("ranks.json", bytes)); }},
    {"lengths", [](const std::string& bytes) { read_lengths_file(file("lengths.csv", bytes)); }},
    {"npy", [](const std::string& bytes) { read_npy(file("array.npy", bytes)); }},
    {"idx", read_digits},
    {"tensors", read_tensor_file},
    {"results",
     [](const std::string& bytes) {
         file("results.json", bytes);
         to_text(read_accuracy(folder().path().string()));
     }},
    {"simulate", fuzz_simulate},
};

const Target* chosen() {
    const char* name = std::getenv("READER");
    for (const Target& target : kTargets)
        if (name != nullptr && target.name == name)
            return &target;
    std::fprintf(stderr, "set READER to one of:");
    for (const Target& target : kTargets)
        std::fprintf(stderr, " %s", std::string(target.name).c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
}

}  // namespace
}  // namespace pw

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const pw::Target* target = pw::chosen();
    try {
        target->read(std::string(reinterpret_cast<const char*>(data), size));
    } catch (const pw::Error& error) {
        if (error.code() != pw::ExitCode::BadInput && error.code() != pw::ExitCode::Infeasible)
            std::abort();
    }
    return 0;
}
