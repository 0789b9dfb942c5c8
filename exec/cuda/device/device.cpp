#include "exec/cuda/device/device.h"

#include "exec/cuda/device/job_gpus.h"
#include "job/launched_ranks.h"
#include "job/setup/setup.h"
#include "workloads/error.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

namespace pw::cuda {

namespace {

constexpr Bytes kCublasWorkspace = Bytes{32} << 20;

template <class Function>
Function required(const char* name) {
    const auto function = driver_function<Function>(name);
    if (function == nullptr)
        fail_with(ExitCode::RunFailed,
                  "the NVIDIA driver has no {}: devices cannot share a GPU\n  help: install a driver for CUDA 13.0, or "
                  "give every device a GPU of its own",
                  name);
    return function;
}

// The functions of the driver that green contexts need.
struct Driver {
    decltype(&cuDeviceGet) device = required<decltype(&cuDeviceGet)>("cuDeviceGet");
    decltype(&cuDeviceGetDevResource) resource = required<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource");
    decltype(&cuDevSmResourceSplitByCount) split =
        required<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
    decltype(&cuDevResourceGenerateDesc) describe =
        required<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
    decltype(&cuGreenCtxCreate) create = required<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate");
    decltype(&cuGreenCtxDestroy) destroy = required<decltype(&cuGreenCtxDestroy)>("cuGreenCtxDestroy");
    decltype(&cuGreenCtxGetDevResource) got = required<decltype(&cuGreenCtxGetDevResource)>("cuGreenCtxGetDevResource");
    decltype(&cuGreenCtxStreamCreate) stream = required<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");
    decltype(&cuCtxFromGreenCtx) context = required<decltype(&cuCtxFromGreenCtx)>("cuCtxFromGreenCtx");
    decltype(&cuCtxSetCurrent) make_current = required<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
};

// The process has one driver, whatever the number of jobs.
const Driver& driver() {
    static const Driver functions;
    return functions;
}

// The context of a share, on its device's thread, if its cuDNN needs that, or null if the GPU's own context
// is current.
thread_local CUcontext context_of_thread = nullptr;

GreenContext green_context(const SplitGpu& gpu, int first_group, int groups) {
    const auto first = gpu.groups.begin() + first_group;
    std::vector<CUdevResource> own(first, first + groups);
    CUdevResourceDesc described{};
    check(driver().describe(&described, own.data(), static_cast<unsigned>(own.size())), "cuDevResourceGenerateDesc");
    CUgreenCtx made = nullptr;
    check(driver().create(&made, described, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
    return GreenContext(made);
}

SplitGpu split_anew(int gpu) {
    SplitGpu all;
    CUdevResource whole{}, rest{};
    check(driver().device(&all.device, gpu), "cuDeviceGet");
    check(driver().resource(all.device, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    all.multiprocessors = whole.sm.smCount;
    unsigned count = 0;
    check(driver().split(nullptr, &count, &whole, nullptr, 0, kGroup), "cuDevSmResourceSplitByCount");
    all.groups.resize(count);
    check(driver().split(all.groups.data(), &count, &whole, &rest, 0, kGroup), "cuDevSmResourceSplitByCount");
    all.groups.resize(count);
    return all;
}

// Returns the GPU of every device. Neighbours in the pipeline share a GPU. Shares from the config fill the GPUs in
// order.
std::vector<int> gpus_of(const Setup& setup, int devices, int gpus, JobGpus& job) {
    if (!setup.run.gpus.empty())
        return setup.run.gpus;
    std::vector<int> all;
    int gpu = 0, used = 0;
    for (int device = 0; device < devices; ++device) {
        if (setup.run.sms.empty()) {
            all.push_back(devices <= gpus ? device : static_cast<int>(std::int64_t{device} * gpus / devices));
            continue;
        }
        const int share = setup.run.sms[static_cast<std::size_t>(device)] / kGroup;
        const bool is_full = used > 0 && used + share > job.groups_on(gpu);
        if (is_full && gpu + 1 < gpus) {
            ++gpu;
            used = 0;
        }
        used += share;
        all.push_back(gpu);
    }
    return all;
}

// Sets the shares of the devices on `gpu`. A device that is alone there, and has no share in the config, gets the
// whole GPU.
void share_out(int gpu, const std::vector<std::size_t>& devices, const Setup& setup, JobGpus& job,
               std::vector<Seat>& seats) {
    const std::vector<int>& shares = setup.run.sms;
    if (shares.empty() && devices.size() <= 1)
        return;
    const int groups = job.groups_on(gpu), count = static_cast<int>(devices.size());
    if (shares.empty() && count > groups)
        setup.fail_at("run.gpus",
                      fmt::format("{} devices do not fit on GPU {}: a device takes {} multiprocessors at least, and "
                                  "{} of {} can be divided",
                                  count, gpu, kGroup, groups * kGroup, job.split(gpu).multiprocessors),
                      "use fewer devices, or more GPUs");
    std::int64_t sum = 0;
    for (const std::size_t device : devices) {
        seats[device].first_group = static_cast<int>(sum);
        seats[device].groups = shares.empty() ? groups / count : shares[device] / kGroup;
        sum += seats[device].groups;
    }
    if (sum > groups)
        setup.fail_at("run.sms",
                      fmt::format("the shares add up to {} multiprocessors, but GPU {} can divide {} of {}",
                                  sum * kGroup, gpu, groups * kGroup, job.split(gpu).multiprocessors),
                      "make the shares smaller, or write in run.gpus which device uses which GPU");
}

}  // namespace

void check_seats(const Setup& setup, int devices) {
    const std::vector<int>&shares = setup.run.sms, &own = setup.run.gpus;
    if (!shares.empty() && shares.size() != static_cast<std::size_t>(devices))
        setup.fail_at("run.sms", fmt::format("{} shares for {} devices", shares.size(), devices),
                      "give one share per device, or none: then they are equal");
    for (std::size_t i = 0; i < shares.size(); ++i)
        if (shares[i] <= 0 || shares[i] % kGroup != 0)
            setup.fail_at(fmt::format("run.sms[{}]", i), fmt::format("{} multiprocessors cannot be a share", shares[i]),
                          fmt::format("shares are multiples of {}", kGroup));
    if (!own.empty() && own.size() != static_cast<std::size_t>(devices))
        setup.fail_at("run.gpus", fmt::format("{} GPUs for {} devices", own.size(), devices),
                      "give the GPU of each device, or none: then they are spread over all");
}

void check_gpu(const Setup& setup, int device, int gpus) {
    if (const std::vector<int>& own = setup.run.gpus; !own.empty())
        if (const int gpu = own[static_cast<std::size_t>(device)]; gpu < 0 || gpu >= gpus)
            setup.fail_at(fmt::format("run.gpus[{}]", device),
                          fmt::format("there is no GPU {}: this machine has {}", gpu, gpus),
                          fmt::format("use numbers from 0 to {}", gpus - 1));
}

void set_up_process() {
    [[maybe_unused]] static const int once =
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) +
        (launched_ranks().size > 1 ? setenv("CUDA_MODULE_LOADING", "EAGER", 0) : 0);
}

int streams_side_by_side() {
    const char* set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return set == nullptr ? 8 : std::clamp(std::atoi(set), 1, 32);  // 8 is the driver's default
}

std::string address_of(int gpu) {
    char address[16] = "";
    check(cudaDeviceGetPCIBusId(address, sizeof address, gpu), "cudaDeviceGetPCIBusId");
    return address;
}

DeviceMemory allocate(Bytes bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
    return DeviceMemory(static_cast<std::byte*>(memory));
}

PinnedMemory allocate_pinned(Bytes bytes) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
    return PinnedMemory(static_cast<std::byte*>(memory));
}

const SplitGpu& JobGpus::split(int gpu) {
    const std::lock_guard lock(mutex_);
    const auto found = splits_.find(gpu);
    return found != splits_.end() ? found->second : splits_.emplace(gpu, split_anew(gpu)).first->second;
}

std::vector<Seat> seats_of(const Setup& setup, int devices, JobGpus& job) {
    set_up_process();
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    std::vector<Seat> seats(static_cast<std::size_t>(devices));
    for (std::size_t device = 0; device < setup.run.gpus.size(); ++device)
        check_gpu(setup, static_cast<int>(device), gpus);
    const RunConfig& run = setup.run;
    if (devices == 1 && (run.sms.size() > 1 || run.gpus.size() > 1)) {  // for the oracle of a plan with shares
        seats.front().gpu = run.gpus.empty() ? 0 : run.gpus.front();
        return seats;
    }
    check_seats(setup, devices);
    const std::vector<int> own = gpus_of(setup, devices, gpus, job);
    std::map<int, std::vector<std::size_t>> devices_of;
    for (std::size_t device = 0; device < seats.size(); ++device) {
        seats[device].gpu = own[device];
        devices_of[own[device]].push_back(device);
    }
    for (const auto& [gpu, on_it] : devices_of)
        share_out(gpu, on_it, setup, job, seats);
    return seats;
}

void destroy_green_context(CUgreenCtx context) { (void)driver().destroy(context); }

GpuShare::GpuShare(const Seat& seat, Precision precision, bool deterministic)
    : GpuShare(seat, precision, deterministic, std::make_shared<JobGpus>()) {}

GpuShare::GpuShare(const Seat& seat, Precision precision, bool deterministic, std::shared_ptr<JobGpus> job)
    : job_(std::move(job)), seat_(seat), precision_(precision), deterministic_(deterministic) {
    set_up_process();
    make_current();
    check(cudaFree(nullptr), "cudaFree");  // green contexts need the GPU's own context
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, seat.gpu), "cudaGetDeviceProperties");
    product_ = properties.name;
    multiprocessors_ = multiprocessors_of_gpu_ = properties.multiProcessorCount;
    if (seat.groups > 0)
        make_green_context();
    later_ = allocate_pinned(sizeof(Later));
    add_stream();
    make_libraries();
}

GpuShare::~GpuShare() {
    (void)cudaSetDevice(seat_.gpu);
    if (own_context_ == nullptr)
        return;
    (void)driver().make_current(own_context_);
    cudnn_.reset();
    (void)cudaSetDevice(seat_.gpu);
    if (context_of_thread == own_context_)
        context_of_thread = nullptr;
}

void GpuShare::make_current() const {
    check(cudaSetDevice(seat_.gpu), "cudaSetDevice");
    context_of_thread = own_context_;
    if (own_context_ != nullptr)
        check(driver().make_current(own_context_), "cuCtxSetCurrent");
}

CurrentGpu::CurrentGpu(int gpu) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(gpu), "cudaSetDevice");
}

CurrentGpu::~CurrentGpu() {
    (void)cudaSetDevice(before_);
    if (context_of_thread != nullptr)
        (void)driver().make_current(context_of_thread);
}

void GpuShare::make_green_context() {
    const SplitGpu& gpu = job_->split(seat_.gpu);
    context_ = green_context(gpu, seat_.first_group, seat_.groups);
    CUdevResource got{};
    check(driver().got(context_.get(), &got, CU_DEV_RESOURCE_TYPE_SM), "cuGreenCtxGetDevResource");
    multiprocessors_ = static_cast<int>(got.sm.smCount);
}

bool GpuShare::on_smallest_share(const std::function<bool()>& work) {
    cudaStream_t made = nullptr;
    {
        const CurrentGpu current(seat_.gpu);
        if (!smallest_)
            smallest_ = green_context(job_->split(seat_.gpu), seat_.first_group, 1);
        check(driver().stream(&made, smallest_.get(), CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
    }
    const Owned<cudaStream_t, cudaStreamDestroy> on_it(made);
    if (cudnnSetStream(cudnn(), made) != CUDNN_STATUS_SUCCESS)
        check(cudnnSetStream(cudnn(), stream()), "cudnnSetStream");
    const bool queued = work(), done = cudaStreamSynchronize(made) == cudaSuccess;
    check(cudnnSetStream(cudnn(), stream()), "cudnnSetStream");
    return queued && done;
}

cudaStream_t GpuShare::add_stream() {
    const CurrentGpu current(seat_.gpu);
    cudaStream_t made = nullptr;
    if (context_)
        check(driver().stream(&made, context_.get(), CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
    else
        check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    streams_.emplace_back(made);
    return made;
}

// A share's stream is in a context of its own. If cuDNN does not accept this stream in the GPU's context, the
// handle is made again in the share's context, which then stays the thread's.
void GpuShare::make_cudnn() {
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "cudnnCreate");
    cudnn_.reset(made);
    const cudnnStatus_t status = cudnnSetStream(made, stream());
    if (status != CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH || !context_ || own_context_ != nullptr)
        return check(status, "cudnnSetStream");
    cudnn_.reset();
    check(driver().context(&own_context_, context_.get()), "cuCtxFromGreenCtx");
    make_current();
    make_cudnn();
}

// Libraries assume all multiprocessors of the GPU unless the size of the share is set.
void GpuShare::make_libraries() {
    make_cudnn();
    cublasHandle_t cublas = nullptr;
    check(cublasCreate(&cublas), "cublasCreate");
    cublas_.reset(cublas);
    check(cublasSetStream(cublas, stream()), "cublasSetStream");
    cublas_workspace_ = allocate(kCublasWorkspace);  // after the stream, which sets cuBLAS's own workspace
    check(cublasSetWorkspace(cublas, cublas_workspace_.get(), kCublasWorkspace), "cublasSetWorkspace");
    const cublasMath_t math = precision_ == Precision::Fp32   ? CUBLAS_PEDANTIC_MATH
                              : precision_ == Precision::Tf32 ? CUBLAS_TF32_TENSOR_OP_MATH
                                                              : CUBLAS_DEFAULT_MATH;
    check(cublasSetMathMode(cublas, math), "cublasSetMathMode");
    if (context_ && !deterministic_)  // would change the rounding with the size of the share
        check(cublasSetSmCountTarget(cublas, multiprocessors_), "cublasSetSmCountTarget");
}

std::string GpuShare::name() const {
    return context_ ? fmt::format("{}, GPU {}, {} of {} multiprocessors", product_, seat_.gpu, multiprocessors_,
                                  multiprocessors_of_gpu_)
                    : fmt::format("{}, GPU {}", product_, seat_.gpu);
}

GpuMemory memory_of(int gpu) {
    const CurrentGpu current(gpu);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<Bytes>(free), static_cast<Bytes>(total)};
}

}  // namespace pw::cuda
