#include "exec/engine/mailbox.h"

#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pw {

namespace {

// Waiting awake costs nobody when devices own their cores, and a core that sleeps comes back cold:
// naive pipelining ran 5 to 9 % slower with it on a virtual machine.
constexpr Ns kSpin = 500'000'000;

// Between two looks at messages between ranks: of a device that waits, and of the thread that looks after them while no
// device waits. A look takes some 15 us.
constexpr Ns kWaits = 20'000, kLooks = 2'000'000;

std::vector<char> devices_here(const RankMessages& across, std::size_t devices) {
    std::vector<char> here(across.ranks == nullptr ? 0 : devices);
    for (std::size_t device = 0; device < here.size(); ++device)
        here[device] = across.map.is_here(static_cast<int>(device)) ? 1 : 0;
    return here;
}

// Takes the first; the list keeps its memory.
int take_first(std::vector<int>& nodes) {
    const int first = nodes.front();
    nodes.erase(nodes.begin());
    return first;
}

}  // namespace

Mailbox::Mailbox(const PlanGraph& graph, Options options)
    : graph_(graph),
      options_(std::move(options)),
      interval_(static_cast<std::size_t>(graph.size())),
      done_(new std::atomic<bool>[static_cast<std::size_t>(graph.size())]),
      waiters_(graph.size() == 0 ? 0 : static_cast<std::size_t>(graph.device_of(graph.size() - 1)) + 1),
      lanes_(graph, options_.mode, devices_here(options_.across, waiters_.size()), options_.asks),
      copying_(static_cast<std::size_t>(lanes_.table().lanes), 0),
      shared_(options_.link.shared) {
    for (int node = 0; node < graph.size(); ++node)
        done_[node] = false;
    const auto has_time = [](const std::vector<Ns>& times) {
        return std::any_of(times.begin(), times.end(), [](Ns time) { return time > 0; });
    };
    if (has_time(options_.link.occupation) || has_time(options_.link.latency))
        wire_ = start_thread("the link", [this] { run_wire(); });
    else if (polls())
        wire_ = start_thread("messages between ranks", [this] { run_ranks(); });
}

Mailbox::~Mailbox() {
    if (!wire_.joinable())
        return;
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        wire_wakes_.notify_all();
    }
    wire_.join();
}

void Mailbox::begin_step() {
    Lock lock(mutex_);
    for (int node = 0; node < graph_.size(); ++node)
        done_[node] = false;
    lanes_.reset();
    too_early_.clear();
    reached_.assign(waiters_.size(), -1);
    move(lock);
}

// A message that another rank is told where to put may be put there at any time: not before nobody else is there.
void Mailbox::reach(int device, int position) {
    if (options_.across.ranks == nullptr)
        return;
    Lock lock(mutex_);
    reached_[device] = position;
    std::erase_if(too_early_, [&](int recv) {
        if (has_memory(recv))
            landing_.push_back(recv);
        return has_memory(recv);
    });
    while (!landing_.empty())
        cross(take_first(landing_), lock);
    move(lock);
}

bool Mailbox::has_memory(int recv) const {
    return reached_[graph_.device_of(recv)] >= options_.across.lands_from[recv];
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
    move(lock);
}

bool Mailbox::spin_until_done(int node, Ns start) {
    while (!is_done(node)) {
        if (!options_.spin || sleeps_ || aborted_ || clock_now() - start >= std::min(kSpin, options_.timeout))
            return false;
        if (polls())
            if (Lock lock(mutex_, std::try_to_lock); lock.owns_lock())
                poll(lock);
        let_others_run();
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
    if (polls())
        while (!woken() && !lost_) {
            if (!poll(lock))
                waiter.wakes.wait_for(lock, kWaits, woken);
        }
    else if (options_.monitor != nullptr)
        waiter.wakes.wait(lock, woken);
    else
        waiter.wakes.wait_until(lock, until, woken);
    waiter.waits = false;
    if (lost_)
        std::rethrow_exception(lost_);
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

// Starts what the lanes let go, hands on what has come in.
void Mailbox::move(Lock& lock) {
    for (;;)
        if (!lanes_.awaited.empty())
            await(take_first(lanes_.awaited), lock);
        else if (const int recv = take_free(lanes_.received); recv >= 0)
            hand_on(recv, lock);
        else if (const int send = take_free(lanes_.starting); send >= 0)
            start(send, lock);
        else
            return;
}

// Takes the first transfer whose lane copies nothing; -1 where there is none. The thread that copies takes the others
// when it has finished.
int Mailbox::take_free(std::vector<int>& nodes) {
    const auto free = std::find_if(nodes.begin(), nodes.end(), [&](int node) { return copying_[lane_of(node)] == 0; });
    if (free == nodes.end())
        return -1;
    const int node = *free;
    nodes.erase(free);
    return node;
}

void Mailbox::await(int recv, Lock& lock) {
    if (has_memory(recv))
        cross(recv, lock);
    else
        too_early_.push_back(recv);
}

void Mailbox::hand_on(int recv, Lock& lock) {
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
        return cross(send, lock);
    const int recv = lanes_.partner(send);
    const Ns now = clock_now();
    interval_[send].start = interval_[recv].start = now;
    if (shared_.carry(send) && options_.link.occupation[send] > 0) {
        shared_.start(send, options_.link.occupation[send], now);
        wire_wakes_.notify_all();
        return;
    }
    const Ns leaves = now + (options_.link.occupation.empty() ? 0 : options_.link.occupation[send]);
    happen_at(leaves, now, send, lock);
    happen_at(leaves + (options_.link.latency.empty() ? 0 : options_.link.latency[send]), now, recv, lock);
}

void Mailbox::leave_shared(const SharedLinks::Leaving& leaving, Lock& lock) {
    shared_.leave(leaving);
    events_.push({leaving.time + options_.link.latency[leaving.send], seq_++, lanes_.partner(leaving.send)});
    happen(leaving.send, lock);
}

void Mailbox::happen_at(Ns time, Ns now, int node, Lock& lock) {
    if (time == now)
        return happen(node, lock);
    events_.push({time, seq_++, node});
    wire_wakes_.notify_all();
}

// A message leaves, or arrives.
void Mailbox::happen(int node, Lock& lock) {
    if (is_recv(graph_.task(node).op))
        return lanes_.arrive(node);
    if (options_.payload != nullptr && !lanes_.crosses(node)) {
        lock.unlock();  // a copy may take long
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

void Mailbox::run_wire() {
    wake_on_time();
    Lock lock(mutex_);
    while (!closing_) {
        const std::optional<SharedLinks::Leaving> leaving = shared_.next();
        if (events_.empty() && !leaving) {
            wire_wakes_.wait(lock);
            continue;
        }
        const bool leaves = leaving && (events_.empty() || leaving->time <= events_.top().time);
        const Ns time = leaves ? leaving->time : events_.top().time;
        if (clock_now() < time) {
            wire_wakes_.wait_until(lock, time);
            continue;
        }
        if (leaves) {
            leave_shared(*leaving, lock);
        } else {
            const int node = events_.top().node;
            events_.pop();
            happen(node, lock);
        }
        move(lock);
    }
}

// Gives the message of a transfer to the ranks, or waits for it to come. What the payload carries is queued at once.
void Mailbox::cross(int node, Lock& lock) {
    if (!polls()) {
        interval_[node].start = clock_now();
        lock.unlock();
        options_.payload->cross(node);
        lock.lock();
        return happen(node, lock);
    }
    Ranks& ranks = *options_.across.ranks;
    const int peer = options_.across.map.rank_of(graph_.device_of(lanes_.partner(node)));
    const std::span<std::byte> message = options_.payload->message(node);
    const int tag = options_.across.tag[node];
    interval_[node].start = clock_now();
    crossings_.push_back({node, is_send(graph_.task(node).op) ? ranks.send(peer, tag, message, lanes_.asks(node))
                                                              : ranks.receive(peer, tag, message)});
    wire_wakes_.notify_all();
}

// Looks which messages between ranks are through; true when one was.
bool Mailbox::poll(Lock& lock) {
    bool moved = false;
    for (std::size_t k = 0; k < crossings_.size();) {
        const auto [node, ticket] = crossings_[k];
        if (!options_.across.ranks->done(ticket)) {
            ++k;
            continue;
        }
        crossings_[k] = crossings_.back();
        crossings_.pop_back();
        happen(node, lock);
        moved = true;
    }
    move(lock);
    return moved;
}

void Mailbox::run_ranks() {
    Lock lock(mutex_);
    try {
        while (!closing_) {
            if (crossings_.empty() || aborted_)
                wire_wakes_.wait(lock);
            else
                wire_wakes_.wait_for(lock, kLooks);
            if (!aborted_)
                poll(lock);
        }
    } catch (...) {  // the next wait throws it
        lost_ = std::current_exception();
    }
}

void Mailbox::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (DeviceWaiter& waiter : waiters_)
        waiter.wakes.notify_all();
}

}  // namespace pw
