// What the passes of layers spend their time on.
#pragma once

namespace pw {

// The seconds of a layer's passes by what takes them.
struct PassParts {
    double products = 0, attention = 0, moved = 0;  // moved: kernels bound by memory
    double messages = 0;                            // of the device's group, as far as nothing hides them
    double launches = 0;                            // while the device waits for its host
    double again = 0;                               // recomputed
    double other = 0;                               // what no kernel and no message accounts for
    PassParts& operator+=(const PassParts& more);
};

inline constexpr double PassParts::*kPassParts[] = {&PassParts::products, &PassParts::attention, &PassParts::moved,
                                                    &PassParts::messages, &PassParts::launches,  &PassParts::again,
                                                    &PassParts::other};

}  // namespace pw
