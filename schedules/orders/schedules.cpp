#include "schedules/memory/limits.h"
#include "schedules/orders/copies.h"
#include "schedules/orders/kept_order.h"
#include "schedules/orders/order_costs.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "workloads/error.h"
#include "workloads/interruption.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

namespace pw {

// The rows, each in the file of its schedule.
extern const Schedule kNaive, kGpipe, kOneFOneB, kEagerOneFOneB, kInterleaved, kBreadthFirst, kZbH1, kZbH2, kZb1p, kZbV,
    kVHalf, kVMin, kHanayo, kSeq1f1b, kChimera, kDualPipe, kDualPipeV, kPipedream, kPipedream2bw, kPipemare,
    kForwardOnly, kAuto, kAutoV, kAutoBidirectional, kVocab1, kVocab2, kVocabInterlaced;

std::span<const Schedule> schedules() {
    static const Schedule all[] = {
        kNaive,        kGpipe,    kOneFOneB,    kEagerOneFOneB, kInterleaved, kBreadthFirst,
        kZbH1,         kZbH2,     kZb1p,        kZbV,           kVHalf,       kVMin,
        kHanayo,       kSeq1f1b,  kChimera,     kDualPipe,      kDualPipeV,   kPipedream,
        kPipedream2bw, kPipemare, kForwardOnly, kAuto,          kAutoV,       kAutoBidirectional};
    return all;
}

std::span<const Schedule> vocabulary_schedules() {
    static const Schedule all[] = {kVocab1, kVocab2, kVocabInterlaced};
    return all;
}

namespace {

// Names of published schedules that have no row: the error about such a name says so and suggests no similar name.
constexpr std::string_view kNotHere[] = {"bpipe", "gems", "terapipe", "xpipe", "zb-1p", "zb-2p"};

// "Basic_1F1B" and "basic-1f1b" are the same name.
std::string plain(std::string_view text) {
    std::string copy(text);
    std::transform(copy.begin(), copy.end(), copy.begin(),
                   [](unsigned char c) { return c == '_' ? '-' : std::tolower(c); });
    return copy;
}

// Returns whether spaces divide `words` into words of which one is `word`.
bool has_word(std::string_view words, std::string_view word) {
    for (std::size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
            return true;
    }
    return false;
}

bool is_called(const Schedule& schedule, std::string_view name) {
    return schedule.name == name || (!name.empty() && name.find(' ') == name.npos && has_word(schedule.aliases, name));
}

template <class Condition>
std::string names_where(Condition condition) {
    std::string names;
    for (const std::span<const Schedule> table : {schedules(), vocabulary_schedules()})
        for (const Schedule& schedule : table)
            if (condition(schedule))
                names += (names.empty() ? "" : ", ") + std::string(schedule.name);
    return names;
}

// Returns the name or alias that is nearest to a normalised name.
std::optional<std::string_view> near_to(const std::string& name) {
    std::vector<std::string_view> known;
    for (const std::span<const Schedule> table : {schedules(), vocabulary_schedules()})
        for (const Schedule& schedule : table) {
            known.push_back(schedule.name);
            for (std::size_t at = 0; at < schedule.aliases.size();) {
                const std::size_t end = std::min(schedule.aliases.find(' ', at), schedule.aliases.size());
                known.push_back(schedule.aliases.substr(at, end - at));
                at = end + 1;
            }
        }
    return nearest(name, known);
}

void check_stages(const Schedule& schedule, const Shape& shape) {
    if (shape.devices % shape.copies != 0)
        fail_about({Setting::Devices, Setting::StageReplicas},
                   "{} devices for {} replicas of a pipeline\n  help: set the number of devices to {}", shape.devices,
                   shape.copies, (shape.devices / shape.copies + 1) * shape.copies);
    if (const int listed = schedule.placement.listed_devices(); listed != 0 && listed != shape.devices / shape.copies)
        fail_about({Setting::Devices},
                   "schedule {} places its stages on {} devices: {} devices{} do not fit\n  help: set the number of "
                   "devices to {}",
                   schedule.name, listed, shape.devices / shape.copies, shape.copies > 1 ? " of each replica" : "",
                   listed * shape.copies);
    if (const int legal = legal_stages(schedule, shape); legal != shape.stages)
        fail_about({Setting::Stages},
                   "schedule {} places {} on each device: {} stages on {} devices{} do not fit\n  help: "
                   "set the number of stages to {}",
                   schedule.name, schedule.placement.each_device, shape.stages, shape.devices / shape.copies,
                   shape.copies > 1 ? " of each replica" : "", legal);
}

void check_replicas(const Schedule& schedule, const Shape& shape) {
    if (!schedule.takes_replicas())
        fail("schedule {} has one device per stage; replicas are for {}", schedule.name,
             names_where([](const Schedule& other) { return other.takes_replicas(); }));
    if (shape.devices_before(shape.stages) != shape.devices)
        fail_about({Setting::Devices},
                   "the replicas of {} stages are {} devices, not {}\n  help: set the number of devices to {}",
                   shape.stages, shape.devices_before(shape.stages), shape.devices, shape.devices_before(shape.stages));
}

// Without a flush, stages that share parameters would update them at different times, and gradients of one mini-batch
// are never complete for a norm.
void check_flushes(const Schedule& schedule, const Shape& shape) {
    if (!schedule.asynchronous())
        return;
    if (shape.copies > 1)
        fail_about({Setting::StageReplicas},
                   "schedule {} never flushes: its devices have one stage each where stages have replicas",
                   schedule.name);
    if (!shape.ties.empty())
        fail("schedule {} never flushes: stages {} and {} share parameters, but update them at different times",
             schedule.name, shape.ties.front().from, shape.ties.front().to);
    if (shape.global_norm)
        fail("schedule {} never flushes: there is no norm of all gradients of one mini-batch", schedule.name);
}

}  // namespace

const Schedule& schedule_named(std::string_view name) {
    const std::string called = plain(name);
    for (const std::span<const Schedule> table : {schedules(), vocabulary_schedules()})
        for (const Schedule& schedule : table)
            if (is_called(schedule, called))
                return schedule;
    if (called.ends_with(".py"))
        fail(
            "schedule '{}' is a program in Python, which runs in the Python module only\n  help: call "
            "pipewright.simulate(config, schedule=function) there (docs/python.md), or write its plan to a *.csv file "
            "(Result.plan_csv()) and name the file here",
            name);
    const std::string all = fmt::format("the schedules are {}, or a plan in a *.csv file",
                                        names_where([](const Schedule&) { return true; }));
    if (std::find(std::begin(kNotHere), std::end(kNotHere), called) != std::end(kNotHere))
        fail("schedule {} is not in this version\n  help: {}", called, all);
    const std::string several =
        names_where([&](const Schedule& schedule) { return called.size() > 1 && schedule.name.starts_with(called); });
    const std::optional<std::string_view> guess = near_to(called);
    const std::string parts = names_where(  // "1f1b-interleaved"
        [&](const Schedule& schedule) { return called.find(schedule.name) != std::string::npos; });
    const std::string meant = several.find(',') != std::string::npos ? several
                              : guess                                ? fmt::format("'{}'", *guess)
                                                                     : parts;
    fail("no schedule '{}'\n  help: {}{}", name, meant.empty() ? "" : fmt::format("did you mean {}? ", meant), all);
}

std::vector<std::string> training_schedules() {
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        if (schedule.trains)
            names.emplace_back(schedule.name);
    return names;
}

int legal_stages(const Schedule& schedule, const Shape& shape) {
    const Placement& placement = schedule.placement;
    return placement.devices.empty() ? placement.nearest(shape.stages, shape.devices / shape.copies)
                                     : static_cast<int>(placement.devices.size());
}

bool place_stages(const Schedule& schedule, Shape& shape) {
    const Placement& placement = schedule.placement;
    const int copies = shape.copies, devices = shape.devices / copies;
    if (!placement.fits(shape.stages, devices))
        return false;
    Shape one = shape;
    one.devices = devices;
    for (const int device : placement.devices)
        one.placement.push_back({device});
    if (placement.place != nullptr)
        placement.place(one);
    std::vector<std::vector<int>> holders = one.placement;
    if (holders.empty() && copies > 1)
        for (int stage = 0; stage < one.stages; ++stage)
            holders.push_back(one.devices_of(stage));
    shape.placement = on_copies(holders, copies);
    shape.serving = on_copies(one.serving, copies);
    if (placement.link != nullptr)
        placement.link(shape);
    return true;
}

int even_share(const Shape& shape) {
    std::int64_t share = shape.copies;
    for (const std::vector<int>& holders : shape.serving.empty() ? shape.placement : shape.serving)
        share = std::min<std::int64_t>(std::lcm(share, std::ssize(holders)), std::numeric_limits<int>::max());
    return static_cast<int>(share);
}

std::string same_orders_as(const Schedule& schedule, const Shape& shape, const ScheduleOptions& options) {
    using Drain = ScheduleOptions::Drain;
    const Shape one = copy_of(schedule, shape, 0);
    if (schedule.one_stage.empty() || one.stages != one.devices)
        return {};
    const Schedule& other = schedule_named(schedule.one_stage);
    const std::vector<Tasks> own = schedule.orders({one, options});
    for (const Drain drain : {Drain::Own, Drain::Lifo})
        if (own == other.orders({one, {.drain = drain}}))
            return drain == Drain::Own ? std::string(other.name)
                                       : fmt::format("{} with drain: {}", other.name, name_of(drain));
    return {};
}

Shape placed(const Schedule& schedule, Shape shape) {
    if (schedule.updates == Updates::PerMicroBatch)
        shape.per_update = even_share(shape);
    if (!shape.placement.empty()) {
        check_replicas(schedule, shape);
    } else {
        check_stages(schedule, shape);
        place_stages(schedule, shape);
        check_copies(schedule, shape);
    }
    if (schedule.asynchronous() && schedule.takes_replicas() && shape.stages == shape.devices / shape.copies)
        shape.copies = 1;
    check_flushes(schedule, shape);
    refuse_large(shape);
    return shape;
}

ProvenPlan ordered(const Schedule& schedule, Shape shape, const PlanOptions& options, const OrderCosts* costs) {
    if (schedule.needs_costs && costs == nullptr)
        fail("schedule {} orders tasks by their costs, and this plan has none", schedule.name);
    const Request request{shape, options.schedule, costs, &schedule};
    std::vector<Tasks> order = orders_of(schedule, request);
    if (!options.current.empty() && costs != nullptr)
        order = shorter_order(request, std::move(order), options.current);
    return with_order(schedule, std::move(shape), std::move(order), options, costs);
}

ProvenPlan with_order(const Schedule& schedule, Shape shape, std::vector<Tasks> order, const PlanOptions& options,
                      const OrderCosts* costs) {
    Plan plan;
    plan.schedule = schedule.name;
    plan.weights = options.weights.value_or(schedule.policies.front());
    plan.asynchronous = schedule.asynchronous();
    plan.prediction = options.prediction;
    plan.shape = std::move(shape);
    plan.order = std::move(order);
    for (int stage = 0; schedule.missing_gradients != nullptr && stage < plan.shape.stages; ++stage)
        plan.missing_gradients.push_back(schedule.missing_gradients(plan.shape, stage));
    TransferMode mode = options.transfers;
    mode.protocol = TransferMode::Protocol::Rendezvous;
    drop_backwards(plan);
    add_updates(plan, costs != nullptr ? known_times(*costs) : KnownTimes{});
    Interruption::point();
    add_transfers(plan, mode);
    Interruption::point();
    add_recomputes(plan, options.recompute);
    Interruption::point();
    std::shared_ptr<const Proof> proof = check(plan, mode);
    return {std::move(plan), std::move(proof)};
}

ProvenPlan proven_plan(const Schedule& schedule, Shape shape, const PlanOptions& options) {
    return ordered(schedule, placed(schedule, std::move(shape)), options);
}

Plan make_plan(const Schedule& schedule, Shape shape, const PlanOptions& options) {
    return proven_plan(schedule, std::move(shape), options).plan;
}

}  // namespace pw
