// A host stand-in of the part of CUDA, cuDNN, cuBLAS and NCCL that exec/cuda uses. Tests compile the very same
// sources against its headers, as plain C++, and run them on the CPU.
//
// A stream is a thread with a queue, so work is as asynchronous as on a device: a missing wait for an event shows as a
// wrong number, or as a report of the thread sanitizer. For that the stand-in orders threads only where CUDA promises
// an order. Fresh memory is full of NaNs. Arguments are refused where a device would fail later: memory that it
// cannot reach, streams and events of another device. Where CUDA leaves a choice, the stand-in takes the less
// convenient one.
//
// Streams capture: kernels, copies, fills, host functions, cuDNN, cuBLAS and events, across streams, and from threads
// that take turns: two calls at a time into one graph spoil it. A launched graph runs on threads of its own, one for
// each stream that took part, with only the captured order. What a capture does not permit ends it, and so do
// allocations and the like unless it is relaxed. An event recorded there with cudaEventRecordExternal is recorded by
// each launch, as if cudaGraphLaunch itself recorded it. NCCL, graphs in graphs, copies of memory that is not pinned
// and waits for work outside are refused in a capture.
//
// It says nothing about speed. It does not model: an order between the threads of a kernel (they run one after the
// other, up or down), pointers behind pointers that kernels take, the attributes of launches, shared memory whose size
// a launch says, blocking streams and what the default stream waits for (streams must be non-blocking), graphs that are
// built or changed by hand, priorities, the SMs of a green context (they are counted only), TF32 and other lower
// precision, NCCL's connections within a process (the first transfer of a pair does not wait for the other end to issue
// it).
//
// Communicators join processes of one machine, over sockets in memory. There the first transfer of a pair stays in
// progress until the other end has issued it, and a process that ends is a remote error for all others. What a kernel
// receives into is full of NaNs until the message is there.
// HOST_CUDA_DEVICES says how many GPUs the machine has, which all its processes see, or some of them with
// CUDA_VISIBLE_DEVICES.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace host_cuda {

// Before the first call of a test that wants something else. Devices: 0 to 16.
void set_devices(int devices);            // 1
void set_memory(std::size_t per_device);  // 1 GiB
void set_peer_access(bool possible);      // true; false: not any more
// Whether cuDNN takes streams of the current context only, that of a green context or the device's own, and works only
// while the context is current in which its handle was made.
void set_cudnn_contexts(bool matter);  // false

// What the convolutions refuse; all false: nothing that a shape could be blamed for. Narrow ones are those of bf16 with
// channels that are no multiple of 8.
struct ConvolutionLimits {
    bool narrow_tensor_ops = false;  // algorithm 1 of narrow ones in TENSOR_OP_MATH
    bool narrow_default = false;     // and in DEFAULT_MATH
    // Narrow ones have no algorithm 1; only heuristics and timing name those they have: 0, which repeats in no backward
    // pass, and 5.
    bool narrow_algorithms = false;
    bool find_narrow = false;  // timing them fails
};
void set_convolution_limits(const ConvolutionLimits& limits);

struct RanConvolution {
    int pass, algorithm, math;  // pass: 0 forward, 1 data, 2 filter
};
std::vector<RanConvolution> take_convolutions();  // all since the last call
int take_timings();                               // calls of cudnnFind...Ex since the last call

std::size_t allocated(int device);  // bytes
std::size_t launches_on_pinned();   // kernels that were given memory of the host, which each access fetches anew

// From now on the calls for a device fail as after a fault of a kernel: all that put work there, or, as when the host
// had been done with that, only questions after events. -1: of none.
void break_device(int device, bool launches = true);
void set_clock_rate(double rate);  // 1: how fast the devices' clocks go beside the host's

// Delays work by some microseconds now and then, and lets some kernels run from the last thread to the first, so that
// other orders happen. 0: not any more. The variable HOST_CUDA_SLOW is the first seed.
void slow_streams(std::uint64_t seed);
void slow_events(int microseconds);  // that a stream takes to record one

// Memory that a call was given: read, or written.
struct Argument {
    const void* memory;
    bool written;
};
// From now on kernels, copies, fills and products are shown to `seen`, on the thread that queues them, and do nothing;
// fresh memory is not filled. Null: they work again.
void only_show_calls(std::function<void(std::span<const Argument>)> seen);

}  // namespace host_cuda
