#include "job/config/keys.h"

#include "job/config/blocks.h"
#include "workloads/text/json_text.h"

#include <limits>

namespace pw {
namespace {

std::string range_of(std::int64_t least, std::int64_t most) {
    return most == std::numeric_limits<std::int64_t>::max() ? fmt::format("{} or more", least)
                                                            : fmt::format("{} to {}", least, most);
}

std::string taken_by(const KeyDomain& domain) {
    switch (domain.kind) {
        case KeyKind::Integer:
            return range_of(domain.least, domain.most);
        case KeyKind::Integers:
            return fmt::format("a list, each {}", range_of(domain.least, domain.most));
        case KeyKind::Number:
            return fmt::format("{} to {}", domain.lowest, domain.highest);
        case KeyKind::Numbers:
            return fmt::format("a list, each {} to {}", domain.lowest, domain.highest);
        case KeyKind::Time:
            return domain.least == 0 ? "time" : fmt::format("time, {} or more", print_time(domain.least));
        case KeyKind::Size:
            return "size";
        case KeyKind::Bandwidth:
            return "bandwidth";
        case KeyKind::Rate:
            return "compute rate";
        case KeyKind::Choice:
            return fmt::format("`{}`", fmt::join(domain.names(), "`, `"));
        case KeyKind::Flag:
            return "`false`, `true`";
        case KeyKind::Text:
            return "text";
        case KeyKind::Path:
            return "path";
        case KeyKind::Special:
            return std::string(domain.takes);
    }
    return {};
}

bool is_code(KeyKind kind) { return kind == KeyKind::Choice || kind == KeyKind::Flag || kind == KeyKind::Special; }

std::string fallback_of(const ConfigKey& key, const Config& usual) {
    if (!key.fallback.empty())
        return std::string(key.fallback);
    const std::string text = key.value.print(usual);
    return is_code(key.value.domain.kind) ? fmt::format("`{}`", text) : text;
}

// A decimal number with one of the units.
std::string quantity_schema(const std::vector<std::string_view>& units, bool may_be_infinite) {
    return fmt::format(R"({{"type": "string", "pattern": "^({}[0-9.][0-9.eE+-]* *({}))$"}})",
                       may_be_infinite ? "inf|" : "", fmt::join(units, "|"));
}

}  // namespace

std::vector<KeyFacts> config_keys() {
    const Config usual;
    std::vector<KeyFacts> all;
    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys)
            if (!key.help.empty())
                all.push_back({std::string(block.name), std::string(key.name), taken_by(key.value.domain),
                               fallback_of(key, usual),
                               key.limit.words == nullptr
                                   ? std::string(key.help)
                                   : fmt::format("{}: {}", key.limit.words(key.name), key.help)});
    return all;
}

std::string schema_of(const KeyDomain& domain) {
    switch (domain.kind) {
        case KeyKind::Integer:
            return fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", domain.least, domain.most);
        case KeyKind::Integers:
            return fmt::format(R"({{"type": "array", "items": {{"type": "integer", "minimum": {}, "maximum": {}}}}})",
                               domain.least, domain.most);
        case KeyKind::Number:
            return fmt::format(R"({{"type": "number", "minimum": {}, "maximum": {}}})", domain.lowest, domain.highest);
        case KeyKind::Numbers:
            return fmt::format(R"({{"type": "array", "items": {{"type": "number", "minimum": {}, "maximum": {}}}}})",
                               domain.lowest, domain.highest);
        case KeyKind::Time:
            return R"({"$ref": "#/$defs/time"})";
        case KeyKind::Size:
            return R"({"$ref": "#/$defs/size"})";
        case KeyKind::Bandwidth:
            return R"({"$ref": "#/$defs/bandwidth"})";
        case KeyKind::Rate:
            return R"({"$ref": "#/$defs/rate"})";
        case KeyKind::Choice:
            return fmt::format(R"({{"enum": ["{}"]}})", fmt::join(domain.names(), R"(", ")"));
        case KeyKind::Flag:
            return R"({"type": "boolean"})";
        case KeyKind::Text:
            return R"({"$ref": "#/$defs/name"})";
        case KeyKind::Path:
            return R"({"type": "string"})";
        case KeyKind::Special:
            break;
    }
    std::string schema(domain.schema);
    if (domain.part != nullptr)
        schema.replace(schema.find('%'), 1, domain.part());
    return schema;
}

std::string config_schema() {
    using Json = nlohmann::ordered_json;
    const auto json = [](const std::string& text) { return parse_json<Json>(text, "schema"); };
    Json schema = json(R"({"$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A config of pipewright", "type": "object", "required": ["workload"], "properties": {},
        "additionalProperties": false,
        "$defs": {"name": {"type": ["string", "integer"]}, "names": {"type": "array", "items": {"$ref": "#/$defs/name"}}}
        })");
    Json& definitions = schema["$defs"];
    definitions["time"] = json(quantity_schema(time_units(), false));
    definitions["size"] = json(quantity_schema(size_units(), true));
    definitions["bandwidth"] = json(quantity_schema(bandwidth_units(), true));
    definitions["rate"] = json(quantity_schema(rate_units(), false));
    Json& blocks = schema["properties"];
    std::string known;
    for (const ConfigBlock& block : config_blocks()) {
        Json& own = blocks[std::string(block.name)] = json(object_schema<Config>(block.keys));
        for (const ConfigKey& key : block.keys)
            if (const std::string name(key.name); own["properties"].contains(name)) {
                Json described = {{"description", key.limit.words == nullptr
                                                      ? std::string(key.help)
                                                      : fmt::format("{}: {}", key.limit.words(key.name), key.help)}};
                described.update(own["properties"][name]);
                own["properties"][name] = std::move(described);
            }
        known += fmt::format("{}{}", known.empty() ? "" : "|", block.name);
    }
    blocks["workload"]["required"] = {"model"};
    blocks["sweep"] = json(fmt::format(
        R"({{"type": ["object", "null"], "propertyNames": {{"pattern": "^({})(\\..*)?$"}},
            "properties": {{"pipeline.schedule": {{"anyOf": [{{"const": "all"}}, {{"type": "array", "minItems": 1}}]}}}},
            "additionalProperties": {{"type": "array", "minItems": 1}}}})",
        known));
    return schema.dump(2);
}

}  // namespace pw
