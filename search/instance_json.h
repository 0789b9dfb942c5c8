// Objects of an instance file, read with every key looked up, typed and bounded.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pw {

// Refuses what is no JSON object. `name` stands in messages: the file's.
nlohmann::json parse_instance(const std::string& text, const std::string& name);
std::string contents_of_instance(const std::string& path);

struct InstanceObject {
    const nlohmann::json& object;
    std::string place;  // "instance 'gnmt.json': nodes[3]"

    const nlohmann::json& at(const char* key) const;
    bool has(const char* key) const { return object.contains(key); }
    std::string text(const char* key) const;
    double amount(const char* key) const;  // a finite number, not negative
    int integer(const char* key, int least) const;
    bool flag(const char* key) const;  // true, false, 1 or 0
    InstanceObject child(const char* key) const;
    std::vector<InstanceObject> list(const char* key) const;  // of objects
};

}  // namespace pw
