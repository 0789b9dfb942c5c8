// What the passes of layers spend their time on.
#pragma once

#include <string_view>

namespace pw {

// The seconds of a layer's passes by what takes them.
struct PassParts {
    double products = 0, attention = 0, moved = 0;  // moved: kernels bound by memory
    double messages = 0;                            // of the device's group, as far as nothing hides them
    double launches = 0;                            // while the device waits for its host
    double again = 0;                               // recomputed
    double other = 0;                               // what no kernel and no message accounts for
};

struct PassPart {
    std::string_view name;  // in JSON
    double PassParts::*seconds;
};
inline constexpr PassPart kPassParts[] = {{"products", &PassParts::products},  {"attention", &PassParts::attention},
                                          {"memory_bound", &PassParts::moved}, {"messages", &PassParts::messages},
                                          {"launches", &PassParts::launches},  {"recomputed", &PassParts::again},
                                          {"other", &PassParts::other}};

inline PassParts& operator+=(PassParts& sum, const PassParts& more) {
    for (const auto& [name, seconds] : kPassParts)
        sum.*seconds += more.*seconds;
    return sum;
}

}  // namespace pw
