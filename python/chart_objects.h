// Charts as objects of Python, which can be pickled.
#pragma once

#include <pybind11/pybind11.h>

namespace pw {

void add_chart_class(pybind11::module_& module);

}  // namespace pw
