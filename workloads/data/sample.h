// A sample as a step reads it: plain data, the same for the host and for devices.
#pragma once

#include <cstdint>

namespace pw {

struct Sample {
    int place = 0;                     // where it is stored
    std::int16_t row = 0, column = 0;  // where in the image the crop starts (outside are zeros)
    bool flip = false;                 // left to right, after the crop
    int first = 0;                     // of a sequence: the first token that is read
};

}  // namespace pw
