// Objects of an instance file, read with every key looked up, typed and bounded.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace pw {

// Parses a JSON object and refuses other values. `name`, the file's, appears in messages.
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
    std::vector<InstanceObject> list(const char* key) const;  // a list of objects
};

// Numbers the nodes of an instance from 0, in the order of its file; edges name them by their ids.
class NodeNumbers {
public:
    // Refuses an id that another node has.
    void add(const InstanceObject& node);
    int id_of(int number) const { return ids_[static_cast<std::size_t>(number)]; }
    // Returns the number of the node whose id the edge has under `key`.
    int end_of(const InstanceObject& edge, const char* key) const;

private:
    std::vector<int> ids_;
    std::map<int, int> numbers_;
};

std::string name_of_node(const InstanceObject& node);  // "node 7" without a name of its own

}  // namespace pw
