#include "tests/virtual/world.h"

#include "exec/system/threads.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

World* the_world = nullptr;

// Stacks are used again by the next world.
constexpr std::size_t kStack = 256 << 10;
std::vector<void*>& free_stacks() {
    static std::vector<void*> stacks;
    return stacks;
}

void* take_stack() {
    if (free_stacks().empty()) {
        void* memory =
            mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0)
            std::abort();
        return memory;
    }
    void* memory = free_stacks().back();
    free_stacks().pop_back();
    return memory;
}

// Exceptions that a thread is handling (Itanium C++ ABI, section 2.2.2).
struct Handled {
    void* caught = nullptr;
    unsigned int uncaught = 0;
};

std::set<const void*> locked;  // mutexes

Handled& handled() { return *reinterpret_cast<Handled*>(abi::__cxa_get_globals()); }

}  // namespace

struct Fiber {
    int process = 0, number = 0;
    std::function<void()> act;
    ucontext_t context;  // to begin with
    jmp_buf at;          // where it was left: going there costs no call of the system
    bool begun = false;
    void* stack = nullptr;
    Handled handled;
    enum class State { Ready, Waiting, Ended } state = State::Ready;
    const void* place = nullptr;  // where it waits
    Ns until = kNever;            // of the world's time
};

struct World::Home {
    jmp_buf at;
    Handled handled;
};

World::World(std::uint64_t seed) : dice(seed), home_(new Home) {
    the_world = this;
    locked.clear();  // those of processes that ended
    one_switch_of_ = 2 << dice.below(5);
}

World::~World() {
    for (const auto& fiber : fibers_)
        if (fiber->stack != nullptr)
            free_stacks().push_back(fiber->stack);
    the_world = nullptr;
}

World& World::here() { return *the_world; }
int World::process() const { return running_->process; }

int World::start_process(Ns clock_ahead, std::function<void()> main) {
    processes_.push_back({clock_ahead});
    const int process = static_cast<int>(processes_.size()) - 1;
    add_fiber(process, std::move(main));
    return process;
}

void World::end_process(int process) {
    processes_[static_cast<std::size_t>(process)].alive = false;
    if (running_ != nullptr && running_->process == process)
        leave();
}

void World::stop_process(int process, bool stopped) { processes_[static_cast<std::size_t>(process)].stopped = stopped; }

std::shared_ptr<Fiber> World::add_fiber(int process, std::function<void()> act) {
    auto fiber = std::make_shared<Fiber>();
    fiber->process = process;
    fiber->number = static_cast<int>(fibers_.size());
    fiber->act = std::move(act);
    fiber->stack = take_stack();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStack;
    fiber->context.uc_link = nullptr;
    makecontext(
        &fiber->context,
        [] {
            World& world = here();
            world.running_->act();
            world.running_->act = nullptr;
            world.running_->state = Fiber::State::Ended;
            world.wake(world.running_);
            world.leave();
        },
        0);
    fibers_.push_back(fiber);
    return fiber;
}

std::shared_ptr<Fiber> World::start_thread(std::function<void()> act) {
    return add_fiber(running_->process, std::move(act));
}

bool World::can_run(const Fiber& fiber) const {
    const Process& process = processes_[static_cast<std::size_t>(fiber.process)];
    return process.alive && !process.stopped;
}

bool World::run(Ns latest) {
    for (;;) {
        while (!events_.empty() && events_.top().time <= now) {
            const std::function<void()> act = std::move(const_cast<Event&>(events_.top()).act);
            events_.pop();
            act();
        }
        ready_.clear();
        for (const auto& fiber : fibers_) {
            if (fiber->state == Fiber::State::Waiting && fiber->until <= now)
                fiber->state = Fiber::State::Ready;
            if (fiber->state == Fiber::State::Ready && can_run(*fiber))
                ready_.push_back(fiber.get());
        }
        if (!ready_.empty())
            go_on(*ready_[static_cast<std::size_t>(dice.below(ready_.size()))]);
        else if (std::ranges::none_of(processes_, [](const Process& process) { return process.alive; }))
            return true;
        else if (!pass_time(latest))
            return false;
    }
}

// To when something happens next; nobody can go on before.
bool World::pass_time(Ns latest) {
    Ns next = events_.empty() ? kNever : events_.top().time;
    for (const auto& fiber : fibers_)
        if (fiber->state == Fiber::State::Waiting && can_run(*fiber))
            next = std::min(next, fiber->until);
    if (next == kNever || next > latest)
        return false;
    now = std::max(now, next);
    return true;
}

void World::go_on(Fiber& fiber) {
    now += dice.up_to(300);
    fingerprint =
        (fingerprint ^ static_cast<std::uint64_t>(fiber.number)) * 0x100000001b3 + static_cast<std::uint64_t>(now);
    running_ = &fiber;
    home_->handled = std::exchange(handled(), fiber.handled);
    if (_setjmp(home_->at) == 0) {
        if (std::exchange(fiber.begun, true))
            _longjmp(fiber.at, 1);
        setcontext(&fiber.context);
    }
    running_ = nullptr;
}

void World::leave() {
    running_->handled = std::exchange(handled(), home_->handled);
    if (_setjmp(running_->at) == 0)
        _longjmp(home_->at, 1);
}

void World::at(Ns time, std::function<void()> event) { events_.push({time, events_seen_++, std::move(event)}); }

Ns World::clock() const {
    return now + (running_ == nullptr ? 0 : processes_[static_cast<std::size_t>(running_->process)].clock_ahead);
}

void World::wait(const void* place, Ns until) {
    running_->state = Fiber::State::Waiting;
    running_->place = place;
    running_->until = until == kNever ? kNever : until - (clock() - now);
    leave();
    running_->place = nullptr;
}

void World::wake(const void* place) {
    for (const auto& fiber : fibers_)
        if (fiber->state == Fiber::State::Waiting && fiber->place == place)
            fiber->state = Fiber::State::Ready;
}

void World::maybe_others() {
    if (running_ != nullptr && dice.one_of(one_switch_of_))
        leave();
}

void World::others(Ns time) { wait(nullptr, clock() + time); }

std::string World::waiting() const {
    std::string text;
    for (const auto& fiber : fibers_)
        if (fiber->state != Fiber::State::Ended && processes_[static_cast<std::size_t>(fiber->process)].alive)
            text += fmt::format(" [process {} thread {}{} at {} until {}]", fiber->process, fiber->number,
                                fiber->state == Fiber::State::Waiting ? "" : " ready", fiber->place,
                                fiber->until == kNever ? "ever" : std::to_string(fiber->until));
    return text;
}

std::string World::whose(const std::string& text) const {
    return fmt::format("{:>12.6f} ms  {}", static_cast<double>(now) * 1e-6, text);
}

// What the engine is linked with.

Ns clock_now() { return World::here().clock(); }

void Mutex::lock() {
    World::here().maybe_others();
    while (!try_lock())
        World::here().wait(this, kNever);
}
bool Mutex::try_lock() { return locked.insert(this).second; }
void Mutex::unlock() {
    locked.erase(this);
    World::here().wake(this);
}

void Condition::notify_all() {
    World::here().wake(this);
    World::here().maybe_others();
}

void Condition::wait(Lock& lock) { wait_until(lock, kNever); }

void Condition::wait_until(Lock& lock, Ns time) {
    lock.unlock();
    World::here().wait(this, time);
    lock.lock();
}

struct Thread::Body {
    std::shared_ptr<Fiber> fiber;  // null once joined, or left behind
};

Thread::Thread() = default;
Thread::Thread(std::function<void()> act) : body_(new Body{World::here().start_thread(std::move(act))}) {}
Thread::Thread(Thread&&) noexcept = default;
Thread& Thread::operator=(Thread&&) noexcept = default;
Thread::~Thread() = default;
bool Thread::joinable() const { return body_ != nullptr && body_->fiber != nullptr; }
void Thread::join() {
    while (body_->fiber->state != Fiber::State::Ended)
        World::here().wait(body_->fiber.get(), kNever);
    body_->fiber = nullptr;
}
void Thread::detach() { body_->fiber = nullptr; }

Thread start_thread(const std::string&, std::function<void()> act) { return Thread(std::move(act)); }
void sleep_for(Ns time) { World::here().others(time); }
void let_others_run() { World::here().others(20'000); }
void give_way() {}
void wake_on_time() {}

}  // namespace pw
