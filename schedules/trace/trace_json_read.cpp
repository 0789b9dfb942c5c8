// Reads back what trace_json.cpp writes, trusting nothing: every key is looked up, typed and bounded.
#include "schedules/trace/trace_json.h"
#include "schedules/trace/trace_plan.h"
#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace pw {

namespace {

using nlohmann::json;

constexpr const char* kWriteOne = "name a trace that `pipewright simulate` or `run` wrote with --trace";
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;  // differences of two times do not overflow

constexpr const char* kOnlyOwn =
    "only traces that pipewright wrote can be read: simulate CONFIG --trace FILE, run CONFIG --trace FILE";

constexpr const char* kForeign =
    "a task is an event with ph X and args: op (F B I W R U S SEND_F RECV_F SEND_B RECV_B), stage, microbatch, for "
    "transfers peer, and start_ns and end_ns, or ts and dur beside them; device is args.device or pid";

// An object of the file and where it stands, for messages.
struct Place {
    const std::string& path;
    const json& object;
    std::string name;  // "traceEvents[3].args"
    const char* help = kOnlyOwn;

    template <class... Args>
    [[noreturn]] void reject(const char* key, fmt::format_string<Args...> text, Args&&... args) const {
        fail("trace '{}': {}.{}: {}", path, name, key, fmt::format(text, std::forward<Args>(args)...));
    }

    const json& at(const char* key) const {
        const auto found = object.find(key);
        if (found == object.end())
            fail("trace '{}': {} has no key '{}'\n  help: {}", path, name, key, help);
        return *found;
    }

    Place object_at(const char* key) const {
        const json& value = at(key);
        if (!value.is_object())
            reject(key, "expected an object, got {}", value.type_name());
        return {path, value, fmt::format("{}.{}", name, key), help};
    }
    bool has(const char* key) const { return object.contains(key); }

    std::int64_t integer(const char* key, std::int64_t min, std::int64_t max) const {
        return checked(key, at(key), min, max);
    }

    Ns micros(const char* key) const {
        const json& value = at(key);
        const double time = value.is_number() ? value.get<double>() : -1;
        if (!(time >= 0 && time < static_cast<double>(kMaxTime) / 1e3))
            reject(key, "expected microseconds, got {}", shown(value));
        return std::llround(time * 1e3);
    }

    int small(const char* key, std::int64_t min = 0, std::int64_t max = kMaxInt) const {
        return static_cast<int>(integer(key, min, max));
    }

    std::int64_t checked(const char* key, const json& value, std::int64_t min, std::int64_t max) const {
        if (!value.is_number_integer())
            reject(key, "expected an integer, got {}", value.is_number() ? shown(value) : value.type_name());
        const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max);
        const std::int64_t number = huge ? max : value.get<std::int64_t>();
        if (huge || number < min || number > max)
            reject(key, "{} is not between {} and {}", shown(value), min, max);
        return number;
    }

    std::string text(const char* key) const {
        const json& value = at(key);
        if (!value.is_string())
            reject(key, "expected a string, got {}", value.type_name());
        return value.get<std::string>();
    }

    bool flag(const char* key) const {
        const json& value = at(key);
        if (!value.is_boolean())
            reject(key, "expected true or false, got {}", value.type_name());
        return value.get<bool>();
    }
};

std::vector<std::vector<int>> read_stages(const Place& place, int devices, int stages) {
    const json& lists = place.at("stages_of");
    if (!lists.is_array() || lists.size() != static_cast<std::size_t>(devices))
        place.reject("stages_of", "expected one list of stages for each of {} devices", devices);
    std::vector<std::vector<int>> stages_of;
    for (const json& list : lists) {
        if (!list.is_array())
            place.reject("stages_of", "expected lists of stages, got {}", list.type_name());
        std::vector<int>& held = stages_of.emplace_back();
        for (const json& stage : list)
            held.push_back(static_cast<int>(place.checked("stages_of", stage, 0, stages - 1)));
    }
    return stages_of;
}

std::vector<Bytes> read_reserved(const Place& place, int devices) {
    constexpr const char* kKey = "reserved_memory_bytes";
    std::vector<Bytes> reserved;
    if (!place.object.contains(kKey))  // of an older version
        return reserved;
    const json& list = place.at(kKey);
    if (!list.is_array() || list.size() != static_cast<std::size_t>(devices))
        place.reject(kKey, "expected one number of bytes for each of {} devices", devices);
    for (const json& bytes : list)
        reserved.push_back(place.checked(kKey, bytes, 0, std::numeric_limits<Bytes>::max()));
    return reserved;
}

void read_header(const Place& place, Trace& trace) {
    if (const int version = place.small("schema_version"); version != Trace::kSchemaVersion)
        place.reject("schema_version", "this version reads {}, the file has {}", Trace::kSchemaVersion, version);
    trace.label = place.text("label");
    trace.plan_hash = place.text("plan_hash");
    trace.schedule = place.text("schedule");
    trace.config = place.text("config");
    trace.machine = place.text("machine");
    trace.devices = place.small("devices");
    trace.stages = place.small("stages");
    trace.micro_batches = place.small("micro_batches");
    trace.micro_batch_size = place.small("micro_batch_size");
    if (place.object.contains("mini_batch")) {
        const std::int64_t size = trace.micro_batch_size, full = trace.micro_batches * size;
        trace.mini_batch = place.integer("mini_batch", full - size + 1, full);
    }
    trace.asynchronous = place.flag("asynchronous");
    trace.stages_of = read_stages(place, trace.devices, trace.stages);
    trace.reserved = read_reserved(place, trace.devices);
}

// Takes the events one by one while the file is parsed, so that they never stand in memory as JSON.
class Reader {
public:
    // With `foreign`, somebody else may have written it, and what can be known without being said may be missing.
    explicit Reader(const std::string& path, bool foreign = false)
        : path_(path), foreign_(foreign), help_(foreign ? kForeign : kOnlyOwn) {}

    Trace read() {
        std::ifstream file = open_file(path_, kWriteOne, kMostTrace);
        const json root = parse(file);
        const Place place{path_, root, "file", help_};
        if (!root.is_object())
            fail("trace '{}': expected an object with otherData and traceEvents, got {}\n  help: {}", path_,
                 root.type_name(), help_);
        if (!place.at("traceEvents").is_array())
            place.reject("traceEvents", "expected a list, got {}", place.at("traceEvents").type_name());
        if (foreign_ && !(place.has("otherData") && place.object_at("otherData").has("plan_hash"))) {
            make_header(place);
            return std::move(trace_);
        }
        read_header(place.object_at("otherData"), trace_);
        check_devices();
        return std::move(trace_);
    }

private:
    json parse(std::ifstream& file) {
        try {
            const auto kept = [this](int depth, json::parse_event_t event, json& value) {
                return keep(depth, event, value);
            };
            return parse_json(file, fmt::format("trace '{}'", path_), kept, help_);
        } catch (const std::ios_base::failure& error) {
            fail("cannot read trace '{}': {}", path_, error.what());
        }
    }

    bool keep(int depth, json::parse_event_t event, json& value) {
        using Event = json::parse_event_t;
        if (depth == 1 && event == Event::key)
            in_events_ = value == "traceEvents";
        if (depth != 2 || !in_events_)
            return true;
        if (event == Event::object_end) {
            read_event({path_, value, fmt::format("traceEvents[{}]", index_++), help_});
            return false;
        }
        if (event == Event::value || event == Event::array_start)
            fail("trace '{}': traceEvents[{}]: expected an object, got {}", path_, index_,
                 event == Event::value ? value.type_name() : "array");
        return true;
    }

    void read_event(const Place& place) {
        const std::string phase = place.text("ph");
        if (phase == "X" && (!foreign_ || is_task(place)))
            read_slice(place, place.object_at("args"));
        else if (phase == "C" && place.text("name") == "memory")
            read_counter(place);
    }

    // Others draw more than tasks.
    static bool is_task(const Place& place) {
        return place.has("args") && place.object_at("args").has("op") && place.object_at("args").has("stage");
    }

    void read_slice(const Place& place, const Place& args) {
        const auto small = [&](const char* key, int otherwise, std::int64_t min = 0) {
            return foreign_ && !args.has(key) ? otherwise : args.small(key, min);
        };
        const std::string letters = args.text("op");
        const std::optional<Op> op = op_from(letters);
        if (!op)
            args.reject("op", "unknown operation '{}'", shortened(letters, 80));
        const int device = foreign_ && !args.has("device") ? place.small("pid") : args.small("device");
        TraceEvent event{small("step", 0), device, small("rank", 0), Task{*op, 0, 0}, 0, 0, 0, -1};
        event.task.stage = args.small("stage");
        event.task.microbatch = args.small("microbatch");
        event.task.slice =
            foreign_ && !args.has("slice") ? 0 : static_cast<std::uint16_t>(args.small("slice", 0, 65'535));
        event.task.peer = is_transfer(*op) ? args.small("peer", -1) : small("peer", -1, -1);
        event.task.with_next = args.object.contains("with_next") && args.flag("with_next");
        if (foreign_ && !args.has("start_ns") && place.has("ts")) {
            event.start = place.micros("ts");
            event.end = event.start + place.micros("dur");
        } else {
            event.start = args.integer("start_ns", 0, kMaxTime);
            event.end = args.integer("end_ns", 0, kMaxTime);
        }
        if (event.end < event.start)
            args.reject("end_ns", "the event ends {} ns before it starts", event.start - event.end);
        event.bytes = foreign_ && !args.has("bytes") ? 0 : args.integer("bytes", 0, kMaxTime);
        event.version = small("version", -1, -1);
        event.ahead = args.object.contains("ahead") ? args.small("ahead") : 0;
        trace_.events.push_back(event);
        places_.push_back(index_ - 1);
    }

    void read_counter(const Place& place) {
        MemorySample sample{place.small("step"), place.small("pid"), place.integer("time_ns", 0, kMaxTime), {}};
        const Place args = place.object_at("args");
        for (int kind = 0; kind < kMemoryKinds; ++kind)
            sample.use[kind] = args.integer(name_of(static_cast<MemoryKind>(kind)).data(), 0, kMaxTime / kMemoryKinds);
        trace_.memory.push_back(sample);
        sample_places_.push_back(index_ - 1);
    }

    // What the tasks tell.
    void make_header(const Place& place) {
        if (trace_.events.empty())
            fail("trace '{}': none of its events is a task of a plan\n  help: {}", path_, help_);
        constexpr int kMost = 65'536;
        std::set<std::pair<int, int>> held;  // device, stage
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (event.device >= kMost || event.task.stage >= kMost)
                fail("trace '{}': traceEvents[{}].args: device {} and stage {}, but a plan has at most {} of each",
                     path_, places_[i], event.device, event.task.stage, kMost);
            held.emplace(event.device, event.task.stage);
            trace_.devices = std::max(trace_.devices, event.device + 1);
            trace_.stages = std::max(trace_.stages, event.task.stage + 1);
            trace_.micro_batches = std::max(trace_.micro_batches, event.task.microbatch + 1);
        }
        if (std::int64_t{trace_.stages} * trace_.micro_batches > std::ssize(trace_.events))
            fail("trace '{}': {} tasks are not all of {} micro-batches on {} stages\n  help: {}", path_,
                 trace_.events.size(), trace_.micro_batches, trace_.stages, help_);
        check_peers();
        trace_.stages_of.resize(static_cast<std::size_t>(trace_.devices));
        for (const auto& [device, stage] : held)
            trace_.stages_of[static_cast<std::size_t>(device)].push_back(stage);
        trace_.label = "measured";
        trace_.schedule = "foreign";
        if (place.has("otherData")) {
            const Place other = place.object_at("otherData");
            trace_.asynchronous = other.has("asynchronous") && other.flag("asynchronous");
            trace_.schedule = other.has("schedule") ? other.text("schedule") : trace_.schedule;
        }
        trace_.memory.clear();
        put_in_list_order(trace_, path_);
    }

    void check_peers() const {
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const Task& task = trace_.events[i].task;
            if (!has_right_peer(task, trace_.stages))
                fail(
                    "trace '{}': traceEvents[{}].args.peer: {} is no stage at the other end of {}\n"
                    "  help: the trace has {} stages, counted from 0",
                    path_, places_[i], task.peer, print(task), trace_.stages);
        }
    }

    // The header may stand behind the events.
    void check_devices() const {
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (event.device >= trace_.devices)
                fail("trace '{}': traceEvents[{}].args.device: {}, but the trace has {} devices", path_, places_[i],
                     event.device, trace_.devices);
            if (event.task.stage >= trace_.stages)
                fail("trace '{}': traceEvents[{}].args.stage: {}, but the trace has {} stages", path_, places_[i],
                     event.task.stage, trace_.stages);
        }
        for (std::size_t i = 0; i < trace_.memory.size(); ++i)
            if (trace_.memory[i].device >= trace_.devices)
                fail("trace '{}': traceEvents[{}].pid: {}, but the trace has {} devices", path_, sample_places_[i],
                     trace_.memory[i].device, trace_.devices);
    }

    const std::string& path_;
    const bool foreign_;
    const char* const help_;
    Trace trace_;
    bool in_events_ = false;
    std::size_t index_ = 0;                            // in traceEvents
    std::vector<std::size_t> places_, sample_places_;  // of events and samples in traceEvents
};

}  // namespace

Trace read_trace(const std::string& path) { return Reader(path).read(); }

Trace read_foreign_trace(const std::string& path) { return Reader(path, true).read(); }

}  // namespace pw
