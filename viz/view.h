// The part of a picture of traces that is drawn.
#pragma once

#include "viz/picture.h"

namespace pw {

struct Shown {
    Ns from, to;
};
// Returns the range of the view. Throws Error (BadInput) if the picture has nothing in it.
Shown shown_part(const Picture& picture, const View& view);
// Removes what is outside, and cuts boxes and curves at the edges. Times remain those since the start of their trace;
// the length becomes that of the part.
void crop(Picture& picture, const Shown& shown);

}  // namespace pw
