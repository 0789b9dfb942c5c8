// Memory for what the libraries of a backend take at the first tasks of a run.
#pragma once

#include <cstddef>

namespace pw {

// oneDNN makes kernels at their first use, and a signal ends the program where there is no memory for them. This keeps
// address space free for that while the run reserves the rest of its memory.
class Headroom {
public:
    // Throws std::bad_alloc unless the process may have it, and as much again for the libraries' work until release().
    Headroom();
    ~Headroom() { release(); }
    Headroom(const Headroom&) = delete;
    Headroom& operator=(const Headroom&) = delete;

    void release();  // just before the first task

private:
    static constexpr std::size_t kBytes = std::size_t{32} << 20;
    void* kept_ = nullptr;
};

}  // namespace pw
