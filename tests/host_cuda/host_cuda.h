// A host stand-in of the part of CUDA, cuDNN, cuBLAS and NCCL that exec/cuda uses. Tests compile the very same
// sources against its headers, as plain C++, and run them on the CPU.
//
// A stream is a thread with a queue, so work is as asynchronous as on a device: a missing wait for an event shows as a
// wrong number, or as a report of the thread sanitizer. For that the stand-in orders threads only where CUDA promises
// an order. Fresh memory is full of NaNs. Arguments are refused where a device would fail later: memory that it
// cannot reach, streams and events of another device. Where CUDA leaves a choice, the stand-in takes the less
// convenient one.
//
// Streams capture: kernels, copies, fills, host functions, cuDNN, cuBLAS and events, across streams and threads. A
// launched graph runs on threads of its own, one for each stream that took part, with only the captured order. What
// a capture does not permit ends it, and so do allocations and the like unless it is relaxed. An event recorded there
// with cudaEventRecordExternal is recorded by each launch, as if cudaGraphLaunch itself recorded it. NCCL, graphs in
// graphs, copies of memory that is not pinned and waits for work outside are refused in a capture.
//
// It says nothing about speed. It does not model: an order between the threads of a kernel (they run one after the
// other, up or down), pointers inside of structs that kernels take, the attributes of launches, shared
// memory whose size a launch says, blocking streams and what the default stream waits for (streams must be non-blocking), graphs that are built or
// changed by hand, priorities, the SMs of a green context (they are counted only), TF32 and other lower precision,
// NCCL between processes or its connections (the first transfer of a pair does not wait for the other end to issue
// it), faults after launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace host_cuda {

// Before the first call of a test that wants something else. Devices: 0 to 16.
void set_devices(int devices);            // 1
void set_memory(std::size_t per_device);  // 1 GiB
void set_peer_access(bool possible);      // true

std::size_t allocated(int device);  // bytes

// Delays work by some microseconds now and then, and lets some kernels run from the last thread to the first, so that
// other orders happen. 0: not any more.
void slow_streams(std::uint64_t seed);

// Memory that a call was given: read, or written.
struct Argument {
    const void* memory;
    bool written;
};
// From now on kernels, copies, fills and products are shown to `seen`, on the thread that queues them, and do nothing;
// fresh memory is not filled. Null: they work again.
void only_show_calls(std::function<void(std::span<const Argument>)> seen);

}  // namespace host_cuda
