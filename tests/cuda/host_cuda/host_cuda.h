// A host stand-in of the part of CUDA, cuDNN, cuBLAS and NCCL that exec/cuda uses. Tests compile the very same
// sources against its headers, as plain C++, and run them on the CPU.
//
// A stream is a thread with a queue, so that work is as asynchronous as on a device: a missing wait for an event
// leads to a wrong number, or to a report of the thread sanitizer. The stand-in therefore orders threads only where
// CUDA guarantees an order. Fresh memory is full of NaNs. Arguments are refused with which a device would fail
// later: memory that it cannot reach, streams and events of another device. If CUDA permits several behaviours, the
// stand-in has the least convenient one.
//
// Streams capture kernels, copies, fills, host functions, cuDNN, cuBLAS and events, across streams, and from
// threads that take turns: two concurrent calls into one graph spoil it. A launched graph runs on threads of its
// own, one per captured stream, with only the captured order. A call that a capture does not permit ends the
// capture, and so do allocations and similar calls unless it is relaxed. An event recorded with
// cudaEventRecordExternal is recorded by each launch, as if cudaGraphLaunch itself recorded it. NCCL, graphs in
// graphs, copies of memory that is not pinned and waits for work outside are refused in a capture.
//
// It shows nothing about speed. It does not model: an order between the threads of a kernel (they run one after the
// other, in ascending or descending order), pointers in memory that kernels get, the attributes of launches, shared
// memory whose size a launch sets, blocking streams and the waits of the default stream (streams must be
// non-blocking), graphs that are built or changed by hand, priorities, the SMs of a green context (they are only
// counted), TF32 and other lower precision, NCCL's connections within a process (the first transfer of a pair does
// not wait for the other end to issue it).
//
// Communicators connect processes of one machine, over sockets in memory. Between processes the first transfer of a
// pair stays in progress until the other end has issued it, and the end of a process is a remote error for all
// others. The buffer of a receive is full of NaNs until the message has arrived.
// HOST_CUDA_DEVICES is the number of GPUs of the machine. All processes see all of them, or those of
// CUDA_VISIBLE_DEVICES.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

namespace host_cuda {

// To be called before the first call of a test that needs other settings than these defaults. Devices: 0 to 16.
void set_devices(int devices);            // 1
void set_memory(std::size_t per_device);  // 1 GiB
void set_peer_access(bool possible);      // true; false also disables enabled access
// Whether cuDNN accepts only streams of the current context, a green context or the device's own, and works only
// while the context of its handle is current.
void set_cudnn_contexts(bool matter);  // false

// The engines of convolutions, in the order in which they are proposed. Heuristics propose the first three, their
// fallback the last one. `Fast` uses tensor cores, for fp32 in TF32, and is deterministic only forward; `Ordinary` is
// deterministic and needs a workspace; `Unfit` cannot be built; `Plain` is deterministic.
enum class ConvolutionEngine { Fast, Ordinary, Unfit, Plain };

// Exceptions; narrow convolutions are those of bf16 whose channels are not a multiple of 8.
struct ConvolutionLimits {
    std::set<ConvolutionEngine> not_narrow{};     // engines that cannot be built for narrow ones
    std::set<ConvolutionEngine> not_on_shares{};  // that can be built for shares, but not launched there
    std::set<ConvolutionEngine> slow{};           // that take milliseconds
};
void set_convolution_limits(const ConvolutionLimits& limits);

struct RanConvolution {
    int pass;  // 0 forward, 1 data, 2 filter
    ConvolutionEngine engine;
};
std::vector<RanConvolution> take_convolutions();  // all since the last call

std::size_t allocated(int device);  // bytes
std::size_t launches_on_pinned();   // the number of kernels with arguments in memory of the host

// From now on the calls for a device fail as after an error in a kernel: all calls that put work there, or only
// queries of events, as if the host had already put all work there. -1: for no device.
void break_device(int device, bool launches = true);
void set_clock_rate(double rate);  // of the devices' clocks, relative to the host's; 1 at first

// Delays some work by microseconds, and runs some kernels from the last thread to the first, so that other orders
// happen. 0 ends this. The variable HOST_CUDA_SLOW is the first seed.
void slow_streams(std::uint64_t seed);
void slow_events(int microseconds);  // the time of a stream for recording an event
// Memory in the arguments of a call, which reads or writes it.
struct Argument {
    const void* memory;
    bool written;
};
// From now on kernels, copies, fills and products do nothing except call `seen`, on the thread that queues them,
// and fresh memory is not filled. Null: they work again.
void only_show_calls(std::function<void(std::span<const Argument>)> seen);

}  // namespace host_cuda
