// The module pipewright._core: what calls return, as Python's objects. The package in pipewright/ is the interface for
// users, and _core.pyi says what is in this module.
#include "python/calls.h"
#include "python/chart_objects.h"
#include "python/error_objects.h"
#include "python/interpreter_lock.h"
#include "python/json_objects.h"
#include "python/long_call.h"
#include "python/own_schedule.h"
#include "schedules/plan/op.h"
#include "schedules/trace/trace.h"
#include "schedules/trace/trace_json.h"
#include "viz/plot.h"
#include "viz/view_options.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pw {

namespace py = pybind11;

namespace {

using SharedReport = std::shared_ptr<Report>;  // pybind11 holds no pointers to const

// Integers in the memory of bytes, which NumPy reads as they are.
template <class T, class Rows, class Get>
py::bytes column_of(const Rows& rows, Get get) {
    auto column = py::reinterpret_steal<py::bytes>(
        PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(rows.size() * sizeof(T))));
    char* to = PyBytes_AS_STRING(column.ptr());
    for (const auto& row : rows) {
        const T value = static_cast<T>(get(row));
        std::memcpy(to, &value, sizeof value);
        to += sizeof value;
    }
    return column;
}

template <class Row>
struct IntColumn {
    const char* name;
    std::int64_t (*of)(const Row& row);
};
constexpr IntColumn<TraceEvent> kEventColumns[] = {
    {"step", [](const TraceEvent& event) -> std::int64_t { return event.step; }},
    {"device", [](const TraceEvent& event) -> std::int64_t { return event.device; }},
    {"op", [](const TraceEvent& event) -> std::int64_t { return static_cast<int>(event.task.op); }},
    {"stage", [](const TraceEvent& event) -> std::int64_t { return event.task.stage; }},
    {"microbatch", [](const TraceEvent& event) -> std::int64_t { return event.task.whole(); }},
    {"peer", [](const TraceEvent& event) -> std::int64_t { return event.task.peer; }},
    {"rank", [](const TraceEvent& event) -> std::int64_t { return event.rank; }},
    {"version", [](const TraceEvent& event) -> std::int64_t { return event.version; }},
};
constexpr IntColumn<TraceEvent> kLongEventColumns[] = {
    {"start_ns", [](const TraceEvent& event) -> std::int64_t { return event.start; }},
    {"end_ns", [](const TraceEvent& event) -> std::int64_t { return event.end; }},
    {"bytes", [](const TraceEvent& event) -> std::int64_t { return event.bytes; }},
};

py::dict events_of(const SharedReport& report) {
    py::dict columns;
    for (const auto& [name, of] : kEventColumns)
        columns[name] = column_of<std::int32_t>(report->trace.events, of);
    for (const auto& [name, of] : kLongEventColumns)
        columns[name] = column_of<std::int64_t>(report->trace.events, of);
    return columns;
}

py::dict memory_of(const SharedReport& report) {
    const std::vector<MemorySample>& samples = report->trace.memory;
    py::dict columns;
    columns["step"] = column_of<std::int64_t>(samples, [](const MemorySample& sample) { return sample.step; });
    columns["device"] = column_of<std::int64_t>(samples, [](const MemorySample& sample) { return sample.device; });
    columns["time_ns"] = column_of<std::int64_t>(samples, [](const MemorySample& sample) { return sample.time; });
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
        columns[py::str(std::string(name_of(static_cast<MemoryKind>(kind))) + "_bytes")] =
            column_of<std::int64_t>(samples, [&](const MemorySample& sample) { return sample.use[kind]; });
    return columns;
}

constexpr const char* kOutOfMemory =
    "out of memory: raise the limits of the process (ulimit -v, ulimit -d, the control group), or use fewer devices or "
    "smaller micro-batches";

void translate(std::exception_ptr thrown) {
    try {
        if (thrown)
            std::rethrow_exception(thrown);
    } catch (const Error& error) {
        raise_error(error);
    } catch (const std::filesystem::filesystem_error& error) {
        raise_error({ExitCode::RunFailed, "'" + error.path1().string() + "': " + error.code().message()});
    } catch (const nlohmann::json::exception&) {  // its text is for programmers
        raise_error({ExitCode::BadInput,
                     "a JSON file has a value of an unexpected type\n  help: `pipewright validate FILE` says what is "
                     "wrong with a file"});
    } catch (const std::bad_alloc&) {
        PyErr_SetString(PyExc_MemoryError, kOutOfMemory);
    } catch (const std::length_error&) {  // more than any container can hold
        PyErr_SetString(PyExc_MemoryError, kOutOfMemory);
    }
}

// None where a point has no report.
std::vector<SharedReport> reports_of(const Outcome& outcome) {
    std::vector<SharedReport> reports;
    for (const std::shared_ptr<const Report>& report : outcome.reports)
        reports.push_back(std::const_pointer_cast<Report>(report));
    return reports;
}

py::list errors_of(const Outcome& outcome) {
    py::list errors;
    for (const std::optional<Error>& error : outcome.errors)
        errors.append(error ? error_object(*error) : py::none());
    return errors;
}

// Returns what `call` returns for hooks, and whether Ctrl-C stopped it.
template <class Call>
std::pair<Outcome, bool> long_outcome(const py::object& progress, OnInterrupt on_interrupt, Call call,
                                      OnProgress on_progress = OnProgress::States) {
    Outcome outcome;
    const bool stopped = call_long(
        progress, on_interrupt, [&](const Hooks& hooks) { outcome = call(hooks); }, on_progress);
    return {std::move(outcome), stopped};
}

py::list many_outcomes(const std::vector<ConfigSource>& sources, int threads, const py::object& progress) {
    std::vector<std::variant<Outcome, Error>> outcomes;
    call_long(progress, OnInterrupt::Raise,
              [&](const Hooks& hooks) { outcomes = all_simulated(sources, threads, hooks); });
    py::list made;
    for (std::variant<Outcome, Error>& outcome : outcomes)
        if (const Error* error = std::get_if<Error>(&outcome))
            made.append(error_object(*error));
        else
            made.append(std::get<Outcome>(std::move(outcome)));
    return made;
}

using ViewWords = std::map<std::string, std::vector<std::string>>;

void plot_outcome(const Outcome& outcome, const std::string& file, const ViewWords& view, const std::string& x,
                  const std::string& y, const std::string& z) {
    check_plot_file(file);
    if (outcome.plot)
        outcome.plot(file, view_of(view));
    else
        plot_chart(outcome.chart({x, y, z}), file, view_of(view));
}

struct SharedSchedule {  // pybind11 holds no pointers to const
    std::shared_ptr<const Schedule> row;
};

void add_classes(py::module_& module) {
    py::class_<SharedSchedule>(module, "OwnSchedule")
        .def(py::init([](std::string name, const OwnPlacement& placement, bool by_costs, py::object function) {
            return SharedSchedule{own_schedule(std::move(name), placement, by_costs, std::move(function))};
        }));
    py::class_<ConfigSource>(module, "Source")
        .def(py::init([](std::string path, std::vector<std::string> set, std::optional<std::string> text,
                         const SharedSchedule* schedule) {
            return ConfigSource{std::move(path), std::move(set), std::move(text),
                                schedule != nullptr ? schedule->row : nullptr};
        }))
        .def_property_readonly("path", [](const ConfigSource& source) { return py::bytes(source.path); })
        .def_readonly("set", &ConfigSource::set)
        .def_readonly("text", &ConfigSource::text);
    py::class_<Report, SharedReport>(module, "Report")
        .def("json", [](const SharedReport& report) { return objects_of(to_json(*report)); })
        .def("text", [](const SharedReport& report) { return to_text(*report); })
        .def("title", [](const SharedReport& report) { return title_of(*report); })
        .def("has_events", [](const SharedReport& report) { return !report->trace.events.empty(); })
        .def("events", events_of)
        .def("memory", memory_of)
        .def("write", [](const SharedReport& report, const std::string& file) { write_trace(report->trace, file); })
        .def_readonly("names", &Report::names)
        .def_readonly("limits", &Report::limits)
        .def_property_readonly("stages_of", [](const SharedReport& report) { return report->trace.stages_of; });
    py::class_<Outcome>(module, "Outcome")
        .def_readonly("notes", &Outcome::notes)
        .def("json", [](const Outcome& outcome) { return objects_of(outcome.json()); })
        .def("text", [](const Outcome& outcome, std::size_t most) { return outcome.text(most); })
        .def("plot", plot_outcome, py::arg("file"), py::arg("view"), py::arg("x") = "", py::arg("y") = "",
             py::arg("z") = "", py::call_guard<UnlockedWork>())
        .def("has_chart", [](const Outcome& outcome) { return outcome.chart != nullptr; })
        .def("chart", [](const Outcome& outcome) { return outcome.chart({}); })
        .def("has_config", [](const Outcome& outcome) { return outcome.config != nullptr; })
        .def("config", [](const Outcome& outcome, const std::string& file) { return outcome.config(file); })
        .def("reports", reports_of)
        .def("errors", errors_of);
}

void add_calls(py::module_& module) {
    const py::call_guard<UnlockedWork> unlocked;
    module.def("simulate", &simulated, unlocked);
    module.def("simulate_many", &many_outcomes);
    module.def("sweep",
               [](const ConfigSource& source, const std::vector<std::pair<std::string, std::vector<std::string>>>& axes,
                  const py::object& progress) {
                   std::vector<SweepAxis> keys;
                   for (const auto& [key, texts] : axes)
                       keys.push_back({key, texts});
                   return long_outcome(progress, OnInterrupt::Raise,
                                       [&](const Hooks& hooks) { return swept(source, keys, hooks); })
                       .first;
               });
    module.def("search",
               [](const ConfigSource& source, std::optional<double> seconds, int threads, const py::object& progress) {
                   const auto search = [&](const Hooks& hooks) { return searched(source, {seconds, threads}, hooks); };
                   return long_outcome(progress, OnInterrupt::ReturnSoFar, search, OnProgress::StatesWithTime);
               });
    module.def("answer", [](const ConfigSource& source, int samples, const std::string& jitter, std::uint64_t seed,
                            bool stragglers, const std::vector<std::string>& what_if, bool explain, bool slack,
                            const py::object& progress) {
        const Questions questions{samples, jitter, seed, stragglers, what_if, explain, slack};
        return long_outcome(progress, OnInterrupt::Raise,
                            [&](const Hooks& hooks) { return answered(source, questions, hooks); })
            .first;
    });
    module.def("run", [](const ConfigSource& source, const py::object& progress) {
        return long_outcome(progress, OnInterrupt::ReturnSoFar,
                            [&](const Hooks& hooks) { return executed(source, hooks); });
    });
    module.def("compare", [](const ConfigSource& source, std::optional<int> turns, const py::object& progress) {
        return long_outcome(progress, OnInterrupt::Raise,
                            [&](const Hooks& hooks) { return compared(source, turns, hooks); })
            .first;
    });
    module.def(
        "compare_traces", [](const Report& predicted, const Report& measured) { return compared(predicted, measured); },
        unlocked);
    module.def("import_trace", &imported, unlocked);
    module.def("replay", &replayed_with, unlocked);
    module.def("tasks", &tasks_of, unlocked);
    module.def("csv", &csv_of, unlocked);
    module.def("complete_text", &complete_text, unlocked);
    module.def("summary_of", py::overload_cast<const ConfigSource&>(&summary_of), unlocked);
    module.def(
        "read_own_report",
        [](const std::string& file, const std::vector<std::string>& names, const std::vector<Bytes>& limits) {
            return std::const_pointer_cast<Report>(read_own_report(file, names, limits));
        },
        unlocked);
    module.def(
        "plot_chart",
        [](const Chart& chart, const std::string& file, const ViewWords& view) {
            check_plot_file(file);
            plot_chart(chart, file, view_of(view));
        },
        unlocked);
    module.def(
        "plot",
        [](const std::vector<SharedReport>& reports, const std::vector<std::string>& titles, const std::string& file,
           const ViewWords& view) {
            plot_reports({reports.begin(), reports.end()}, titles, file, view_of(view));
        },
        unlocked);
}

}  // namespace

}  // namespace pw

PYBIND11_MODULE(_core, module) {
    pybind11::register_exception_translator(pw::translate);
    pw::register_end();
    pw::add_chart_class(module);
    pw::add_classes(module);
    pw::add_calls(module);
    module.attr("version") = PIPEWRIGHT_VERSION;
    std::vector<std::string> letters;
    for (const pw::OpFacts& facts : pw::kOpFacts)
        letters.emplace_back(facts.letters);
    module.attr("op_letters") = letters;
}
