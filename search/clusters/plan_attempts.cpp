#include "search/clusters/plan_attempts.h"

#include "job/job.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "search/clusters/choice_bounds.h"
#include "sim/simulate.h"
#include "workloads/error.h"
#include "workloads/interruption.h"
#include "workloads/threads.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace pw {

namespace {

// Returns the choice without offload if no micro-batch leaves its device.
PlanChoice as_copied(PlanChoice choice, const Plan& plan) {
    if (std::ranges::none_of(plan.order, has_copies)) {
        choice.offloaded = 0;
        choice.offload_ahead = 1;
    }
    return choice;
}

FoundPlan simulated(const SearchSetup& setup, const PlanChoice& choice) {
    Notices notices;  // the command says once what there is to say about the best plan
    Job job = make_job(setup_of(setup, choice), notices);
    TransferMode mode = job.mode;
    mode.sent_copies = keeps_copies(job.costs, mode.early_receive());
    const auto plan = std::make_shared<const Plan>(std::move(job.plan));
    Simulator simulator(plan, job.proof, std::make_shared<const VersionTable>(std::move(job.versions)), mode);
    const Metrics metrics = simulator.metrics(job.costs, without_hash(*plan));
    FoundPlan found{.choice = as_copied(choice, *plan),
                    .step_time = metrics.step_time,
                    .bubble_rate = metrics.bubble_rate,
                    .parts = step_parts(job, plan->shape, metrics)};
    for (const DeviceMetrics& device : metrics.devices) {
        found.exposed = std::max(found.exposed, device.exposed_communication);
        found.reserved.push_back(device.needed_memory());
    }
    if (schedule_of(job.setup).needs_costs)
        found.plan = std::make_shared<const ProvenPlan>(ProvenPlan{*plan, job.proof});
    const Shortage worst = worst_of(found.reserved, job.setup.cluster.devices);
    found.fits = worst.needs <= worst.has;
    return found;
}

Attempt attempt_at(const PlanChoice& choice, const SearchSetup& setup, const Deadline& deadline) {
    const Interruption interruption([&] {
        if (deadline.is_over())
            throw TimeIsUp{};
    });
    try {
        return {true, true, simulated(setup, choice)};
    } catch (const TimeIsUp&) {
        return {true, false};
    } catch (const std::bad_alloc&) {
        return {false};
    } catch (const Error& error) {
        return {error.code() == ExitCode::Infeasible};  // the plan deadlocks with the transfers of the config
    }
}

void write(Packet& packet, const Attempt& attempt) {
    put(packet, attempt.has_memory);
    put(packet, attempt.has_time);
    put(packet, attempt.plan.has_value());
    if (!attempt.plan)
        return;
    put(packet, attempt.plan->choice.offloaded);
    put(packet, attempt.plan->choice.offload_ahead);
    put(packet, attempt.plan->step_time);
    put(packet, attempt.plan->fits);
    put(packet, attempt.plan->bubble_rate);
    put(packet, attempt.plan->exposed);
    put(packet, attempt.plan->parts);
    put(packet, attempt.plan->reserved.size());
    for (const Bytes bytes : attempt.plan->reserved)
        put(packet, bytes);
}

Attempt read_attempt(PacketReader& reader, const PlanChoice& choice) {
    Attempt attempt;
    attempt.has_memory = reader.take<bool>();
    attempt.has_time = reader.take<bool>();
    if (!reader.take<bool>())
        return attempt;
    FoundPlan& plan = attempt.plan.emplace(FoundPlan{.choice = choice});
    plan.choice.offloaded = reader.take<int>();
    plan.choice.offload_ahead = reader.take<int>();
    plan.step_time = reader.take<Ns>();
    plan.fits = reader.take<bool>();
    plan.bubble_rate = reader.take<std::optional<double>>();
    plan.exposed = reader.take<Ns>();
    plan.parts = reader.take<StepParts>();
    plan.reserved.resize(reader.take<std::size_t>());
    for (Bytes& bytes : plan.reserved)
        bytes = reader.take<Bytes>();
    return attempt;
}

}  // namespace

std::vector<Attempt> attempts_at(const std::vector<const PlanChoice*>& choices, const SearchSetup& setup,
                                 const PlanLimits& limits, const Deadline& deadline) {
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < choices.size(); ++i)
        if (limits.team.is_own(i))
            own.push_back(i);
    std::vector<Attempt> found(choices.size());
    for_each_index(own.size(), limits.threads,
                   [&](std::size_t k) { found[own[k]] = attempt_at(*choices[own[k]], setup, deadline); });
    Packet packet;
    for (const std::size_t i : own) {
        if (!found[i].has_memory && limits.threads > 1)
            found[i] = attempt_at(*choices[i], setup, deadline);
        put(packet, i);
        write(packet, found[i]);
    }
    share(limits.team, packet, [&](PacketReader& reader) {
        const auto i = reader.take<std::size_t>();
        found[i] = read_attempt(reader, *choices[i]);
    });
    return found;
}

}  // namespace pw
