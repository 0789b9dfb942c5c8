#include "python/error_objects.h"

#include "python/json_objects.h"

#include <string>
#include <string_view>

namespace pw {

namespace py = pybind11;

namespace {

py::object error_class() { return py::module_::import("pipewright._error").attr("Error"); }

// Python says itself that a text is an error.
std::string_view text_of(const Error& error) {
    constexpr std::string_view kPrefix = "error: ";
    const std::string_view text = error.what();
    return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

}  // namespace

py::object error_object(const Error& error) {
    return error_class()(text_object(text_of(error)), text_object(error.fact()), text_object(error.help()),
                         text_object(error.key()), text_object(error.place()), static_cast<int>(error.code()));
}

void raise_error(const Error& error) {
    const py::object object = error_object(error);
    PyErr_SetObject(py::type::of(object).ptr(), object.ptr());
}

std::optional<Error> error_in(const py::error_already_set& raised) {
    if (!raised.matches(error_class()))
        return {};
    const auto field = [&](const char* name) { return py::str(raised.value().attr(name)).cast<std::string>(); };
    const std::string help = field("help");
    return Error(ExitCode::BadInput, help.empty() ? field("fact") : field("fact") + "\n  help: " + help);
}

}  // namespace pw
