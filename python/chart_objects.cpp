#include "python/chart_objects.h"

#include "viz/plot.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace py = pybind11;

namespace {

using Numbers = std::vector<double>;
using Texts = std::vector<std::string>;

// The members of each struct in their order.

py::tuple members_of(const Curve& curve) {
    return py::make_tuple(curve.title, curve.values, curve.x, static_cast<int>(curve.style), curve.labels, curve.names,
                          curve.facts, curve.shades, curve.slot);
}

Curve curve_of(const py::tuple& members) {
    return {members[0].cast<std::string>(),
            members[1].cast<Numbers>(),
            members[2].cast<Numbers>(),
            static_cast<Curve::Style>(members[3].cast<int>()),
            members[4].cast<Texts>(),
            members[5].cast<Texts>(),
            members[6].cast<std::vector<Texts>>(),
            members[7].cast<Numbers>(),
            members[8].cast<int>()};
}

py::tuple members_of(const Axis& axis) {
    py::list levels;
    for (const Level& level : axis.levels)
        levels.append(py::make_tuple(level.at, level.name));
    return py::make_tuple(axis.label, static_cast<int>(axis.quantity), axis.logarithmic, axis.ticks, axis.names, levels,
                          axis.from_zero, axis.most);
}

Axis axis_of(const py::tuple& members) {
    std::vector<Level> levels;
    for (const py::handle level : members[5])
        levels.push_back({level.cast<py::tuple>()[0].cast<double>(), level.cast<py::tuple>()[1].cast<std::string>()});
    return {members[0].cast<std::string>(), static_cast<Quantity>(members[1].cast<int>()),
            members[2].cast<bool>(),        members[3].cast<Numbers>(),
            members[4].cast<Texts>(),       std::move(levels),
            members[6].cast<bool>(),        members[7].cast<std::optional<double>>()};
}

py::tuple members_of_chart(const Chart& chart) {
    py::list curves;
    for (const Curve& curve : chart.curves)
        curves.append(members_of(curve));
    return py::make_tuple(curves, members_of(chart.x), members_of(chart.y), chart.title, chart.remarks, chart.facts,
                          members_of(chart.shade), chart.slots);
}

Chart chart_of_members(const py::tuple& members) {
    std::vector<Curve> curves;
    for (const py::handle curve : members[0])
        curves.push_back(curve_of(curve.cast<py::tuple>()));
    return {std::move(curves),        axis_of(members[1]),      axis_of(members[2]), members[3].cast<std::string>(),
            members[4].cast<Texts>(), members[5].cast<Texts>(), axis_of(members[6]), members[7].cast<int>()};
}

}  // namespace

void add_chart_class(py::module_& module) {
    py::class_<Chart>(module, "Chart").def(py::pickle(&members_of_chart, &chart_of_members));
}

}  // namespace pw
