#include "exec/engine/mailbox.h"

#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

namespace pw {

namespace {

// For how long a thread spins before it sleeps. Spinning takes no time from other threads if devices own their cores.
// A core that has slept is slow at first: naive pipelining ran 5 to 9 % slower with sleeping threads on a virtual
// machine.
constexpr Ns kSpin = 500'000'000;

constexpr Ns kBetweenPolls = 20'000;  // of a waiting device (a poll takes about 15 us)

std::vector<char> devices_here(const RankMap& map, std::size_t devices) {
    std::vector<char> here(map.size() == 1 ? 0 : devices);
    for (std::size_t device = 0; device < here.size(); ++device)
        here[device] = map.is_here(static_cast<int>(device)) ? 1 : 0;
    return here;
}

// Removes the first node and returns it. The list keeps its memory.
int take_first(std::vector<int>& nodes) {
    const int first = nodes.front();
    nodes.erase(nodes.begin());
    return first;
}

// Moves messages inside the process at once.
class LocalMover : public Mover {
public:
    explicit LocalMover(Mailbox& mailbox) : mailbox_(mailbox) {}
    void start(int send, Lock& lock) override {
        mailbox_.end(send, lock);
        mailbox_.end(mailbox_.partner(send), lock);
    }

private:
    Mailbox& mailbox_;
};

}  // namespace

Mailbox::Mailbox(const PlanGraph& graph, Options options)
    : graph_(graph),
      options_(std::move(options)),
      interval_(static_cast<std::size_t>(graph.size())),
      done_(new std::atomic<bool>[static_cast<std::size_t>(graph.size())]),
      waiters_(graph.size() == 0 ? 0 : static_cast<std::size_t>(graph.device_of(graph.size() - 1)) + 1),
      lanes_(graph, options_.mode, devices_here(options_.across.map, waiters_.size()), options_.by_rendezvous),
      copying_(static_cast<std::size_t>(lanes_.table().lanes), 0) {
    for (int node = 0; node < graph.size(); ++node)
        done_[node] = false;
    if (options_.link.take_time())
        inside_ = std::make_unique<WireMover>(*this, options_.link);
    else
        inside_ = std::make_unique<LocalMover>(*this);
    if (options_.across.map.size() > 1)
        between_ranks_ = std::make_unique<RankMover>(*this, options_.across, *options_.payload);
}

Mailbox::~Mailbox() = default;

void Mailbox::begin_step() {
    Lock lock(mutex_);
    for (int node = 0; node < graph_.size(); ++node)
        done_[node] = false;
    lanes_.reset();
    if (between_ranks_)
        between_ranks_->begin_step();
    advance(lock);
}

void Mailbox::reach(int device, int position) {
    if (!between_ranks_)
        return;
    Lock lock(mutex_);
    between_ranks_->reach(device, position, lock);
    advance(lock);
}

void Mailbox::wait_to_post(int node) {
    int earlier = -1;
    {
        const std::lock_guard lock(mutex_);
        if (!lanes_.may_post(node))
            earlier = lanes_.earlier_on_edge(node);
    }
    if (earlier >= 0)
        wait(earlier);
}

void Mailbox::post(int node) {
    Lock lock(mutex_);
    lanes_.post(node);
    advance(lock);
}

bool Mailbox::spin_until_done(int node, Ns start) {
    while (!is_done(node)) {
        if (!options_.spin || sleeps_ || aborted_ || clock_now() - start >= std::min(kSpin, options_.timeout))
            return false;
        if (is_polled())
            if (Lock lock(mutex_, std::try_to_lock); lock.owns_lock())
                between_ranks_->poll(lock);
        yield_core();
    }
    return true;
}

void Mailbox::wait(int node) {
    if (is_done(node))
        return;
    const WaitingAt waiting(options_.monitor, graph_.device_of(node), node);
    const Ns start = clock_now();
    if (spin_until_done(node, start))
        return;
    const Ns until = start + std::min(options_.timeout, std::numeric_limits<Ns>::max() - start);
    Lock lock(mutex_);
    DeviceWaiter& waiter = waiters_[graph_.device_of(node)];
    waiter.waits = true;
    const auto woken = [&] { return aborted_ || is_done(node); };
    if (is_polled())
        while (!woken()) {
            if (!between_ranks_->poll(lock))
                waiter.wakes.wait_for(lock, kBetweenPolls, woken);
        }
    else if (options_.monitor != nullptr)
        waiter.wakes.wait(lock, woken);
    else
        waiter.wakes.wait_until(lock, until, woken);
    waiter.waits = false;
    if (!is_done(node))
        fail_waiting(node, start);
}

void Mailbox::fail_waiting(int node, Ns start) const {
    if (aborted_)
        fail_because_of_others();
    const int device = graph_.device_of(node), other = lanes_.partner(node);
    const std::string waited = print_time(clock_now() - start);
    if (is_recv(graph_.task(node).op))
        fail_with(ExitCode::PeerSilent, "device {} has waited for {} from device {} for {}: {} did not arrive", device,
                  print(graph_.task(other)), graph_.device_of(other), waited, print(graph_.task(node)));
    fail_with(ExitCode::PeerSilent, "device {} has waited for device {} to take {} for {}", device,
              graph_.device_of(other), print(graph_.task(node)), waited);
}

// Completes messages that have arrived, and starts messages that the lanes allow.
void Mailbox::advance(Lock& lock) {
    for (;;)
        if (!lanes_.awaited.empty())
            between_ranks_->start(take_first(lanes_.awaited), lock);
        else if (const int recv = take_idle(lanes_.received); recv >= 0)
            receive(recv, lock);
        else if (const int send = take_idle(lanes_.starting); send >= 0)
            start(send, lock);
        else
            return;
}

// Removes and returns the first transfer on whose lane no message is being copied, or returns -1 if there is none.
// The copying thread takes the remaining transfers when it has finished.
int Mailbox::take_idle(std::vector<int>& nodes) {
    const auto idle = std::find_if(nodes.begin(), nodes.end(), [&](int node) { return copying_[lane_of(node)] == 0; });
    if (idle == nodes.end())
        return -1;
    const int node = *idle;
    nodes.erase(idle);
    return node;
}

void Mailbox::receive(int recv, Lock& lock) {
    if (options_.payload != nullptr && !lanes_.crosses(recv)) {
        copying_[lane_of(recv)] = 1;
        lock.unlock();
        options_.payload->arrive(recv);
        lock.lock();
        copying_[lane_of(recv)] = 0;
    }
    complete(recv);
}

void Mailbox::start(int send, Lock& lock) {
    if (lanes_.crosses(send))
        return between_ranks_->start(send, lock);
    interval_[send].start = interval_[lanes_.partner(send)].start = clock_now();
    inside_->start(send, lock);
}

void Mailbox::end(int node, Lock& lock) {
    if (receives(node))
        return lanes_.arrive(node);
    if (options_.payload != nullptr && !lanes_.crosses(node)) {
        lock.unlock();  // copying may take long
        options_.payload->leave(node);
        lock.lock();
    }
    complete(node);
    lanes_.leave(node);
}

void Mailbox::complete(int node) {
    interval_[node].end = clock_now();
    done_[node].store(true, std::memory_order_release);
    if (DeviceWaiter& waiter = waiters_[graph_.device_of(node)]; waiter.waits)
        waiter.wakes.notify_all();
}

void Mailbox::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (DeviceWaiter& waiter : waiters_)
        waiter.wakes.notify_all();
}

}  // namespace pw
