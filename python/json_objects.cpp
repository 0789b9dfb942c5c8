#include "python/json_objects.h"

#include <nlohmann/json.hpp>

namespace pw {

namespace py = pybind11;

py::str text_object(std::string_view text) {
    return py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
}

py::object objects_of(const Json& json) {
    using Type = Json::value_t;
    switch (json.type()) {
        case Type::object: {
            py::dict items;
            for (const auto& [name, value] : json.items())
                items[text_object(name)] = objects_of(value);
            return items;
        }
        case Type::array: {
            py::list items(json.size());
            for (std::size_t i = 0; i < json.size(); ++i)
                items[i] = objects_of(json[i]);
            return items;
        }
        case Type::string:
            return text_object(json.get_ref<const std::string&>());
        case Type::boolean:
            return py::bool_(json.get<bool>());
        case Type::number_integer:
            return py::int_(json.get<std::int64_t>());
        case Type::number_unsigned:
            return py::int_(json.get<std::uint64_t>());
        case Type::number_float:
            return py::float_(json.get<double>());
        case Type::null:
        case Type::binary:
        case Type::discarded:
            return py::none();
    }
    return py::none();
}

}  // namespace pw
