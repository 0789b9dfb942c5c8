// Writes a trace as Chrome/Perfetto JSON. Events go straight to the file: a run of some hours has millions.
#include "schedules/trace/trace_json.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// Threads of a device. Slices of a thread must nest, so overlapping slices go to additional threads.
enum ThreadRow { kCompute, kSend, kReceive, kOptimizer, kOffload, kReload, kRows };
constexpr const char* kThreadNames[] = {"compute", "send", "receive", "optimizer", "offload", "reload"};

int row_of(Op op) {
    if (is_send(op))
        return kSend;
    if (is_recv(op))
        return kReceive;
    if (is_copy(op))
        return leaves_device(op) ? kOffload : kReload;
    return is_compute(op) ? kCompute : kOptimizer;
}

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string micros(Ns time) { return fmt::format("{}.{:03}", time / 1000, time % 1000); }

class Writer {
public:
    Writer(const Trace& trace, const std::string& path) : trace_(trace), file_(path) {}

    void write() {
        number_threads();
        put("{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{},\n\"traceEvents\":[",
            other_data().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
        write_names();
        for (std::size_t i = 0; i < trace_.events.size(); ++i)
            write_slice(trace_.events[i], threads_[i]);
        write_arrows();
        for (const MemorySample& sample : trace_.memory)
            write_counter(sample);
        put("\n]}}\n");
        file_.finish();
    }

private:
    template <class... Args>
    void put(fmt::format_string<Args...> text, Args&&... args) {
        line_.clear();
        fmt::format_to(std::back_inserter(line_), text, std::forward<Args>(args)...);
        file_.write(line_);
    }

    // An event of the array, on a line of its own.
    template <class... Args>
    void put_event(fmt::format_string<Args...> text, Args&&... args) {
        put("{}", first_ ? "\n" : ",\n");
        first_ = false;
        put(text, std::forward<Args>(args)...);
    }

    // Lane 0 of a row has the row's number, further lanes the numbers after the last row.
    void number_threads() {
        const std::vector<int> lanes = lanes_of(trace_, row_of);
        std::set<std::tuple<int, int, int>> used;  // device, row, lane
        for (std::size_t i = 0; i < lanes.size(); ++i)
            used.emplace(trace_.events[i].device, row_of(trace_.events[i].task.op), lanes[i]);
        std::map<int, int> next;
        for (const auto& [device, row, lane] : used)
            tids_[{device, row, lane}] = lane == 0 ? row : kRows + next[device]++;
        for (std::size_t i = 0; i < lanes.size(); ++i)
            threads_.push_back(tids_.at({trace_.events[i].device, row_of(trace_.events[i].task.op), lanes[i]}));
    }

    nlohmann::ordered_json other_data() const {
        nlohmann::ordered_json data = {{"schema_version", Trace::kSchemaVersion},
                                       {"label", trace_.label},
                                       {"plan_hash", trace_.plan_hash},
                                       {"schedule", trace_.schedule},
                                       {"devices", trace_.devices},
                                       {"stages", trace_.stages},
                                       {"micro_batches", trace_.micro_batches},
                                       {"micro_batch_size", trace_.micro_batch_size},
                                       {"asynchronous", trace_.asynchronous},
                                       {"stages_of", trace_.stages_of},
                                       {"config", trace_.config},
                                       {"machine", trace_.machine}};
        for (const Edge& tie : trace_.ties)
            data["ties"].push_back({tie.from, tie.to});
        if (trace_.replicas > 1)
            data["replicas"] = trace_.replicas;
        if (trace_.mini_batch > 0)
            data["mini_batch"] = trace_.mini_batch;
        if (!trace_.hosts.empty())
            data["hosts"] = trace_.hosts;
        if (!trace_.reserved.empty())
            data["reserved_memory_bytes"] = trace_.reserved;
        return data;
    }

    void write_names() {
        for (int device = 0; device < trace_.devices; ++device) {
            put_event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", device,
                      quoted(device_label(trace_, device, " (", ")")));
            put_event(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", device,
                      device);
        }
        for (const auto& [place, tid] : tids_) {
            const auto [device, row, lane] = place;
            const std::string name = lane == 0 ? kThreadNames[row] : fmt::format("{} {}", kThreadNames[row], lane + 1);
            put_event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", device, tid,
                      name);
            put_event(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", device,
                      tid, row * 1000 + std::min(lane, 999));
        }
    }

    // On a device with several stages a name begins with the stage: 1F0.
    std::string stage_in_name(const TraceEvent& event) const {
        const auto device = static_cast<std::size_t>(event.device);
        const bool several = device < trace_.stages_of.size() && trace_.stages_of[device].size() > 1;
        return several ? fmt::format("{}", event.task.stage) : "";
    }

    void write_slice(const TraceEvent& event, int tid) {
        const Task& task = event.task;
        const std::string_view op = letters_of(task.op);
        put_event(R"({{"ph":"X","name":"{}{}{}","cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{)"
                  R"("step":{},"device":{},"rank":{},"op":"{}","stage":{},"microbatch":{},"slice":{},"peer":{},)"
                  R"("start_ns":{},"end_ns":{},"bytes":{},"version":{}{}{}}}}})",
                  stage_in_name(event), op, number_of(task), kThreadNames[row_of(task.op)], event.device, tid,
                  micros(event.start), micros(event.end - event.start), event.step, event.device, event.rank, op,
                  task.stage, task.whole(), task.slice(), task.peer, event.start, event.end, event.bytes, event.version,
                  event.ahead > 0 ? fmt::format(",\"ahead\":{}", event.ahead) : "",
                  task.with_next ? ",\"with_next\":true" : "");
    }

    // An arrow from every SEND to its RECV. A flow event belongs to the slice that contains its time.
    void write_arrows() {
        using Key = std::tuple<int, Op, int, int, int>;  // step, op, stage, peer, micro-batch
        const auto step_of = [&](const TraceEvent& event) { return trace_.asynchronous ? 0 : event.step; };
        std::map<Key, std::size_t> receives;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const auto& [stage, microbatch, peer, slices, op, with_next] = trace_.events[i].task;
            if (is_recv(op))
                receives[{step_of(trace_.events[i]), op, stage, peer, microbatch}] = i;
        }
        int id = 0;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& send = trace_.events[i];
            const auto& [stage, microbatch, peer, slices, op, with_next] = send.task;
            if (!is_send(op))
                continue;
            const auto receive = receives.find({step_of(send), *facts_of(op).other_end, peer, stage, microbatch});
            if (receive == receives.end())
                continue;
            const TraceEvent& end = trace_.events[receive->second];
            const char* name = carries_gradients(op) ? "gradient" : "activation";
            put_event(R"({{"ph":"s","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{}}})", name, id,
                      send.device, threads_[i], micros(send.start));
            put_event(R"({{"ph":"f","bp":"e","name":"{}","cat":"transfer","id":{},"pid":{},"tid":{},"ts":{}}})", name,
                      id, end.device, threads_[receive->second], micros(std::max(end.start, end.end - 1)));
            ++id;
        }
    }

    // `step` and `time_ns` are outside `args`, where viewers would draw them as memory.
    void write_counter(const MemorySample& sample) {
        std::string values;
        for (int kind = 0; kind < kMemoryKinds; ++kind)
            values += fmt::format("{}\"{}\":{}", kind == 0 ? "" : ",", name_of(static_cast<MemoryKind>(kind)),
                                  sample.use[kind]);
        put_event(R"({{"ph":"C","name":"memory","pid":{},"ts":{},"step":{},"time_ns":{},"args":{{{}}}}})",
                  sample.device, micros(sample.time), sample.step, sample.time, values);
    }

    const Trace& trace_;
    NewFile file_;
    std::map<std::tuple<int, int, int>, int> tids_;  // of device, row, lane
    std::vector<int> threads_;                       // of events
    std::string line_;
    bool first_ = true;
};

}  // namespace

void write_trace(const Trace& trace, const std::string& path) {
    for (std::size_t i = 0; i < trace.events.size(); ++i)
        if (const TraceEvent& event = trace.events[i]; event.start < 0 || event.end < event.start)
            fail_with(ExitCode::RunFailed, "cannot write trace '{}': event {}, {} of device {}, runs from {} to {} ns",
                      path, i, print(event.task), event.device, event.start, event.end);
    Writer(trace, path).write();
}

}  // namespace pw
