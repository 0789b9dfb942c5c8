// Reads what trace_json.cpp writes, without trust: every key is looked up and its type and range are checked.
#include "schedules/trace/trace_events.h"
#include "schedules/trace/trace_json.h"
#include "schedules/trace/trace_plan.h"
#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"
#include "workloads/text/json_text.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <istream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

namespace {

using nlohmann::json;

constexpr const char* kWriteOne = "name a trace that `pipewright simulate` or `run` wrote with --trace";
constexpr const char* kOnlyOwn =
    "only traces that pipewright wrote can be read: simulate CONFIG --trace FILE, run CONFIG --trace FILE";

std::vector<std::vector<int>> read_stages(const JsonPlace& place, int devices, int stages) {
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

std::vector<Edge> read_ties(const JsonPlace& place, int stages) {
    std::vector<Edge> ties;
    if (!place.object.contains("ties"))  // no ties, or a file of an older version
        return ties;
    const json& list = place.at("ties");
    for (const json& pair : list) {
        if (!pair.is_array() || pair.size() != 2)
            place.reject("ties", "expected pairs of stages, got {}", pair.type_name());
        const auto stage = [&](int end) { return static_cast<int>(place.checked("ties", pair[end], 0, stages - 1)); };
        ties.push_back({stage(0), stage(1)});
    }
    return ties;
}

std::vector<Bytes> read_reserved(const JsonPlace& place, int devices) {
    constexpr const char* kKey = "reserved_memory_bytes";
    std::vector<Bytes> reserved;
    if (!place.object.contains(kKey))  // a file of an older version
        return reserved;
    const json& list = place.at(kKey);
    if (!list.is_array() || list.size() != static_cast<std::size_t>(devices))
        place.reject(kKey, "expected one number of bytes for each of {} devices", devices);
    for (const json& bytes : list)
        reserved.push_back(place.checked(kKey, bytes, 0, std::numeric_limits<Bytes>::max()));
    return reserved;
}

std::vector<std::string> read_hosts(const JsonPlace& place, int devices) {
    std::vector<std::string> hosts;
    if (!place.has("hosts"))  // not known, or a file of an older version
        return hosts;
    const json& list = place.at("hosts");
    if (!list.is_array() || list.size() != static_cast<std::size_t>(devices))
        place.reject("hosts", "expected the name of a host for each of {} devices", devices);
    for (const json& name : list) {
        if (!name.is_string())
            place.reject("hosts", "expected names of hosts, got {}", name.type_name());
        hosts.push_back(shortened(name.get_ref<const std::string&>(), kMostHostName));
    }
    return hosts;
}

// Files of older versions have no replicas, or no mini-batch.
void read_samples(const JsonPlace& place, Trace& trace) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const std::int64_t size = trace.micro_batch_size, of_replica = trace.micro_batches * size;
    if (place.object.contains("replicas"))
        trace.replicas =
            place.small("replicas", 1, std::min<std::int64_t>(kMaxInt, kMost / std::max<std::int64_t>(1, of_replica)));
    const std::int64_t full = of_replica * trace.replicas;
    if (place.object.contains("mini_batch"))
        trace.mini_batch = place.integer("mini_batch", trace.replicas > 1 ? full : full - size + 1, full);
}

void read_header(const JsonPlace& place, Trace& trace) {
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
    read_samples(place, trace);
    trace.asynchronous = place.flag("asynchronous");
    trace.stages_of = read_stages(place, trace.devices, trace.stages);
    trace.hosts = read_hosts(place, trace.devices);
    trace.ties = read_ties(place, trace.stages);
    trace.reserved = read_reserved(place, trace.devices);
}

// Takes events individually while the file is parsed, so that they are never all in memory as JSON.
class Reader {
public:
    // With `foreign`, another program may have written the file: keys are optional if their values follow from further
    // keys.
    explicit Reader(const std::string& path, bool foreign = false)
        : path_(path), foreign_(foreign), help_(foreign ? help_on_forms() : kOnlyOwn) {}

    Trace read() {
        const json root = parse_events(path_, help_, [this](const JsonPlace& event, std::size_t index) {
            index_ = index;
            read_event(event);
        });
        const JsonPlace place{path_, root, "file", help_};
        check_versions();
        number_slices();
        if (foreign_ && !(place.has("otherData") && place.object_at("otherData").has("plan_hash"))) {
            make_header(place);
            return std::move(trace_);
        }
        if (!left_out_.empty())
            fail("{}", left_out_);
        read_header(place.object_at("otherData"), trace_);
        check_devices();
        return std::move(trace_);
    }

private:
    void read_event(const JsonPlace& place) {
        const std::string phase = place.text("ph");
        if (phase == "X" && (!foreign_ || is_task(place)))
            read_slice(place, place.object_at("args"));
        else if (phase == "C" && place.text("name") == "memory")
            read_counter(place);
    }

    // Foreign programs draw more than tasks.
    static bool is_task(const JsonPlace& place) {
        return place.has("args") && place.object_at("args").has("op") && place.object_at("args").has("stage");
    }

    // Returns whether a key is missing that may be missing. Whether pipewright wrote the trace may only be known at the
    // end of the file.
    bool may_lack(const JsonPlace& args, const char* key) {
        if (!foreign_ || args.has(key))
            return false;
        if (left_out_.empty())
            left_out_ = fmt::format("trace '{}': {} has no key '{}'\n  help: {}", path_, args.name, key, kOnlyOwn);
        return true;
    }

    void read_slice(const JsonPlace& place, const JsonPlace& args) {
        const auto small = [&](const char* key, int otherwise, std::int64_t min = 0) {
            return may_lack(args, key) ? otherwise : args.small(key, min);
        };
        const std::string letters = args.text("op");
        const std::optional<Op> op = op_from(letters);
        if (!op)
            args.reject("op", "unknown operation '{}'", shortened(letters, 80));
        const int device = may_lack(args, "device") ? place.small("pid") : args.small("device");
        TraceEvent event{small("step", 0), device, small("rank", 0), Task{*op, 0, 0}, 0, 0, 0, -1};
        event.task.stage = args.small("stage");
        event.task.microbatch = args.small("microbatch");
        slices_.push_back(
            may_lack(args, "slice") ? 0 : static_cast<std::uint16_t>(args.small("slice", 0, kMostSlices - 1)));
        event.task.peer = is_transfer(*op) ? args.small("peer", -1) : small("peer", -1, -1);
        event.task.with_next = args.object.contains("with_next") && args.flag("with_next");
        if (place.has("ts") && may_lack(args, "start_ns")) {
            event.start = place.micros("ts");
            event.end = event.start + place.micros("dur");
        } else {
            event.start = args.integer("start_ns", 0, kMaxTime);
            event.end = args.integer("end_ns", 0, kMaxTime);
        }
        if (event.end < event.start)
            args.reject("end_ns", "the event ends {} ns before it starts", event.start - event.end);
        event.bytes = may_lack(args, "bytes") ? 0 : args.integer("bytes", 0, kMaxTime);
        event.version = small("version", -1, -1);
        event.ahead = args.object.contains("ahead") ? args.small("ahead") : 0;
        if (foreign_ && args.has("host"))
            hosts_.try_emplace(device, host_in(args.object));
        trace_.events.push_back(event);
        places_.push_back(index_);
    }

    void read_counter(const JsonPlace& place) {
        MemorySample sample{place.small("step"), place.small("pid"), place.integer("time_ns", 0, kMaxTime), {}};
        const JsonPlace args = place.object_at("args");
        for (int kind = 0; kind < kMemoryKinds; ++kind)
            sample.use[kind] = args.integer(name_of(static_cast<MemoryKind>(kind)).data(), 0, kMaxTime / kMemoryKinds);
        trace_.memory.push_back(sample);
        sample_places_.push_back(index_);
    }

    // Numbers the slices of micro-batches when the number of slices is known.
    void number_slices() {
        for (const std::uint16_t slice : slices_)
            trace_.slices = std::max(trace_.slices, slice + 1);
        for (std::size_t i = 0; trace_.slices > 1 && i < slices_.size(); ++i) {
            Task& task = trace_.events[i].task;
            if (task.microbatch >= std::numeric_limits<int>::max() / trace_.slices)
                fail(
                    "trace '{}': traceEvents[{}].args: micro-batch {} of {} slices, but a plan has at most {}\n  help: "
                    "{}",
                    path_, places_[i], task.microbatch, trace_.slices, std::numeric_limits<int>::max(), help_);
            task = {task.op,       task.stage, task.microbatch * trace_.slices + slices_[i],
                    trace_.slices, task.peer,  task.with_next};
        }
    }

    // Sets the facts of the trace that follow from its tasks.
    void make_header(const JsonPlace& place) {
        if (trace_.events.empty())
            fail("trace '{}': none of its events is a task of a plan\n  help: {}", path_, help_);
        constexpr int kMost = 65'536;
        int stages = 0;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (event.device >= kMost || event.task.stage >= kMost)
                fail("trace '{}': traceEvents[{}].args: device {} and stage {}, but a plan has at most {} of each",
                     path_, places_[i], event.device, event.task.stage, kMost);
            stages = std::max(stages, event.task.stage + 1);
        }
        check_peers(stages);
        trace_.schedule = kForeign;
        if (place.has("otherData")) {
            const JsonPlace other = place.object_at("otherData");
            trace_.asynchronous = other.has("asynchronous") && other.flag("asynchronous");
            trace_.schedule = other.has("schedule") ? other.text("schedule") : trace_.schedule;
        }
        trace_.memory.clear();
        complete_from_tasks(trace_, path_);
        if (std::ssize(hosts_) == trace_.devices)
            for (const auto& [device, host] : hosts_)
                trace_.hosts.push_back(host);
    }

    void check_peers(int stages) const {
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const Task& task = trace_.events[i].task;
            if (!has_right_peer(task, stages))
                fail(
                    "trace '{}': traceEvents[{}].args.peer: {} is no stage at the other end of {}\n"
                    "  help: the trace has {} stages, counted from 0",
                    path_, places_[i], task.peer, print(task), stages);
        }
    }

    // A version is the number of updates before it: one per earlier step, or the U of the trace.
    void check_versions() const {
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (event.version - std::int64_t{event.step} > std::ssize(trace_.events))
                fail(
                    "trace '{}': traceEvents[{}].args.version: {} in step {}, but the {} tasks of the "
                    "trace make fewer updates\n  help: versions are counted from 0, the weights before the first "
                    "update; -1 is none",
                    path_, places_[i], event.version, event.step, trace_.events.size());
        }
    }

    // The header may follow the events.
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
    std::map<int, std::string> hosts_;   // by device, of traces of other programs
    std::string left_out_;               // the first missing key that only traces of other programs may omit
    std::size_t index_ = 0;              // of the event that is being read
    std::vector<std::uint16_t> slices_;  // of events
    std::vector<std::size_t> places_, sample_places_;  // of events and samples in traceEvents
};

// Passes on the objects of traceEvents while the file is parsed.
class EventParser {
public:
    EventParser(const std::string& path, const char* help,
                const std::function<void(const JsonPlace& event, std::size_t index)>& take)
        : path_(path), help_(help), take_(take) {}

    json parse() {
        const std::unique_ptr<std::istream> file = open_text(path_, kWriteOne, kMostTrace);
        try {
            const auto kept = [this](int depth, json::parse_event_t event, json& value) {
                return keep(depth, event, value);
            };
            return parse_json(*file, fmt::format("trace '{}'", path_), kept, help_);
        } catch (const std::ios_base::failure& error) {
            fail("cannot read trace '{}': {}", path_, error.what());
        }
    }

private:
    bool keep(int depth, json::parse_event_t event, json& value) {
        using Event = json::parse_event_t;
        if (depth == 0 && event == Event::array_start) {  // the whole file is the list
            in_events_ = true;
            depth_ = 1;
        }
        if (depth == 1 && event == Event::key)
            in_events_ = value == "traceEvents";
        if (depth != depth_ || !in_events_)
            return true;
        if (event == Event::object_end) {
            take_({path_, value, fmt::format("traceEvents[{}]", index_), help_}, index_);
            ++index_;
            return false;
        }
        if (event == Event::value || event == Event::array_end)
            fail("trace '{}': traceEvents[{}]: expected an object, got {}", path_, index_,
                 event == Event::value ? value.type_name() : "array");
        return true;
    }

    const std::string& path_;
    const char* const help_;
    const std::function<void(const JsonPlace& event, std::size_t index)>& take_;
    bool in_events_ = false;
    int depth_ = 2;          // of the events
    std::size_t index_ = 0;  // in traceEvents
};

}  // namespace

Trace read_trace(const std::string& path) { return Reader(path).read(); }

Trace read_foreign_trace(const std::string& path) { return Reader(path, true).read(); }

const char* help_on_forms() {
    static const std::string help = [] {
        std::vector<std::string_view> letters;
        for (const OpFacts& facts : kOpFacts)
            letters.push_back(facts.letters);
        return fmt::format(
            "name a trace that pipewright wrote; or one of another program whose tasks are events with ph X and args "
            "op ({}), stage, microbatch, for transfers peer, and start_ns and end_ns, or ts and dur instead, where the "
            "device is args.device or pid; or the files of torch.profiler, Nsight Systems, Primus, Varuna or Paddle, "
            "one per rank; or the log of Megatron-LM's timers; for names of your own: pipewright import --task "
            "'fwd_mb{{mb}}_stage{{stage}}'",
            fmt::join(letters, " "));
    }();
    return help.c_str();
}

nlohmann::json parse_events(const std::string& path, const char* help,
                            const std::function<void(const JsonPlace& event, std::size_t index)>& take) {
    json root = EventParser(path, help, take).parse();
    if (root.is_array())
        root = {{"traceEvents", json::array()}};
    const JsonPlace place{path, root, "file", help};
    if (!root.is_object())
        fail("trace '{}': expected an object with otherData and traceEvents, got {}\n  help: {}", path,
             root.type_name(), help);
    if (!place.has("traceEvents"))
        fail(
            "trace '{}': file has no key 'traceEvents'\n  help: name a Chrome trace, a list of events or an object "
            "with "
            "traceEvents; docs/import.md lists other files that can be read",
            path);
    if (!place.at("traceEvents").is_array())
        place.reject("traceEvents", "expected a list, got {}", place.at("traceEvents").type_name());
    return root;
}

std::string host_in(const json& args) {
    const auto found = args.find("host");
    return found != args.end() && found->is_string() ? shortened(found->get_ref<const std::string&>(), kMostHostName)
                                                     : "";
}

void complete_from_tasks(Trace& trace, const std::string& path) {
    std::set<std::pair<int, int>> held;  // device, stage
    for (const TraceEvent& event : trace.events) {
        held.emplace(event.device, event.task.stage);
        trace.devices = std::max(trace.devices, event.device + 1);
        trace.stages = std::max(trace.stages, event.task.stage + 1);
        trace.micro_batches = std::max(trace.micro_batches, event.task.whole() + 1);
    }
    if (std::int64_t{trace.stages} * trace.micro_batches > std::ssize(trace.events))
        fail("trace '{}': {} tasks are not all of {} micro-batches on {} stages\n  help: {}", path, trace.events.size(),
             trace.micro_batches, trace.stages, help_on_forms());
    trace.stages_of.assign(static_cast<std::size_t>(trace.devices), {});
    for (const auto& [device, stage] : held)
        trace.stages_of[static_cast<std::size_t>(device)].push_back(stage);
    trace.label = "measured";
    put_in_list_order(trace, path);
}

}  // namespace pw
