#include "schedules/memory/limits.h"
#include "schedules/orders/orders.h"
#include "schedules/passes/passes.h"
#include "workloads/error.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

namespace pw {

namespace {

constexpr auto kFlush = WeightPolicy::Flush;
constexpr auto kPerStep = Updates::PerStep;

const Schedule kSchedules[] = {
    {"naive",
     "",
     "model parallel: one micro-batch in flight",
     "-",
     Placement::Any,
     1,
     kPerStep,
     {kFlush},
     "m (p-1) (F+B)",
     "1",
     naive},
    {"gpipe",
     "",
     "all forwards, then all backwards",
     "Huang et al. 2019, arXiv 1811.06965",
     Placement::Any,
     1,
     kPerStep,
     {kFlush},
     "(p-1) (F+B)",
     "m",
     gpipe,
     {},
     true,
     "drain"},
    {"1f1b",
     "basic-1f1b dapple pipedream-flush",
     "after warm-up, one forward then one backward",
     "DAPPLE, PipeDream-Flush 2020, arXiv 2006.09503",
     Placement::Linear,
     1,
     kPerStep,
     {kFlush},
     "(p-1) (F+B)",
     "min(m, p-d)",
     one_f_one_b},
    {"eager-1f1b",
     "",
     "1f1b with twice the warm-up: hides transfers",
     "Zhuang et al., MLSys 2023",
     Placement::Linear,
     1,
     kPerStep,
     {kFlush},
     "(p-1) (F+B)",
     "min(m, 2(p-d)-1)",
     eager_one_f_one_b},
    {"interleaved",
     "interleaved1f1b interleave interleaved-1f1b vpp",
     "1f1b over several stages per device",
     "Narayanan et al. 2021, arXiv 2104.04473",
     Placement::Looped,
     2,
     kPerStep,
     {kFlush},
     "(p-1) (F+B) / v",
     "min(m, (2(p-d)-1 + (v-1)N) / v)",
     interleaved,
     "eager-1f1b",
     true,
     "group"},
    {"bfs",
     "loopedbfs looped-bfs breadth-first",
     "each stage of a device runs all its micro-batches at once",
     "Lamy-Poirier 2022, arXiv 2211.05953",
     Placement::Looped,
     2,
     kPerStep,
     {kFlush},
     "(p-1) (F+B) / v",
     "m",
     breadth_first,
     "gpipe",
     true,
     "drain"},
    {"zb-h1",
     "zerobubble zero-bubble",
     "1f1b with W in the gaps, at its memory",
     "Qi et al. 2024, arXiv 2401.10241",
     Placement::Linear,
     1,
     kPerStep,
     {kFlush},
     "(p-1) (F+I-W)",
     "min(m, p-d) until I, min(m, p) until W",
     zb_h1},
    {"zb-h2",
     "",
     "zero bubble of span at twice the memory",
     "Qi et al. 2024, arXiv 2401.10241",
     Placement::Linear,
     1,
     kPerStep,
     {kFlush},
     "(p-1) (F+I-2W), of span",
     "min(m, 2(p-d)-1) until I, min(m, 2p-1) until W",
     zb_h2},
    {"zb1p",
     "interleavedzerobubble interleaved-zero-bubble",
     "interleaved with W in the gaps",
     "PyTorch InterleavedZeroBubble",
     Placement::Looped,
     2,
     kPerStep,
     {kFlush},
     "(p-1) (F+I-W) / v",
     "min(m, (p + (v-1)N) / v) until W",
     zb1p,
     "zb-h1",
     true,
     "group"},
    {"zb-v",
     "zbv zbvzerobubble zbv-formatted",
     "two stages per device in a V: zero bubble of span when F=I=W",
     "Qi et al. 2024, arXiv 2401.10241",
     Placement::V,
     2,
     kPerStep,
     {kFlush},
     "0 of span when F=I=W",
     "min(m, p) until W",
     zb_v},
    {"pipedream",
     "",
     "1f1b that never flushes, an update after every backward",
     "Narayanan et al., SOSP 2019",
     Placement::Linear,
     1,
     Updates::PerMicroBatch,
     {WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::Latest},
     "(p-1) (F+B) once per run",
     "p-d",
     one_f_one_b},
    {"pipedream-2bw",
     "2bw",
     "1f1b that never flushes, an update after every m backwards, two weight versions",
     "Narayanan et al., ICML 2021, arXiv 2006.09503",
     Placement::Linear,
     1,
     Updates::PerMiniBatch,
     {WeightPolicy::DoubleBuffer},
     "(p-1) (F+B) once per run",
     "p-d",
     double_buffered},
    {"forward-only",
     "inference evaluation",
     "evaluation: no backward, no update",
     "-",
     Placement::Any,
     1,
     kPerStep,
     {kFlush},
     "(p-1) F / v",
     "1",
     forward_only,
     {},
     false},
};

// These schedules are in the literature, and not here.
constexpr std::string_view kNotHere[] = {"auto",  "bpipe",  "chimera",  "dualpipe", "dualpipe-v", "dualpipev",
                                         "gems",  "hanayo", "pipemare", "seq1f1b",  "terapipe",   "v-half",
                                         "v-min", "vhalf",  "vmin",     "xpipe",    "zb-1p",      "zb-2p"};

// "Basic_1F1B" and "basic-1f1b" are one name.
std::string plain(std::string_view text) {
    std::string copy(text);
    std::transform(copy.begin(), copy.end(), copy.begin(),
                   [](unsigned char c) { return c == '_' ? '-' : std::tolower(c); });
    return copy;
}

bool is_called(const Schedule& schedule, const std::string& name) {
    if (schedule.name == name)
        return true;
    const std::string aliases = fmt::format(" {} ", schedule.aliases);
    return !name.empty() && name.find(' ') == name.npos && aliases.find(fmt::format(" {} ", name)) != aliases.npos;
}

template <class Condition>
std::string names_where(Condition condition) {
    std::string names;
    for (const Schedule& schedule : kSchedules)
        if (condition(schedule))
            names += (names.empty() ? "" : ", ") + std::string(schedule.name);
    return names;
}

// The names and aliases that a plain name is near to.
std::optional<std::string_view> near_to(const std::string& name) {
    std::vector<std::string_view> known;
    for (const Schedule& schedule : kSchedules) {
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
    constexpr std::string_view kRules[] = {"", "one stage", "equally many stages", "two stages"};
    if (const int legal = legal_stages(schedule, shape); legal != shape.stages)
        fail_about({Setting::Stages},
                   "schedule {} places {} on each device: {} stages on {} devices do not fit\n  help: "
                   "set the number of stages to {}",
                   schedule.name, kRules[static_cast<int>(schedule.placement)], shape.stages, shape.devices, legal);
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

void place(const Schedule& schedule, Shape& shape) {
    if (!shape.placement.empty())
        return check_replicas(schedule, shape);
    check_stages(schedule, shape);
    place_stages(schedule, shape);
}

// Without a flush a stage updates while others still use what it shares with them, and no norm has one time.
void check_flushes(const Schedule& schedule, const Shape& shape) {
    if (!schedule.asynchronous())
        return;
    if (!shape.ties.empty())
        fail("schedule {} never flushes: stages {} and {} share parameters, but update them at different times",
             schedule.name, shape.ties.front().from, shape.ties.front().to);
    if (shape.global_norm)
        fail("schedule {} never flushes: no norm is that of all gradients of one mini-batch", schedule.name);
}

}  // namespace

std::string_view name_of(Placement placement) {
    constexpr std::string_view kNames[] = {"any", "linear", "looped", "V"};
    return kNames[static_cast<int>(placement)];
}

std::span<const Schedule> schedules() { return kSchedules; }

const Schedule& schedule_named(std::string_view name) {
    for (const Schedule& schedule : kSchedules)
        if (is_called(schedule, plain(name)))
            return schedule;
    const std::string all = fmt::format("the schedules are {}, or a plan in a *.csv file",
                                        names_where([](const Schedule&) { return true; }));
    if (std::find(std::begin(kNotHere), std::end(kNotHere), plain(name)) != std::end(kNotHere))
        fail("schedule {} is not in this version\n  help: {}", plain(name), all);
    const std::string beginning = plain(name);
    const std::string several = names_where(
        [&](const Schedule& one) { return beginning.size() > 1 && plain(one.name).starts_with(beginning); });
    const std::optional<std::string_view> guess = near_to(beginning);
    const std::string meant = several.find(',') != std::string::npos ? several
                              : guess                                ? fmt::format("'{}'", *guess)
                                                                     : "";
    fail("no schedule '{}'\n  help: {}{}", name, meant.empty() ? "" : fmt::format("did you mean {}? ", meant), all);
}

int legal_stages(const Schedule& schedule, const Shape& shape) {
    const int p = shape.devices;
    switch (schedule.placement) {
        case Placement::Any:
            break;
        case Placement::Linear:
            return p;
        case Placement::Looped:
            return shape.stages % p == 0 ? shape.stages : std::max(1, (shape.stages + p / 2) / p) * p;
        case Placement::V:
            return 2 * p;
    }
    return shape.stages;
}

bool place_stages(const Schedule& schedule, Shape& shape) {
    if (legal_stages(schedule, shape) != shape.stages)
        return false;
    const int p = shape.devices;
    if (schedule.placement == Placement::V)
        for (int stage = 0; stage < shape.stages; ++stage)
            shape.placement.push_back({stage < p ? stage : 2 * p - 1 - stage});
    return true;
}

int even_share(const Shape& shape) {
    std::int64_t share = 1;
    for (const std::vector<int>& holders : shape.placement)
        share = std::min<std::int64_t>(std::lcm(share, std::ssize(holders)), std::numeric_limits<int>::max());
    return static_cast<int>(share);
}

std::string same_orders_as(const Schedule& schedule, const Shape& shape, const ScheduleOptions& options) {
    using Drain = ScheduleOptions::Drain;
    if (schedule.one_stage.empty() || shape.stages != shape.devices)
        return {};
    const Schedule& other = schedule_named(schedule.one_stage);
    const Holdings holdings(shape);
    for (const Drain drain : {Drain::Own, Drain::Lifo}) {
        bool same = true;
        for (int device = 0; device < shape.devices && same; ++device)
            same = schedule.order(holdings.of(device), options) == other.order(holdings.of(device), {.drain = drain});
        if (same)
            return drain == Drain::Own ? std::string(other.name)
                                       : fmt::format("{} with drain: {}", other.name, name_of(drain));
    }
    return {};
}

ProvenPlan proven_plan(const Schedule& schedule, Shape shape, const PlanOptions& options) {
    Plan plan;
    plan.schedule = schedule.name;
    plan.weights = options.weights.value_or(schedule.policies.front());
    plan.asynchronous = schedule.asynchronous();
    plan.prediction = options.prediction;
    if (schedule.updates == Updates::PerMicroBatch)
        shape.per_update = even_share(shape);
    place(schedule, shape);
    check_flushes(schedule, shape);
    plan.shape = std::move(shape);
    refuse_large(plan.shape);
    const Holdings holdings(plan.shape);
    for (int device = 0; device < plan.shape.devices; ++device)
        plan.order.push_back(schedule.order(holdings.of(device), options.schedule));
    TransferMode mode = options.transfers;
    mode.protocol = TransferMode::Protocol::Rendezvous;
    add_updates(plan);
    add_transfers(plan, mode);
    add_recomputes(plan, options.recompute);
    std::shared_ptr<const Proof> proof = check(plan, mode);
    return {std::move(plan), std::move(proof)};
}

Plan make_plan(const Schedule& schedule, Shape shape, const PlanOptions& options) {
    return proven_plan(schedule, std::move(shape), options).plan;
}

}  // namespace pw
