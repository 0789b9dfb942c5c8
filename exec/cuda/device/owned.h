// Vendor handles that destroy themselves.
#pragma once

#include <memory>
#include <type_traits>

namespace pw::cuda {

template <auto destroy>
struct Destroy {
    template <class Thing>
    void operator()(Thing* thing) const {
        (void)destroy(thing);  // nobody is left to tell
    }
};

// An owned handle is written like this: Owned<cudaStream_t, cudaStreamDestroy>.
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

}  // namespace pw::cuda
