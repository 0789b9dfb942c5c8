// Streams and events.
#include "tests/cuda/host_cuda/streams.h"

#include <cuda_runtime.h>

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace host_cuda {
namespace {

std::uint64_t seed_of_environment() {
    const char* seed = std::getenv("HOST_CUDA_SLOW");
    return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
}
std::atomic<std::uint64_t> slow_seed{seed_of_environment()};
std::atomic<int> event_delay{0};  // microseconds
std::atomic<std::size_t> pinned_launches{0};
std::atomic<double> clock_rate{1};
std::atomic<int> broken_device{-1};
std::atomic<bool> breaks_launches{true};
thread_local bool is_stream_thread = false, is_backwards = false;
std::function<void(std::span<const Argument>)> seen_by;  // set before any thread queues

struct Streams {
    std::mutex mutex;
    std::vector<std::shared_ptr<CUstream_st>> all;
    std::shared_ptr<CUstream_st> null_stream;
};

Streams& streams_of(int device) {
    static auto* streams = new Streams[kMaxDevices];  // never freed, since threads may outlive main
    return streams[device];
}

std::shared_ptr<CUstream_st> add_stream(Streams& streams, int device) {
    streams.all.push_back(std::make_shared<CUstream_st>(device));
    return streams.all.back();
}

std::vector<std::shared_ptr<CUstream_st>> all_of(int device) {
    Streams& streams = streams_of(device);
    std::lock_guard lock(streams.mutex);
    return streams.all;
}

int next_number() {
    static std::atomic<int> numbers{0};
    return ++numbers;
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

void shake(int stream, int item) {
    const std::uint64_t seed = slow_seed.load(std::memory_order_relaxed);
    const std::uint64_t dice = seed == 0 ? 0 : mixed(seed ^ mixed(static_cast<std::uint64_t>(stream) << 32 | item));
    is_backwards = dice & 1;
    if ((dice >> 1 & 15) == 1)
        std::this_thread::sleep_for(std::chrono::microseconds(dice >> 8 & 127));
}

// A number in a struct and the padding after it, which may be half of an old address.
bool is_padded_number(const void* word) {
    constexpr std::uintptr_t kSmall = 1 << 20, kLowerHalf = 0xffffffff;
    return (reinterpret_cast<std::uintptr_t>(word) & kLowerHalf) < kSmall;
}

cudaError_t refuse_pointer(const CUstream_st& stream, const void* pointer, const char* what, std::ptrdiff_t number) {
    std::fprintf(stderr, "host_cuda: a kernel on device %d was given %p, %s %td, which it does not reach (home: %d)\n",
                 stream.device, pointer, what, number, home_of(pointer));
    return result(cudaErrorIllegalAddress);
}

}  // namespace

void only_show_calls(std::function<void(std::span<const Argument>)> seen) { seen_by = std::move(seen); }

void slow_streams(std::uint64_t seed) { slow_seed = seed; }
void slow_events(int microseconds) { event_delay = microseconds; }
std::size_t launches_on_pinned() { return pinned_launches; }
void set_clock_rate(double rate) { clock_rate = rate; }
void break_device(int device, bool launches) {
    breaks_launches = launches;
    broken_device = device;
}

// This is the system call itself, in which the sanitizer sees no order.
void sleep_while(const std::atomic<int>& word, int seen, bool briefly) {
    const timespec millisecond{0, 1'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, briefly ? &millisecond : nullptr, nullptr, 0);
}

void wake_sleepers(const std::atomic<int>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}

CUstream_st* find_stream(cudaStream_t stream) {
    const int device = current_device();
    if (stream != nullptr || device < 0)
        return stream;
    Streams& streams = streams_of(device);
    std::lock_guard lock(streams.mutex);
    if (!streams.null_stream)
        streams.null_stream = add_stream(streams, device);
    return streams.null_stream.get();
}

cudaError_t make_stream(int device, cudaStream_t* stream) {
    Streams& streams = streams_of(device);
    std::lock_guard lock(streams.mutex);
    *stream = add_stream(streams, device).get();
    return cudaSuccess;
}

void wait_for_streams(int device) {
    for (const auto& stream : all_of(device))
        stream->synchronize();
}

cudaError_t refuse_capture_on(int device) {
    cudaError_t error = cudaSuccess;
    for (const auto& stream : all_of(device))
        if (stream->refuse_capture() != cudaSuccess)
            error = cudaErrorStreamCaptureUnsupported;
    return error;
}

void destroy_streams(int device) {
    Streams& streams = streams_of(device);
    std::lock_guard lock(streams.mutex);
    for (const auto& stream : streams.all)
        stream->close();
    streams.all.clear();
    streams.null_stream.reset();
}

bool shows_only() { return seen_by != nullptr; }

bool only_shown(std::span<const Argument> arguments) {
    if (shows_only())
        seen_by(arguments);
    return shows_only();
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, Signal* then) {
    if (is_stream_thread)
        return cudaErrorNotPermitted;  // a host function must not call CUDA
    CUstream_st* target = find_stream(stream);
    if (target == nullptr)
        return cudaErrorNoDevice;
    if (target->device == broken_device && breaks_launches)
        return cudaErrorIllegalAddress;
    return target->push_or_capture(std::move(work), then);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const Pointers& pointers, std::function<void()> thread) {
    const dim3 grid = config.gridDim, block = config.blockDim;
    const bool fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0 &&
                      grid.x < 1u << 31 && grid.y < 1u << 16 && grid.z < 1u << 16 && block.z <= 64 &&
                      std::size_t{block.x} * block.y * block.z <= 1024;
    if (!fits)
        return result(cudaErrorInvalidConfiguration);
    if (config.numAttrs > 0 || config.dynamicSmemBytes > 0)
        return result(cudaErrorNotSupported);
    const CUstream_st* stream = find_stream(config.stream);
    if (stream == nullptr || stream->device != current_device())
        return result(stream == nullptr ? cudaErrorNoDevice : cudaErrorInvalidResourceHandle);
    const auto is_bad = [&](const void* p) { return !reaches(stream->device, p); };
    const auto is_elsewhere = [&](const void* p) { return !is_padded_number(p) && home_of(p) >= 0 && is_bad(p); };
    std::vector<const void*> own;
    for (const Argument& argument : pointers.own)
        own.push_back(argument.memory);
    if (const auto bad = std::ranges::find_if(own, is_bad); bad != own.end())
        return refuse_pointer(*stream, *bad, "pointer", bad - own.begin());
    if (const auto bad = std::ranges::find_if(pointers.inside, is_elsewhere); bad != pointers.inside.end())
        return refuse_pointer(*stream, *bad, "word of a struct", bad - pointers.inside.begin());
    pinned_launches += std::ranges::any_of(own, [](const void* p) { return home_of(p) == kPinned; });
    if (only_shown(pointers.own))
        return result(cudaSuccess);
    return result(enqueue(config.stream, [grid, block, thread = std::move(thread)] {
        const auto for_each = [](dim3 count, auto&& act) {
            const auto at = [](unsigned i, unsigned n) { return is_backwards ? n - 1 - i : i; };
            for (unsigned z = 0; z < count.z; ++z)
                for (unsigned y = 0; y < count.y; ++y)
                    for (unsigned x = 0; x < count.x; ++x)
                        act(uint3{at(x, count.x), at(y, count.y), at(z, count.z)});
        };
        gridDim = grid;
        blockDim = block;
        for_each(grid, [&](uint3 block_index) {
            blockIdx = block_index;
            for_each(block, [&](uint3 thread_index) {
                threadIdx = thread_index;
                thread();
            });
        });
    }));
}

}  // namespace host_cuda

using namespace host_cuda;

CUstream_st::CUstream_st(int device_number) : device(device_number), number_(next_number()), last_(new Item) {
    last_->finished.set();
    thread_ = std::thread([this, first = last_] { run(first); });
}

void CUstream_st::run(Item* item) {
    is_stream_thread = true;
    prctl(PR_SET_TIMERSLACK, 1000);  // its sleeps end within a microsecond
    for (int count = 0;; ++count) {
        item->has_next.wait();
        Item* next = item->next;
        delete item;
        item = next;
        if (!item->work)
            return delete item;
        shake(number_, count);
        item->work();
        item->work = nullptr;
        item->finished.set();
        if (item->then != nullptr)
            item->then->set();
    }
}

void CUstream_st::append(Item* item) {
    Item* before = last_;
    last_ = item;
    before->next = item;
    before->has_next.set();
}

bool CUstream_st::push(std::function<void()> work, Signal* then) {
    std::lock_guard lock(pushing_);
    if (!closed_)
        append(new Item{std::move(work), then, {}, {}});
    return !closed_;
}

void CUstream_st::synchronize() {
    if (is_stream_thread) {
        std::fputs("host_cuda: a host function waits for a stream\n", stderr);
        std::abort();
    }
    Signal done;
    if (push([] {}, &done))
        done.wait();
}

bool CUstream_st::is_idle() {
    std::lock_guard lock(pushing_);
    return closed_ || last_->finished.is_set();
}

void CUstream_st::finish() {
    std::lock_guard lock(pushing_);
    closed_ = true;
    append(new Item{});
}

void CUstream_st::close() {
    finish();
    thread_.join();
}

// Detaches the thread while it cannot end: pthread_detach() of glibc 2.36 may read the memory of a thread that ends
// meanwhile (https://sourceware.org/bugzilla/show_bug.cgi?id=19951).
void CUstream_st::retire() {
    thread_.detach();
    finish();
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    if (flags != cudaStreamNonBlocking)
        return result(cudaErrorNotSupported);
    return result(make_stream(current_device(), pStream));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream == nullptr)
        return result(cudaErrorInvalidResourceHandle);
    Streams& streams = streams_of(stream->device);
    std::unique_lock lock(streams.mutex);
    const auto it = std::find_if(streams.all.begin(), streams.all.end(), [=](auto& s) { return s.get() == stream; });
    if (it == streams.all.end())
        return result(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<CUstream_st> keep = std::move(*it);  // another thread may be synchronising with it
    streams.all.erase(it);
    lock.unlock();
    keep->leave_capture();
    keep->close();
    return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (is_stream_thread)
        return result(cudaErrorNotPermitted);
    CUstream_st* found = find_stream(stream);
    if (found == nullptr)
        return result(cudaErrorNoDevice);
    const cudaError_t error = found->refuse_capture();
    if (error == cudaSuccess)
        found->synchronize();
    return result(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    CUstream_st* found = find_stream(stream);
    if (found == nullptr)
        return result(cudaErrorNoDevice);
    if (const cudaError_t error = found->refuse_capture(); error != cudaSuccess)
        return result(error);
    return result(found->is_idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    if (event == nullptr)
        return result(cudaErrorInvalidResourceHandle);
    if (flags != 0)
        return result(cudaErrorInvalidValue);
    CUstream_st* target = find_stream(stream);
    if (target == nullptr)
        return result(cudaErrorNoDevice);
    if (stream == nullptr && event->graph != nullptr)
        return result(cudaErrorStreamCaptureImplicit);
    return result(target->wait_for(*event));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
    return result(fn == nullptr ? cudaErrorInvalidValue : enqueue(stream, [=] { fn(userData); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    if ((flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
        return result(cudaErrorInvalidValue);
    *event = new CUevent_st{current_device(), flags};
    return result(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    static std::mutex mutex;
    static auto* kept = new std::forward_list<Recording>;
    if (event == nullptr)
        return result(cudaErrorInvalidResourceHandle);
    std::lock_guard lock(mutex);
    kept->splice_after(kept->before_begin(), event->recordings);
    delete event;
    return result(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    CUstream_st* target = find_stream(stream);
    if (event == nullptr || target == nullptr || event->device != target->device)
        return result(cudaErrorInvalidResourceHandle);
    if (flags > cudaEventRecordExternal)
        return result(cudaErrorInvalidValue);
    if (target->capture_status() != cudaStreamCaptureStatusNone)
        return result(target->capture_record(*event, flags == cudaEventRecordExternal));
    if (flags == cudaEventRecordExternal)
        return result(cudaErrorInvalidValue);
    event->graph = nullptr;
    Recording& recording = event->recordings.emplace_front();
    const auto record = [&recording] {
        if (const int delay = event_delay; delay > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(delay));
        recording.time = std::chrono::steady_clock::now();
    };
    return result(enqueue(stream, record, &recording.done));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event == nullptr)
        return result(cudaErrorInvalidResourceHandle);
    cudaError_t error = event->device == broken_device ? cudaErrorIllegalAddress : refuse_captured(*event);
    if (error == cudaSuccess)
        error = check_unsafe_call();
    if (error != cudaSuccess)
        return result(error);
    if (event->recordings.empty())
        return result(cudaSuccess);
    const Signal& done = event->recordings.front().done;
    if (!done.is_set())
        done.wait_briefly();  // a polling thread leaves the core to the streams
    return result(done.is_set() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event == nullptr)
        return result(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess)
        return result(error);
    if (!event->recordings.empty())
        event->recordings.front().done.wait();
    return result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    for (const cudaEvent_t event : {start, end}) {
        if (event == nullptr || (event->flags & cudaEventDisableTiming) != 0)
            return result(cudaErrorInvalidResourceHandle);
        if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess)
            return result(error);
        if (event->recordings.empty())
            return result(cudaErrorInvalidResourceHandle);
    }
    if (start->device != end->device)
        return result(cudaErrorInvalidResourceHandle);
    const Recording &from = start->recordings.front(), &to = end->recordings.front();
    if (!from.done.is_set() || !to.done.is_set())
        return result(cudaErrorNotReady);
    *ms = static_cast<float>(clock_rate * std::chrono::duration<double, std::milli>(to.time - from.time).count());
    return result(cudaSuccess);
}

}  // extern "C"
