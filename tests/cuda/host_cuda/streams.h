// Streams, events and memory of the stand-in, for its libraries.
#pragma once

#include "tests/cuda/host_cuda/host_cuda.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <forward_list>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace host_cuda {

inline constexpr int kMaxDevices = 16;

// Sleeps until `word` may have changed from `seen`, if `briefly` at most a millisecond. It orders nothing.
void sleep_while(const std::atomic<int>& word, int seen, bool briefly);
void wake_sleepers(const std::atomic<int>& word);

// A flag that is set once and that many threads wait for. It orders only the work before set() and the work after
// wait(): a mutex would also order one waiter before the next, and so hide races from the thread sanitizer.
class Signal {
public:
    void set() {
        if (word_.exchange(kSet, std::memory_order_release) == kAwaited)
            wake_sleepers(word_);  // has no effect if a waiter has already freed the word
    }
    bool is_set() const { return word_.load(std::memory_order_acquire) == kSet; }
    void wait() const {
        while (!is_set())
            sleep(false);
    }
    void wait_briefly() const { sleep(true); }  // at most a millisecond

private:
    void sleep(bool briefly) const {
        int seen = kUnset;
        if (word_.compare_exchange_strong(seen, kAwaited, std::memory_order_relaxed) || seen == kAwaited)
            sleep_while(word_, kAwaited, briefly);
    }

    enum : int { kUnset, kAwaited, kSet };
    mutable std::atomic<int> word_{kUnset};
};

// Null stands for the stream of the current device that cudaMemcpy uses.
CUstream_st* find_stream(cudaStream_t stream);
cudaError_t make_stream(int device, cudaStream_t* stream);
void destroy_streams(int device);
void wait_for_streams(int device);

// If only_show_calls() is active, passes it the call, and returns true.
bool only_shown(std::span<const Argument> arguments);
inline bool only_shown(std::initializer_list<Argument> arguments) {
    return only_shown(std::span(arguments.begin(), arguments.size()));
}
bool shows_only();

// Appends work to a stream, or to its capture; `then` is set when the stream counts it as finished.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, Signal* then = nullptr);

// Recordings exist as long as the process: a thread that waits for one need not own it, and counting its users
// would order them. No lock protects the newest one: in CUDA the caller must order a record on one thread and a
// wait on another, and if it does not, the sanitizer reports exactly that.
struct Recording {
    Signal done;
    std::chrono::steady_clock::time_point time;
};

// Captures. A call that is not permitted in a capture ends it: after that only cudaStreamEndCapture may be called,
// and fails.
struct Node;
struct Lane;
cudaError_t refuse_capture_on(int device);             // for calls that wait for all its streams
cudaError_t refuse_captured(const CUevent_st& event);  // for calls that query it or wait for it
cudaError_t check_unsafe_call();  // for calls that are forbidden during a capture that is not relaxed

int current_device();  // -1 without devices
// The context of the thread: a green context, or null for the current device's own.
const void* current_context();
void set_context(int device, const void* green);
bool is_device(int device);

// The device that owns the memory, or one of these.
inline constexpr int kPinned = -1, kUnknown = -2;
int home_of(const void* pointer);
bool reaches(int device, const void* pointer);  // also for null

cudaError_t result(cudaError_t error);  // sets the thread's last error

}  // namespace host_cuda

struct CUstream_st {
    explicit CUstream_st(int device_number);

    bool push(std::function<void()> work, host_cuda::Signal* then = nullptr);  // false: it has been closed
    void synchronize();
    bool is_idle();
    void close();   // waits until its work is done
    void retire();  // closes without waiting; the stream must outlive its work

    cudaError_t push_or_capture(std::function<void()> work, host_cuda::Signal* then);
    cudaError_t wait_for(const CUevent_st& event);  // the event has been recorded
    cudaError_t begin_capture(cudaStreamCaptureMode mode);
    cudaError_t end_capture(cudaGraph_t* graph);
    cudaError_t capture_record(CUevent_st& event, bool external);
    cudaStreamCaptureStatus capture_status();
    cudaError_t refuse_capture();
    void leave_capture();  // as when a stream is destroyed

    const int device;
    const void* context = nullptr;  // green, or the device's own

private:
    // The queue: one thread reads it, and the threads that push take turns. The last item stays until there is a
    // next one.
    struct Item {
        std::function<void()> work;  // empty: the end
        host_cuda::Signal* then = nullptr;
        host_cuda::Signal finished, has_next;
        Item* next = nullptr;
    };
    void run(Item* item);
    void append(Item* item);
    void finish();
    static void release(CUgraph_st& graph);  // its streams

    const int number_;
    std::mutex pushing_;
    bool closed_ = false;
    host_cuda::Lane* lane_ = nullptr;  // while it captures
    Item* last_;
    std::thread thread_;
};

struct CUevent_st {
    const int device;
    const unsigned flags;
    std::forward_list<host_cuda::Recording> recordings{};  // newest first
    CUgraph_st* graph = nullptr;                           // of its capture, if that was its last record
    std::vector<const host_cuda::Node*> after{};           // the captured nodes that it stands for
};
