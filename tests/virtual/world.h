// A world of processes whose threads take turns on one thread of the system and whose time is virtual: it passes while
// nobody can go on. Who goes on and what is slow is drawn from a seed, so that a seed tells a whole run, and gives the
// same one again. It stands in for exec/system/threads.cpp and workloads/clock.cpp.
#pragma once

#include "workloads/units.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

namespace pw {

inline constexpr Ns kNever = INT64_MAX;

// Draws numbers from a seed (splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014).
class Dice {
public:
    explicit Dice(std::uint64_t seed) : state_(seed) {}
    std::uint64_t draw() {
        std::uint64_t bits = state_ += 0x9e3779b97f4a7c15;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
        return bits ^ (bits >> 31);
    }
    Ns up_to(Ns most) { return static_cast<Ns>(draw() % static_cast<std::uint64_t>(most + 1)); }
    int below(std::size_t count) { return static_cast<int>(draw() % count); }
    bool one_of(int times) { return below(static_cast<std::size_t>(times)) == 0; }

private:
    std::uint64_t state_;
};

struct Fiber;

class World {
public:
    explicit World(std::uint64_t seed);
    ~World();
    static World& here();  // the one that runs

    Dice dice;
    Ns now = 0;
    std::uint64_t fingerprint = 0;                 // of who went on and when
    std::vector<std::string> wrong;                // what must not happen
    std::function<void(const std::string&)> tell;  // what happens, for people; may be empty

    // Processes. What one of them does begins with a first thread.
    int start_process(Ns clock_ahead, std::function<void()> main);
    void end_process(int process);  // its threads stop where they are
    void stop_process(int process, bool stopped);
    bool is_alive(int process) const { return processes_[static_cast<std::size_t>(process)].alive; }
    int process() const;  // of the thread that runs

    // Goes on until all processes have ended; false when nothing more can happen, or `latest` has come.
    bool run(Ns latest);
    void at(Ns time, std::function<void()> event);
    std::string waiting() const;  // who waits

    // Of the thread that runs.
    std::shared_ptr<Fiber> start_thread(std::function<void()> act);
    Ns clock() const;
    void wait(const void* place, Ns until);  // until somebody wakes the place, or its own clock shows `until`
    void wake(const void* place);
    void maybe_others();  // they go on, at times
    void others(Ns time);
    std::string whose(const std::string& text) const;

private:
    struct Process {
        Ns clock_ahead = 0;
        bool alive = true, stopped = false;
    };
    struct Event {
        Ns time;
        std::int64_t number;
        std::function<void()> act;
        bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : number > other.number;
        }
    };
    std::shared_ptr<Fiber> add_fiber(int process, std::function<void()> act);
    bool can_run(const Fiber& fiber) const;
    bool pass_time(Ns latest);
    void go_on(Fiber& fiber);
    void leave();  // back to run()

    std::vector<Process> processes_;
    std::vector<std::shared_ptr<Fiber>> fibers_;
    std::vector<Fiber*> ready_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::int64_t events_seen_ = 0;
    Fiber* running_ = nullptr;
    int one_switch_of_ = 1;
    struct Home;
    std::unique_ptr<Home> home_;
};

}  // namespace pw
