// What the passes of layers spend their time on.
#pragma once

#include <string_view>

namespace pw {

// The seconds of a layer's passes by what takes them.
struct PassParts {
    double products = 0, attention = 0, moved = 0;  // moved: kernels bound by memory
    // Messages as far as nothing hides them, with the computation that they slow down. `tensor`: tensor parallelism,
    // `context`: keys and values of other parts of a sequence, `experts`: tokens to their experts and back, `weights`:
    // weights and their gradients with ZeRO-3.
    double tensor = 0, context = 0, experts = 0, weights = 0;
    double launches = 0;  // while the device waits for its host
    double again = 0;     // recomputed
    double other = 0;     // what no kernel and no message accounts for
};

struct PassPart {
    std::string_view name;  // in JSON, in the seconds of a cluster (the same for messages of all kinds)
    double PassParts::*seconds;
};
inline constexpr PassPart kPassParts[] = {{"products", &PassParts::products},  {"attention", &PassParts::attention},
                                          {"memory_bound", &PassParts::moved}, {"messages", &PassParts::tensor},
                                          {"messages", &PassParts::context},   {"messages", &PassParts::experts},
                                          {"messages", &PassParts::weights},   {"launches", &PassParts::launches},
                                          {"recomputed", &PassParts::again},   {"other", &PassParts::other}};

inline PassParts& operator+=(PassParts& sum, const PassParts& more) {
    for (const auto& [name, seconds] : kPassParts)
        sum.*seconds += more.*seconds;
    return sum;
}

}  // namespace pw
