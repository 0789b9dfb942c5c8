#include "python/own_schedule.h"

#include "python/error_objects.h"
#include "python/interpreter_lock.h"
#include "schedules/orders/order_costs.h"
#include "schedules/orders/placement.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace pw {

namespace py = pybind11;

namespace {

constexpr Placement kOwnPlacements[] = {{"any", "", any_stages}, kLinear, kLooped, kV};
constexpr std::size_t kMostKept = 1'000'000;  // tasks

std::optional<Op> pass_named(std::string_view letters) {
    const std::optional<Op> op = op_from(letters);
    return op && (*op == Op::Forward || is_backward(*op)) ? op : std::nullopt;
}

std::string_view text_in(PyObject* object) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
    if (text == nullptr)
        PyErr_Clear();
    return text == nullptr ? std::string_view{} : std::string_view(text, static_cast<std::size_t>(size));
}

// Returns a whole number, or -1 for any other object. Numbers beyond int are the last int.
int number_in(PyObject* object) {
    if (PyIndex_Check(object) == 0)
        return -1;
    const Py_ssize_t number = PyNumber_AsSsize_t(object, nullptr);
    if (PyErr_Occurred() != nullptr)
        throw py::error_already_set();
    return static_cast<int>(std::clamp<Py_ssize_t>(number, -1, std::numeric_limits<int>::max()));
}

// Reads "3F7".
std::optional<Task> task_in_text(std::string_view text) {
    Task task;
    const char* const end = text.data() + text.size();
    const auto [letter, no_stage] = std::from_chars(text.data(), end, task.stage);
    const std::optional<Op> op =
        no_stage == std::errc{} && letter != end ? pass_named(std::string_view(letter, 1)) : std::nullopt;
    if (!op)
        return {};
    const auto [last, no_number] = std::from_chars(letter + 1, end, task.microbatch);
    task.op = *op;
    return no_number == std::errc{} && last == end ? std::optional(task) : std::nullopt;
}

// Reads ("F", 3, 7).
std::optional<Task> task_in_tuple(PyObject* tuple) {
    if (PyTuple_GET_SIZE(tuple) != 3)
        return {};
    const std::optional<Op> op = pass_named(text_in(PyTuple_GET_ITEM(tuple, 0)));
    if (!op)
        return {};
    return Task{*op, number_in(PyTuple_GET_ITEM(tuple, 1)), number_in(PyTuple_GET_ITEM(tuple, 2))};
}

py::object sequence_of(PyObject* object) {
    auto items = py::reinterpret_steal<py::object>(PySequence_Fast(object, ""));
    if (!items && PyErr_ExceptionMatches(PyExc_TypeError) == 0)
        throw py::error_already_set();
    PyErr_Clear();
    return items;
}

// Reads the lists that a function returned.
class ListReader {
public:
    ListReader(std::string_view schedule, const Shape& shape) : schedule_(schedule), shape_(shape) {}

    std::vector<Tasks> lists(const py::object& returned) {
        const py::object all = sequence_of(returned.ptr());
        if (!all || PySequence_Fast_GET_SIZE(all.ptr()) != shape_.devices)
            fail("schedule {} returned {}\n  help: return a list of tasks for each of the {} devices", schedule_,
                 all ? fmt::format("{} lists", PySequence_Fast_GET_SIZE(all.ptr())) : text_of(returned.ptr()),
                 shape_.devices);
        std::vector<Tasks> lists(static_cast<std::size_t>(shape_.devices));
        for (device_ = 0; device_ < shape_.devices; ++device_)
            read(PySequence_Fast_GET_ITEM(all.ptr(), device_), lists[static_cast<std::size_t>(device_)]);
        check_backwards(lists);
        return lists;
    }

private:
    static std::string text_of(PyObject* object) { return py::repr(object).cast<std::string>(); }

    void read(PyObject* list, Tasks& tasks) {
        const py::object items = sequence_of(list);
        if (!items || PyUnicode_Check(list) != 0)
            fail("schedule {} returned {} for device {}\n  help: return a list of tasks", schedule_, text_of(list),
                 device_);
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
        tasks.reserve(static_cast<std::size_t>(count));
        for (position_ = 0; position_ < count; ++position_)
            add(PySequence_Fast_GET_ITEM(items.ptr(), position_), tasks);
    }

    void add(PyObject* item, Tasks& tasks) const {
        if (PyTuple_Check(item) == 0 || PyTuple_GET_SIZE(item) != 2)
            return tasks.push_back(task_in(item));
        tasks.push_back(task_in(PyTuple_GET_ITEM(item, 0)));
        tasks.back().with_next = true;
        tasks.push_back(task_in(PyTuple_GET_ITEM(item, 1)));
    }

    Task task_in(PyObject* item) const {
        const std::optional<Task> task = PyTuple_Check(item) != 0 ? task_in_tuple(item) : task_in_text(text_in(item));
        const auto place = [&] { return fmt::format("schedule {}: device {} step {}", schedule_, device_, position_); };
        if (!task)
            fail(
                "{}: {} is no task\n  help: write (\"F\", 3, 7) or \"3F7\" for the forward of micro-batch 7 on stage "
                "3, with B for its backward, or I and W for the two parts of the backward",
                place(), text_of(item));
        if (task->stage < 0 || task->stage >= shape_.stages || task->microbatch < 0 ||
            task->microbatch >= shape_.microbatches)
            fail("{}: {} is outside the pipeline\n  help: stages are 0 to {}, and micro-batches 0 to {}", place(),
                 text_of(item), shape_.stages - 1, shape_.microbatches - 1);
        return *task;
    }

    // Without any backward a plan would be proven as a plan of forwards.
    void check_backwards(const std::vector<Tasks>& lists) const {
        for (const Tasks& tasks : lists)
            if (std::ranges::any_of(tasks, [](const Task& task) { return is_backward(task.op); }))
                return;
        fail("schedule {} returned no backward\n  help: list B, or I and W, of every micro-batch on every stage",
             schedule_);
    }

    std::string_view schedule_;
    const Shape& shape_;
    int device_ = 0;
    Py_ssize_t position_ = 0;
};

// Proves the lists alone, so that errors count the steps of the caller. Transfers and their lanes are proven later.
void check_lists(std::string_view schedule, const Shape& shape, const std::vector<Tasks>& lists) {
    Plan plan{.schedule = std::string(schedule), .shape = shape, .order = lists};
    plan.shape.forwards_only.clear();
    plan.shape.ties.clear();
    plan.shape.global_norm = false;
    const PlanGraph of_own_tasks(plan);
    add_updates(plan);
    check(plan, {}, [&](int device, int position) {
        const auto begin = plan.order[static_cast<std::size_t>(device)].begin();
        const auto updates =
            std::count_if(begin, begin + position, [](const Task& task) { return is_closing(task.op); });
        return fmt::format("device {} step {}", device, position - updates);
    });
}

py::object costs_in_python(const OrderCosts& costs, const std::vector<int>& devices) {
    py::list times;
    py::dict messages;
    const auto holder = [&](int stage) { return OrderCosts::Holder{stage, devices[static_cast<std::size_t>(stage)]}; };
    const int stages = static_cast<int>(devices.size());
    for (int stage = 0; stage < stages; ++stage) {
        py::list by_class;
        for (const OrderCosts::Times& of : costs.times.at(holder(stage)))
            by_class.append(py::make_tuple(of.forward, of.backward, of.backward_input, of.backward_weight));
        times.append(by_class);
    }
    for (const auto& [ends, by_class] : costs.messages) {
        const auto& [from, to] = ends;
        if (from != holder(from.stage) || to != holder(to.stage))
            continue;
        py::list all;
        for (const OrderCosts::Message& message : by_class)
            all.append(message.time());
        messages[py::make_tuple(from.stage, to.stage)] = all;
    }
    return py::make_tuple(costs.classes, times, messages);
}

// The row, and what it refers to.
struct OwnSchedule : Schedule {
    std::string text;  // its name
    std::vector<int> listed;
    std::shared_ptr<const py::object> function;

    std::vector<Tasks> lists(const Request& request) const {
        std::vector<int> devices;
        for (int stage = 0; stage < request.shape.stages; ++stage)
            devices.push_back(request.shape.server_of(stage, 0));
        if (request.costs != nullptr)
            return called(request, devices);
        const Key key{request.shape.devices, request.shape.stages, request.shape.microbatches, devices};
        {
            const std::scoped_lock lock(mutex_);
            if (const auto known = known_.find(key); known != known_.end())
                return known->second;
        }
        std::vector<Tasks> lists = called(request, devices);
        const std::scoped_lock lock(mutex_);
        for (const Tasks& tasks : lists)
            kept_ += tasks.size();
        if (kept_ > kMostKept) {
            known_.clear();
            kept_ = 0;
        }
        return known_.try_emplace(key, std::move(lists)).first->second;
    }

private:
    using Key = std::tuple<int, int, int, std::vector<int>>;

    std::vector<Tasks> called(const Request& request, const std::vector<int>& devices) const {
        std::vector<Tasks> lists;
        with_lock([&] {
            const py::object returned = returned_for(request, devices);
            try {
                lists = ListReader(name, request.shape).lists(returned);
                check_lists(name, request.shape, lists);
            } catch (const Error& error) {
                raise_mistake(error);
            }
        });
        return lists;
    }

    py::object returned_for(const Request& request, const std::vector<int>& devices) const {
        const Shape& shape = request.shape;
        const py::object costs = request.costs != nullptr ? costs_in_python(*request.costs, devices) : py::none();
        try {
            return (*function)(shape.devices, shape.stages, shape.microbatches, py::tuple(py::cast(devices)), costs);
        } catch (const py::error_already_set& raised) {
            if (const std::optional<Error> error = error_in(raised))
                throw Error(*error);
            throw;
        }
    }

    // A mistake of the function is no property of a shape: it ends sweeps and searches as an exception of Python.
    [[noreturn]] void raise_mistake(const Error& error) const {
        const std::string help =
            error.help().empty() ? fmt::format("correct the tasks that {} returns", name) : error.help();
        raise_error({error.code(), error.fact(), help, "pipeline.schedule", "", error.fact() + "\n  help: " + help});
        throw py::error_already_set();
    }

    mutable std::mutex mutex_;
    mutable std::map<Key, std::vector<Tasks>> known_;
    mutable std::size_t kept_ = 0;  // tasks
};

bool is_in_a_table(const std::string& name) {
    try {
        schedule_named(name);
        return true;
    } catch (const Error&) {
        return false;
    }
}

Placement placement_named(const std::string& schedule, const std::string& name) {
    std::string all;
    for (Placement placement : kOwnPlacements) {
        placement.replicas = false;
        if (placement.name == name)
            return placement;
        all += (all.empty() ? "" : ", ") + std::string(placement.name);
    }
    fail("schedule {} has the placement '{}'\n  help: placements are {}, or a list of the device of each stage",
         schedule, name, all);
}

void check_list(const std::string& schedule, const std::vector<int>& devices) {
    const auto count = static_cast<int>(devices.size());
    for (const int device : devices)
        if (device < 0 || device >= count)
            fail(
                "schedule {} places a stage on device {}\n  help: the placement lists the device of each stage, from 0",
                schedule, device);
    for (int device = 0; device < *std::ranges::max_element(devices); ++device)
        if (std::ranges::find(devices, device) == devices.end())
            fail("schedule {} places no stage on device {}\n  help: give each device a stage", schedule, device);
}

}  // namespace

std::shared_ptr<const Schedule> own_schedule(std::string name, const OwnPlacement& placement, bool by_costs,
                                             py::object function) {
    if (is_in_a_table(name))
        fail("a function is named {} like a schedule of pipewright\n  help: give it another name", name);
    auto own = std::make_shared<OwnSchedule>();
    own->text = std::move(name);
    own->name = own->text;
    if (const auto* const list = std::get_if<std::vector<int>>(&placement); list != nullptr && !list->empty()) {
        check_list(own->text, *list);
        own->listed = *list;
        own->placement = {"listed", "its listed stages", any_stages};
        own->placement.devices = own->listed;
        own->chunks = std::max(1, static_cast<int>(list->size()) / own->placement.listed_devices());
    } else {
        own->placement = placement_named(own->text, list != nullptr ? "[]" : std::get<std::string>(placement));
        own->chunks = own->placement.name == kV.name ? 2 : 1;
    }
    own->needs_costs = by_costs;
    own->orders = [](const Request& request) {
        return static_cast<const OwnSchedule&>(*request.schedule).lists(request);
    };
    // The last reference may be given up on a thread without the lock.
    own->function = {new py::object(std::move(function)),
                     [](const py::object* last) { with_lock([&] { delete last; }); }};
    return own;
}

}  // namespace pw
