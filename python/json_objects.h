// JSON as Python's objects: dict, list, str, int, float, bool and None.
#pragma once

#include "report/json.h"

#include <pybind11/pybind11.h>

#include <string_view>

namespace pw {

pybind11::object objects_of(const Json& json);
// Bytes that are no UTF-8, such as parts of a file that is no text, are replaced.
pybind11::str text_object(std::string_view text);

}  // namespace pw
