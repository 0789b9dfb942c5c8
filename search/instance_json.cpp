#include "search/instance_json.h"

#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"

#include <cmath>
#include <limits>

namespace pw {

using nlohmann::json;

json parse_instance(const std::string& text, const std::string& name) {
    json read = parse_json(text, fmt::format("instance '{}'", name));
    if (!read.is_object())
        fail("instance '{}': expected an object with 'nodes' and 'edges', got {}", name, read.type_name());
    return read;
}

std::string contents_of_instance(const std::string& path) {
    return read_text(path, "name an instance of dnn-partitioning or Piper, a *.json");
}

const json& InstanceObject::at(const char* key) const {
    const auto found = object.find(key);
    if (found == object.end())
        fail("{} has no key '{}'", place, key);
    return *found;
}

std::string InstanceObject::text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string())
        fail("{}.{}: expected a string, got {}", place, key, shown(value));
    return value.get<std::string>();
}

double InstanceObject::amount(const char* key) const {
    const json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
        fail("{}.{}: expected a number that is not negative, got {}", place, key, shown(value));
    return value.get<double>();
}

int InstanceObject::integer(const char* key, int least) const {
    const json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= least && number <= std::numeric_limits<int>::max()) || number != std::floor(number))
        fail("{}.{}: expected a whole number from {} on, got {}", place, key, least, shown(value));
    return static_cast<int>(number);
}

bool InstanceObject::flag(const char* key) const {
    const json& value = at(key);
    if (value.is_boolean())
        return value.get<bool>();
    if (value != 0 && value != 1)
        fail("{}.{}: expected true, false, 1 or 0, got {}", place, key, shown(value));
    return value == 1;
}

InstanceObject InstanceObject::child(const char* key) const {
    const json& value = at(key);
    if (!value.is_object())
        fail("{}.{}: expected an object, got {}", place, key, value.type_name());
    return {value, fmt::format("{}.{}", place, key)};
}

std::vector<InstanceObject> InstanceObject::list(const char* key) const {
    const json& value = at(key);
    if (!value.is_array())
        fail("{}.{}: expected a list, got {}", place, key, value.type_name());
    std::vector<InstanceObject> items;
    for (std::size_t i = 0; i < value.size(); ++i) {
        items.push_back({value[i], fmt::format("{}.{}[{}]", place, key, i)});
        if (!value[i].is_object())
            fail("{}: expected an object, got {}", items.back().place, value[i].type_name());
    }
    return items;
}

void NodeNumbers::add(const InstanceObject& node) {
    const int id = node.integer("id", 0);
    if (!numbers_.emplace(id, static_cast<int>(ids_.size())).second)
        fail("{}: id {} is taken already", node.place, id);
    ids_.push_back(id);
}

int NodeNumbers::end_of(const InstanceObject& edge, const char* key) const {
    const int id = edge.integer(key, 0);
    const auto found = numbers_.find(id);
    if (found == numbers_.end())
        fail("{}.{}: no node has id {}", edge.place, key, id);
    return found->second;
}

std::string name_of_node(const InstanceObject& node) {
    return node.has("name") ? node.text("name") : fmt::format("node {}", node.integer("id", 0));
}

}  // namespace pw
