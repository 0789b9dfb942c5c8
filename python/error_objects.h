// Errors as Python's exceptions, in both directions.
#pragma once

#include "workloads/error.h"

#include <pybind11/pybind11.h>

#include <optional>

namespace pw {

pybind11::object error_object(const Error& error);  // a pipewright.Error
void raise_error(const Error& error);               // sets it as the exception of this thread
// Returns the error if a pipewright.Error was raised, without its key and place.
std::optional<Error> error_in(const pybind11::error_already_set& raised);

}  // namespace pw
