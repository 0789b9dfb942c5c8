// Vendor handles that destroy themselves.
#pragma once

#include <memory>
#include <type_traits>

namespace pw::cuda {

template <auto destroy>
struct Destroy {
    template <class Thing>
    void operator()(Thing* thing) const {
        (void)destroy(thing);  // a destructor cannot report an error
    }
};

// An owned handle, as in Owned<cudaStream_t, cudaStreamDestroy>.
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

}  // namespace pw::cuda
