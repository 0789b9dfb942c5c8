// Devices, errors, memory and copies.
#include "tests/cuda/host_cuda/streams.h"

#include <cuda_runtime_api.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace host_cuda {
namespace {

struct GpuShare {
    std::mutex mutex;  // protects the allocations
    std::atomic<std::size_t> allocated{0};
    std::atomic<bool> has_peer[kMaxDevices]{};
};

// The origin of memory. A slot is used once, so that code with a pointer may read it without a lock.
struct Allocation {
    std::atomic<const std::byte*> begin{nullptr};  // null again when it is freed
    std::atomic<std::size_t> bytes{0};
    std::atomic<int> home{0};
};

constexpr int kMaxAllocations = 1 << 16;
constexpr int kMostPeers = 8;  // of a device without NVSwitch
Allocation allocations[kMaxAllocations];
std::atomic<int> allocations_made{0};

GpuShare devices[kMaxDevices];
// HOST_CUDA_DEVICES is the number of GPUs of this machine; CUDA_VISIBLE_DEVICES lists those that the process sees:
// "2,0".
std::vector<int> visible_devices() {
    const char *all = std::getenv("HOST_CUDA_DEVICES"), *seen = std::getenv("CUDA_VISIBLE_DEVICES");
    const int count = all == nullptr ? 1 : std::clamp(std::atoi(all), 0, kMaxDevices);
    std::vector<int> visible;
    for (int device = 0; device < count; ++device)
        visible.push_back(device);
    if (all == nullptr || seen == nullptr)
        return visible;
    visible.clear();
    for (const char* at = seen; *at != 0 && std::atoi(at) < count; at = std::strchr(at, ',') + 1) {
        visible.push_back(std::atoi(at));
        if (std::strchr(at, ',') == nullptr)
            break;
    }
    return visible;
}
const std::vector<int> visible = visible_devices();
std::atomic<int> device_count{static_cast<int>(visible.size())};
std::atomic<std::size_t> memory_per_device{std::size_t{1} << 30};
std::atomic<bool> peers_possible{true};

thread_local int chosen_device = 0;
thread_local const void* chosen_context = nullptr;
thread_local cudaError_t last_error = cudaSuccess;

Allocation* find(const void* pointer) {
    const auto* address = static_cast<const std::byte*>(pointer);
    for (int i = allocations_made; i-- > 0;) {
        const std::byte* begin = allocations[i].begin.load(std::memory_order_relaxed);
        if (begin != nullptr && address >= begin && address < begin + allocations[i].bytes)
            return &allocations[i];
    }
    return nullptr;
}

// Fresh memory is all ones: NaN in every floating-point type. Large pieces are private copies of a file of ones, so
// that only pages in use take memory and time.
constexpr int kOnes = 0xff;
constexpr std::size_t kLarge = std::size_t{1} << 18, kFile = std::size_t{1} << 22;

int file_of_ones() {
    static const int file = [] {
        const int made = memfd_create("host_cuda", 0);
        const std::vector<unsigned char> ones(kFile, kOnes);
        if (made < 0 || write(made, ones.data(), kFile) != static_cast<ssize_t>(kFile)) {
            std::perror("host_cuda: memory");
            std::abort();
        }
        return made;
    }();
    return file;
}

void* map_ones(std::size_t bytes) {
    void* const start = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (std::size_t done = 0; start != MAP_FAILED && done < bytes; done += kFile)
        if (mmap(static_cast<std::byte*>(start) + done, std::min(kFile, bytes - done), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED, file_of_ones(), 0) == MAP_FAILED)
            return nullptr;
    return start == MAP_FAILED ? nullptr : start;
}

void* take_memory(std::size_t bytes, std::size_t alignment) {
    if (bytes >= kLarge)
        return map_ones(bytes);
    void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory != nullptr && !shows_only())
        std::memset(memory, kOnes, bytes);
    return memory;
}

void give_memory_back(void* memory, std::size_t bytes) {
    if (bytes >= kLarge)
        munmap(memory, bytes);
    else
        std::free(memory);
}

cudaError_t allocate(int home, std::size_t bytes, std::size_t alignment, void** pointer) {
    *pointer = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    *pointer = take_memory(bytes, alignment);
    if (*pointer == nullptr)
        return cudaErrorMemoryAllocation;
    const int slot = allocations_made++;
    if (slot >= kMaxAllocations) {
        std::fprintf(stderr, "host_cuda: more than %d allocations in one process\n", kMaxAllocations);
        std::abort();
    }
    allocations[slot].bytes = bytes;
    allocations[slot].home = home;
    allocations[slot].begin.store(static_cast<std::byte*>(*pointer), std::memory_order_relaxed);
    return cudaSuccess;
}

// Returns the allocation of a device, or of pinned memory, that starts at the address; null if there is none.
Allocation* find_start(const void* pointer, bool pinned) {
    Allocation* found = find(pointer);
    return found != nullptr && found->begin == pointer && (found->home == kPinned) == pinned ? found : nullptr;
}

cudaError_t check_copy(const void* to, const void* from, cudaMemcpyKind kind) {
    const bool to_device = home_of(to) >= 0, from_device = home_of(from) >= 0;
    const bool fits = kind == cudaMemcpyDefault ||
                      (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                       from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
    return fits ? cudaSuccess : cudaErrorInvalidValue;
}

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};
#define HOST_CUDA_ERROR(name, text) \
    { name, #name, text }
constexpr ErrorText kErrors[] = {
    HOST_CUDA_ERROR(cudaSuccess, "no error"),
    HOST_CUDA_ERROR(cudaErrorInvalidValue, "invalid argument"),
    HOST_CUDA_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    HOST_CUDA_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    HOST_CUDA_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    HOST_CUDA_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    HOST_CUDA_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    HOST_CUDA_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    HOST_CUDA_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    HOST_CUDA_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    HOST_CUDA_ERROR(cudaErrorNotReady, "device not ready"),
    HOST_CUDA_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    HOST_CUDA_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    HOST_CUDA_ERROR(cudaErrorTooManyPeers, "peer access has been enabled for too many devices"),
    HOST_CUDA_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    HOST_CUDA_ERROR(cudaErrorNotSupported, "operation not supported"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureImplicit,
                    "operation would make the legacy stream depend on a capturing blocking stream"),
    HOST_CUDA_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    HOST_CUDA_ERROR(cudaErrorStreamCaptureWrongThread,
                    "attempt to terminate a thread-local capture sequence from another thread"),
    HOST_CUDA_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef HOST_CUDA_ERROR

}  // namespace

void set_devices(int count) { device_count = count; }
void set_memory(std::size_t per_device) { memory_per_device = per_device; }
void set_peer_access(bool possible) {
    peers_possible = possible;
    for (GpuShare& device : devices)
        for (auto& peer : device.has_peer)
            peer = peer && possible;
}
std::size_t allocated(int device) { return devices[device].allocated; }

int current_device() { return is_device(chosen_device) ? chosen_device : -1; }
const void* current_context() { return chosen_context; }
void set_context(int device, const void* green) {
    chosen_device = device;
    chosen_context = green;
}
bool is_device(int device) { return device >= 0 && device < device_count; }

int home_of(const void* pointer) {
    const Allocation* found = find(pointer);
    return found == nullptr ? kUnknown : found->home.load();
}

bool reaches(int device, const void* pointer) {
    if (pointer == nullptr)
        return true;
    const int home = home_of(pointer);
    return home == device || home == kPinned || (home >= 0 && devices[device].has_peer[home]);
}

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

}  // namespace host_cuda

using namespace host_cuda;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    for (const ErrorText& known : kErrors)
        if (known.error == error)
            return known.name;
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    for (const ErrorText& known : kErrors)
        if (known.error == error)
            return known.text;
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count;
    return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    if (!is_device(device))
        return result(device_count > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    set_context(device, nullptr);
    return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
    *device = chosen_device;
    return result(device_count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

// The address has a domain that no machine has.
cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
    if (pciBusId == nullptr || len < 13)
        return result(cudaErrorInvalidValue);
    const int hardware = device < static_cast<int>(visible.size()) ? visible[device] : device;
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "FFFE:%02X:00.0", hardware + 10);
    return result(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
    if (!is_device(device))
        return result(cudaErrorInvalidDevice);
    *prop = {"host stand-in", memory_per_device, 9, 0, 132, 50 << 20};
    return result(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
    *driverVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
    if (!is_device(device) || !is_device(peerDevice))
        return result(cudaErrorInvalidDevice);
    *canAccessPeer = device != peerDevice && peers_possible;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
    const int device = current_device();
    if (device < 0 || !is_device(peerDevice) || peerDevice == device)
        return result(cudaErrorInvalidDevice);
    if (flags != 0)
        return result(cudaErrorInvalidValue);
    if (!peers_possible)
        return result(cudaErrorPeerAccessUnsupported);
    const auto& peers = devices[device].has_peer;
    if (!peers[peerDevice] && std::count(std::begin(peers), std::end(peers), true) == kMostPeers)
        return result(cudaErrorTooManyPeers);
    const bool had = devices[device].has_peer[peerDevice].exchange(true);
    return result(had ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    const cudaError_t error = refuse_capture_on(current_device());
    if (error == cudaSuccess)
        wait_for_streams(current_device());
    return result(error);
}

// Ends the device's streams and frees its memory; its handles and pointers must not be used afterwards.
cudaError_t cudaDeviceReset(void) {
    const int device = current_device();
    if (device < 0)
        return result(cudaErrorNoDevice);
    destroy_streams(device);
    for (int i = 0; i < allocations_made; ++i)
        if (allocations[i].home == device && allocations[i].begin != nullptr)
            cudaFree(const_cast<std::byte*>(allocations[i].begin.load()));
    for (auto& peer : devices[device].has_peer)
        peer = false;
    return result(cudaSuccess);
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess)
        return result(error);
    GpuShare& device = devices[current_device()];
    std::lock_guard lock(device.mutex);
    if (size > memory_per_device - device.allocated)
        return result(cudaErrorMemoryAllocation);
    const cudaError_t error = allocate(current_device(), size, 256, devPtr);
    device.allocated += error == cudaSuccess ? size : 0;
    return result(error);
}

cudaError_t cudaFree(void* devPtr) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    if (devPtr == nullptr)
        return result(cudaSuccess);
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess)
        return result(error);
    Allocation* found = find_start(devPtr, false);
    if (found == nullptr)
        return result(cudaErrorInvalidValue);
    wait_for_streams(found->home);
    found->begin = nullptr;
    devices[found->home].allocated -= found->bytes;
    give_memory_back(devPtr, found->bytes);
    return result(cudaSuccess);
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    if ((flags & ~(cudaHostAllocPortable | cudaHostAllocMapped)) != 0)
        return result(cudaErrorInvalidValue);
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess)
        return result(error);
    return result(allocate(kPinned, size, 4096, pHost));
}

cudaError_t cudaFreeHost(void* ptr) {
    if (ptr == nullptr)
        return result(cudaSuccess);
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess)
        return result(error);
    Allocation* found = find_start(ptr, true);
    if (found == nullptr)
        return result(cudaErrorInvalidValue);
    found->begin = nullptr;
    give_memory_back(ptr, found->bytes);
    return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    if (current_device() < 0)
        return result(cudaErrorNoDevice);
    *total = memory_per_device;
    *free = *total - devices[current_device()].allocated;
    return result(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (count == 0)
        return result(cudaSuccess);
    cudaError_t error = check_copy(dst, src, kind);
    if (error == cudaSuccess && only_shown({{src, false}, {dst, true}}))
        return result(error);
    if (error == cudaSuccess)
        error = enqueue(stream, [=] { std::memcpy(dst, src, count); });
    if (error == cudaSuccess && (home_of(dst) == kUnknown || home_of(src) == kUnknown))
        error = cudaStreamSynchronize(stream);  // a copy of memory that is not pinned waits
    return result(error);
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind) {
    cudaError_t error = check_unsafe_call();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(dst, src, count, kind, nullptr);
    if (error != cudaSuccess || (home_of(dst) >= 0 && home_of(src) >= 0))  // a copy between devices does not wait
        return result(error);
    return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
    if (!is_device(dstDevice) || !is_device(srcDevice))
        return result(cudaErrorInvalidDevice);
    if (count > 0 && (home_of(dst) != dstDevice || home_of(src) != srcDevice))
        return result(cudaErrorInvalidValue);
    return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
    if (count > 0 && home_of(devPtr) == kUnknown)
        return result(cudaErrorInvalidValue);
    if (only_shown({{devPtr, true}}))
        return result(cudaSuccess);
    return result(enqueue(stream, [=] { std::memset(devPtr, value, count); }));
}

}  // extern "C"
