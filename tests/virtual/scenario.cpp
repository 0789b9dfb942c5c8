#include "tests/virtual/scenario.h"

#include "exec/execute.h"
#include "tests/virtual/hosts.h"
#include "tests/virtual/network.h"
#include "tests/virtual/world.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace pw {

namespace {

enum class Fault {
    Nothing,
    Pause,           // a rank is stopped for less than the timeout
    AllPause,        // all ranks are stopped, for any time: a machine that sleeps
    LongTask,        // a device has a long task, within the limit
    Leave,           // the run is asked to stop after a step
    Crash,           // a rank is killed
    Stop,            // a rank is stopped for good
    Throw,           // a device fails
    Hang,            // a device does not return
    LoseConnection,  // a rank's connection transmits nothing any more
    LoseMessages     // all messages from one rank to another are lost
};
constexpr const char* kNames[] = {"nothing", "pause", "all pause", "long task",       "leave",        "crash",
                                  "stop",    "throw", "hang",      "lose connection", "lose messages"};

Fault draw_fault(Dice& dice) {
    constexpr int kWeights[] = {30, 8, 4, 5, 6, 16, 7, 7, 5, 5, 7};  // percent
    int left = dice.below(100), fault = 0;
    while (left >= kWeights[fault])
        left -= kWeights[fault++];
    return static_cast<Fault>(fault);
}

struct Scenario {
    const Subject* subject = nullptr;
    int ranks = 1, steps = 1;
    Fault fault = Fault::Nothing;
    Ns at = 0, lasts = 0;
    int rank = 0, other = 0;   // the ranks of the fault
    int device = 0, task = 0;  // the device of the fault, and the number of its task, over all steps
    Ns work = 0;               // the longest time of a task
    Delays delays;
    bool calls_fail = false, lazy = false, guarded = false;
};

Scenario draw(const std::vector<Subject>& subjects, Dice& dice) {
    Scenario scenario;
    scenario.subject = &subjects[static_cast<std::size_t>(dice.below(subjects.size()))];
    const Job& job = scenario.subject->job;
    const int devices = job.plan.shape.devices;
    scenario.ranks = 2 + dice.below(static_cast<std::size_t>(devices) - 1);
    scenario.fault = draw_fault(dice);
    scenario.work = (Ns{1} << dice.below(9)) * kMicrosecond;
    scenario.delays = {.message = (Ns{1} << dice.below(10)) * kMicrosecond,
                       .connection = (Ns{1} << dice.below(12)) * kMicrosecond,
                       .slow_one_of = dice.one_of(2) ? 20 : 1'000'000};
    scenario.delays.connection =
        std::min(scenario.delays.connection, 3 * kMillisecond) / (scenario.delays.slow_one_of < 100 ? 10 : 1);
    const Ns duration = scenario.subject->duration + 20 * scenario.delays.message + 10 * kMillisecond;
    scenario.at = dice.up_to(dice.one_of(2) ? duration : duration / 4);
    scenario.lasts = scenario.fault == Fault::AllPause ? dice.up_to(10 * kSecond) : dice.up_to(kTimeout * 4 / 10);
    scenario.rank = dice.below(static_cast<std::size_t>(scenario.ranks));
    scenario.other = (scenario.rank + 1 + dice.below(static_cast<std::size_t>(scenario.ranks) - 1)) % scenario.ranks;
    scenario.device = dice.below(static_cast<std::size_t>(devices));
    const std::size_t tasks = job.plan.order[static_cast<std::size_t>(scenario.device)].size();
    scenario.task = dice.below(tasks * static_cast<std::size_t>(steps_of(job)));
    scenario.calls_fail = dice.one_of(2);
    scenario.lazy = dice.one_of(2);
    scenario.guarded = dice.one_of(4);
    return scenario;
}

void sleep_in_task(World& world, Ns time) {
    if (time > 0)
        world.yield(world.dice.up_to(time));
}

RunOptions options_of(const Scenario& scenario, World& world, std::vector<int>& begun) {
    RunOptions options;
    options.whole_trace = false;
    options.guarded = scenario.guarded;
    options.before_task = [&](int device, const Task& task) {
        const bool befalls = device == scenario.device && begun[static_cast<std::size_t>(device)]++ == scenario.task;
        if (is_transfer(task.op) && !befalls)
            return;
        if (befalls && scenario.fault == Fault::Throw)
            fail_with(ExitCode::RunFailed, "device {} breaks", device);
        if (befalls && scenario.fault == Fault::Hang)
            world.wait(nullptr, kNever);
        sleep_in_task(world, befalls && scenario.fault == Fault::LongTask ? 8 * kTimeout : scenario.work);
    };
    options.should_stop = [&] {
        return scenario.fault == Fault::Leave && world.process() == scenario.rank && world.now >= scenario.at;
    };
    return options;
}

void run_rank(const Scenario& scenario, int rank, std::vector<int>& begun) {
    World& world = World::here();
    world.yield(world.dice.up_to(2 * kMillisecond));  // a launcher starts the ranks one after the other
    Ending ending;
    try {
        const RunResult result = run(scenario.subject->job, options_of(scenario, world, begun));
        ending.hash = result.weights_hash;
        ending.stopped_after = result.stopped_after;
    } catch (const Error& error) {
        ending.code = error.code();
        ending.text = error.what();
    }
    end_rank(rank, std::move(ending));
}

bool has_control_connection(int rank) {
    const std::vector<int>& connected = hosts->connected;
    return rank == 0 ? connected.size() + 1 == hosts->endings.size()
                     : std::find(connected.begin(), connected.end(), rank) != connected.end();
}

void inject_fault(const Scenario& scenario, World& world, Network& network, Ns at) {
    const int rank = scenario.rank;
    const auto say = [&world](const std::string& text) {
        if (world.log)
            world.log(text);
    };
    const auto pause = [&world, &scenario](int first, int last) {
        for (int each = first; each <= last; ++each)
            world.stop_process(each, true);
        world.at(world.now + scenario.lasts, [&world, first, last] {
            for (int each = first; each <= last; ++each)
                world.stop_process(each, false);
        });
    };
    world.at(at, [&, rank, say, pause] {
        if (scenario.fault == Fault::AllPause && !has_control_connection(0))
            return inject_fault(scenario, world, network, world.now + kMillisecond);
        switch (scenario.fault) {
            case Fault::Pause:
                say(fmt::format("rank {} pauses", rank));
                return pause(rank, rank);
            case Fault::AllPause:
                say("all ranks pause");
                return pause(0, scenario.ranks - 1);
            case Fault::Stop:
                say(fmt::format("rank {} is stopped", rank));
                return world.stop_process(rank, true);
            case Fault::Crash:
                if (!world.is_alive(rank))
                    return;
                say(fmt::format("rank {} is killed", rank));
                world.end_process(rank);
                return network.end(rank, false);
            case Fault::LoseConnection:
                say(fmt::format("the connection of rank {} is lost", rank));
                return network.lose_connection(rank);
            case Fault::LoseMessages:
                say(fmt::format("messages from rank {} to rank {} get lost", rank, scenario.other));
                return network.lose_messages(rank, scenario.other);
            default:
                return;
        }
    });
}

// A rank without a control connection cannot report the cause, only that another rank does not answer.
bool may_not_name_cause(int rank) {
    return !has_control_connection(rank) ||
           (!has_control_connection(0) && hosts->endings[0].text.find("cannot reach") != std::string::npos);
}

// Returns whether an error names the rank or one of its devices.
bool names(const std::string& text, const Scenario& scenario, int rank) {
    if (text.find(fmt::format("rank {}", rank)) != std::string::npos)
        return true;
    const RankMap map(scenario.subject->job.plan.shape.devices, hosts->network->ranks_of(rank));
    for (int device = 0; device < scenario.subject->job.plan.shape.devices; ++device)
        if (map.is_here(device) && text.find(fmt::format("device {} is silent", device)) != std::string::npos)
            return true;
    return false;
}

bool is_harmless(Fault fault) { return fault <= Fault::Leave; }

void judge_endings(const Scenario& scenario, const World& world, const Network& network, Judgement& judgement) {
    const auto complain = [&](const std::string& text) { judgement.wrong.push_back(text); };
    const std::vector<std::string>& right = scenario.subject->hash_after;
    const Fault fault = scenario.fault;
    const bool spared = fault != Fault::Crash && fault != Fault::Stop;
    for (int rank = 0; rank < scenario.ranks; ++rank) {
        const Ending& ending = hosts->endings[static_cast<std::size_t>(rank)];
        if (ending.at < 0) {
            if (spared || rank != scenario.rank)
                complain(fmt::format("rank {} did not end", rank));
            continue;
        }
        const int code = static_cast<int>(ending.code);
        if (ending.code == ExitCode::Ok) {
            const auto steps = static_cast<std::size_t>(ending.stopped_after.value_or(static_cast<int>(right.size())));
            if (rank == 0 && ending.hash != right.at(steps - 1))
                complain(fmt::format("rank 0 ends after {} steps with the weights {}, not {}", steps, ending.hash,
                                     right.at(steps - 1)));
            judgement.completed = judgement.completed || rank == 0;
            continue;
        }
        if (is_harmless(fault))
            complain(fmt::format("rank {} ends with {} though nothing was wrong: {}", rank, code, ending.text));
        if (code != 1 && code != 5)
            complain(fmt::format("rank {} ends with {}: {}", rank, code, ending.text));
        const Ns took = ending.at - scenario.at;
        if (fault == Fault::Crash) {
            if (rank != scenario.rank && !may_not_name_cause(rank) && !names(ending.text, scenario, scenario.rank))
                complain(fmt::format("rank {} does not name rank {}: {}", rank, scenario.rank, ending.text));
            if (took > kTimeout + 2 * kSecond)
                complain(fmt::format("rank {} ends {:.3f} s after rank {} was gone", rank,
                                     static_cast<double>(took) * 1e-9, scenario.rank));
        }
        if (fault == Fault::Stop && rank != scenario.rank) {
            if (!may_not_name_cause(rank) && !names(ending.text, scenario, scenario.rank))
                complain(fmt::format("rank {} does not name rank {}: {}", rank, scenario.rank, ending.text));
            if (!may_not_name_cause(rank) && code != 5)
                complain(fmt::format("rank {} ends with {}: {}", rank, code, ending.text));
        }
        if (fault == Fault::Throw &&
            ending.text.find(fmt::format("device {} breaks", scenario.device)) == std::string::npos)
            complain(fmt::format("rank {} does not report the failure: {}", rank, ending.text));
        if (fault == Fault::Hang &&
            ending.text.find(fmt::format("device {} is silent", scenario.device)) == std::string::npos)
            complain(fmt::format("rank {} does not name device {}: {}", rank, scenario.device, ending.text));
        if (fault == Fault::Hang && code != 5)
            complain(fmt::format("rank {} ends with {}: {}", rank, code, ending.text));
    }
    if (fault == Fault::LoseMessages && !network.has_lost() && !judgement.completed)
        complain("no message was lost, and the run did not end well");
    for (const std::string& text : world.wrong)
        complain(text);
}

Ns longest(const Scenario& scenario) { return 20 * kSecond + scenario.lasts + 40 * scenario.subject->duration; }

}  // namespace

Judgement judge(const std::vector<Subject>& subjects, std::uint64_t seed, bool prints) {
    World world(seed);
    const Scenario scenario = draw(subjects, world.dice);
    if (prints)
        world.log = [&](const std::string& text) { fmt::print("{}\n", world.with_time(text)); };
    Network network(world, scenario.ranks, scenario.delays);
    network.calls_fail = scenario.calls_fail;
    network.lazy = scenario.lazy;
    Hosts now{&network, std::vector<Ending>(static_cast<std::size_t>(scenario.ranks)), 1 + world.dice.below(8)};
    hosts = &now;
    std::vector<int> begun(static_cast<std::size_t>(scenario.subject->job.plan.shape.devices));
    for (int rank = 0; rank < scenario.ranks; ++rank)
        world.start_process(rank == 0 ? kSecond : world.dice.up_to(kSecond),
                            [&, rank] { run_rank(scenario, rank, begun); });
    inject_fault(scenario, world, network, scenario.at);

    Judgement judgement;
    judgement.what = kNames[static_cast<int>(scenario.fault)];
    judgement.subject =
        fmt::format("{} on {} ranks{}", scenario.subject->name, scenario.ranks, scenario.guarded ? ", guarded" : "");
    if (world.log)
        world.log(fmt::format("{}: {}", judgement.subject, judgement.what));
    if (!world.run(longest(scenario)) && scenario.fault != Fault::Stop)
        judgement.wrong.push_back("it does not end:" + world.waiting());
    judge_endings(scenario, world, network, judgement);
    judgement.fingerprint = world.fingerprint;
    judgement.lasted = world.now;
    hosts = nullptr;
    return judgement;
}

}  // namespace pw
