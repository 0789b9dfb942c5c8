#include "schedules/plan/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

namespace pw {

namespace {

// Sets the versions that F and B would use if every stage took the newest version at that position of its device's
// list.
void newest_versions(const Plan& plan, VersionTable& table) {
    std::vector<int> updates(static_cast<std::size_t>(plan.shape.stages), 0);  // by stage of the device, so far
    for (const std::vector<Task>& order : plan.order) {
        for (const Task& task : order)
            updates[task.stage] = 0;
        for (const Task& task : order) {
            if (task.op == Op::Update)
                ++updates[task.stage];
            else if (task.op == Op::Forward)
                table.forward[task.stage][task.microbatch] = updates[task.stage];
            else if (makes_input_gradient(task.op))
                table.backward[task.stage][task.microbatch] = updates[task.stage];
        }
    }
}

// SpecTrain (Chen et al., 2018, arXiv 1809.02839): on stage k of N, F runs floor(k/2) + N-k-1 updates before the
// micro-batch is done, B floor(k/2) updates. PipeOptim (Guan et al., 2023, arXiv 2312.00839): F predicts the version of
// its B, N-1-k updates later.
void add_distances(const Plan& plan, VersionTable& table) {
    const int stages = plan.shape.stages;
    for (int stage = 0; stage < stages; ++stage) {
        const int later_stages = stages - 1 - stage, middle = stage / 2;
        const bool both = plan.prediction == Prediction::SpecTrain, forward = plan.prediction == Prediction::PipeOptim;
        table.forward_ahead.push_back(both ? middle + later_stages : forward ? later_stages : 0);
        table.backward_ahead.push_back(both ? middle : 0);
    }
}

// PipeMare (Yang et al., 2021, arXiv 1910.05124) corrects by the delay. It counts updates.
void add_delays(const Plan& plan, VersionTable& table) {
    table.delay.assign(static_cast<std::size_t>(plan.shape.stages), 0);
    if (plan.weights == WeightPolicy::Latest && plan.shape.per_update > 0)
        std::ranges::transform(plan.missing_gradients, table.delay.begin(),
                               [&](int missing) { return static_cast<double>(missing) / plan.shape.per_update; });
    if (plan.prediction == Prediction::PipeMare)
        table.back = table.delay;
}

// Returns the last of the stage's `positions` in `order` that reads each version, or -1 if none does.
std::vector<int> last_uses(const std::vector<Task>& order, std::span<const int> positions, const VersionTable& table,
                           int stage) {
    std::vector<int> last;
    for (const int position : positions) {
        const Task& task = order[position];
        if (!facts_of(task.op).reads_weights)
            continue;
        const auto& row = is_backward(task.op) ? table.backward[stage] : table.forward[stage];
        const auto version = static_cast<std::size_t>(row[task.microbatch]);
        last.resize(std::max(last.size(), version + 1), -1);
        last[version] = position;
    }
    return last;
}

// Returns weight_slots() of a stage whose tasks are at `positions` of the device's list.
std::vector<int> slots_of(const std::vector<Task>& order, std::span<const int> positions, const VersionTable& table,
                          int stage) {
    std::vector<int> last = last_uses(order, positions, table, stage);
    std::vector<int> slots{0};
    std::vector<int> version_in{0};  // slot -> the version it holds
    for (const int position : positions) {
        if (order[position].op != Op::Update)
            continue;
        const int version = static_cast<int>(slots.size());
        last.resize(std::max(last.size(), slots.size() + 1), -1);
        int slot = slots.back();  // in place if no later task reads the newest version
        if (last[version - 1] > position) {
            slot = 0;
            while (slot < static_cast<int>(version_in.size()) &&
                   (version_in[slot] == version - 1 || last[version_in[slot]] > position))
                ++slot;
            if (slot == static_cast<int>(version_in.size()))
                version_in.push_back(version);
        }
        version_in[slot] = version;
        slots.push_back(slot);
    }
    return slots;
}

}  // namespace

VersionTable versions_of(const Plan& plan) {
    VersionTable table;
    table.forward.assign(static_cast<std::size_t>(plan.shape.stages),
                         std::vector<int>(static_cast<std::size_t>(plan.shape.microbatches), 0));
    table.backward = table.forward;
    newest_versions(plan, table);
    add_distances(plan, table);
    add_delays(plan, table);
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (int mb = 0; mb < plan.shape.microbatches; ++mb) {
            int& forward = table.forward[stage][mb];
            if (plan.weights == WeightPolicy::VerticalSync)
                forward = table.forward[0][mb];
            if (plan.weights == WeightPolicy::DoubleBuffer)
                forward = std::max(mb / std::max(plan.shape.per_update, 1) - 1, 0);
            if (plan.weights != WeightPolicy::Latest)
                table.backward[stage][mb] = forward;
        }
    return versions_in_order_of(plan, std::move(table));
}

VersionTable versions_in_order_of(const Plan& plan, VersionTable table) {
    table.held.assign(static_cast<std::size_t>(plan.shape.stages), 1);
    for (const std::vector<Task>& order : plan.order) {
        std::map<int, std::vector<int>> positions;  // of each stage
        for (int position = 0; position < static_cast<int>(order.size()); ++position)
            positions[order[position].stage].push_back(position);
        for (const auto& [stage, own] : positions) {
            const std::vector<int> slots = slots_of(order, own, table, stage);
            table.held[stage] = std::max(table.held[stage], *std::max_element(slots.begin(), slots.end()) + 1);
        }
    }
    return table;
}

int version_of(const Task& task, const VersionTable& table, const Plan& plan) {
    if (is_compute(task.op))
        return (is_backward(task.op) ? table.backward : table.forward)[task.stage][task.microbatch];
    if (task.op == Op::Update)
        return plan.shape.per_update == 0 ? 1 : task.microbatch / plan.shape.per_update + 1;
    return -1;
}

int ahead_of(const Task& task, const VersionTable& table) {
    if (!facts_of(task.op).reads_weights)
        return 0;
    return (is_backward(task.op) ? table.backward_ahead : table.forward_ahead)[task.stage];
}

double back_of(const Task& task, const VersionTable& table, const Plan& plan) {
    if (!is_backward(task.op) || !facts_of(task.op).reads_weights || !table.corrects(task.stage))
        return 0;
    const int first = plan.shape.first_of(plan.shape.mini_batch_of(task.microbatch));
    const bool flushed = table.forward[task.stage][first] == table.backward[task.stage][task.microbatch];
    return flushed ? 0 : table.back[task.stage];
}

bool predicts(const Task& task, const VersionTable& table, const Plan& plan) {
    return ahead_of(task, table) > 0 || back_of(task, table, plan) > 0 ||
           (task.op == Op::Update && table.corrects(task.stage));
}

std::vector<int> weight_slots(const Plan& plan, const VersionTable& table, int stage, int device) {
    std::vector<int> positions;
    for (int position = 0; position < static_cast<int>(plan.order[device].size()); ++position)
        if (plan.order[device][position].stage == stage)
            positions.push_back(position);
    return slots_of(plan.order[device], positions, table, stage);
}

namespace {

constexpr std::size_t kLine = 100;  // characters

// "3", or "3/5" where B reads another version than F.
std::string cell_of(const VersionTable& table, int stage, int microbatch) {
    const int forward = table.forward[stage][microbatch], backward = table.backward[stage][microbatch];
    return forward == backward ? std::to_string(forward) : fmt::format("{}/{}", forward, backward);
}

// Returns whether all stages read the version after the one that they read one mini-batch ago.
bool goes_on(const Plan& plan, const VersionTable& table, int microbatch) {
    const int period = std::max(plan.shape.per_update, 1), more = plan.shape.per_update == 0 ? 0 : 1;
    if (microbatch < period)
        return false;
    const auto steady = [&](const std::vector<int>& row) { return row[microbatch] == row[microbatch - period] + more; };
    return std::all_of(table.forward.begin(), table.forward.end(), steady) &&
           std::all_of(table.backward.begin(), table.backward.end(), steady);
}

int steady_from(const Plan& plan, const VersionTable& table) {
    int first = plan.shape.microbatches;
    while (first > 0 && goes_on(plan, table, first - 1))
        --first;
    return first;
}

std::string print_stages(const Plan& plan, const VersionTable& table) {
    const bool corrected = !table.back.empty(), predicted = plan.prediction != Prediction::None && !corrected;
    std::string text = fmt::format("weights: {}", name_of(plan.weights));
    if (predicted)
        text += fmt::format(", predicted as {} does, this many updates ahead:", name_of(plan.prediction));
    if (corrected)
        text += fmt::format(", corrected as {} does, by this many updates:", name_of(plan.prediction));
    text += fmt::format("\n\nstage  versions held{}\n", predicted   ? "  ahead in F  ahead in B"
                                                        : corrected ? "   back in B"
                                                                    : "");
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        text += fmt::format("{:>5}{:>15}", stage, table.held[stage]);
        if (predicted)
            text += fmt::format("{:>12}{:>12}", table.forward_ahead[stage], table.backward_ahead[stage]);
        if (corrected)
            text += fmt::format("{:>12.4g}", table.back[stage]);
        text += '\n';
    }
    return text;
}

std::string print_columns(const Plan& plan, const VersionTable& table, int first, int end, std::size_t width) {
    std::string text = "\nmicro-batch";
    for (int mb = first; mb < end; ++mb)
        text += fmt::format(" {:>{}}", mb, width);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        text += fmt::format("\nstage {:>5}", stage);
        for (int mb = first; mb < end; ++mb)
            text += fmt::format(" {:>{}}", cell_of(table, stage, mb), width);
    }
    return text + '\n';
}

}  // namespace

std::string print(const Plan& plan, const VersionTable& table) {
    const int all = plan.shape.microbatches, steady = steady_from(plan, table);
    std::size_t width = std::to_string(all - 1).size();
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (int mb = 0; mb < all; ++mb)
            width = std::max(width, cell_of(table, stage, mb).size());
    const auto columns = static_cast<int>((kLine - std::string_view("micro-batch").size()) / (width + 1));
    std::string text = print_stages(plan, table) + "\nVersion that each micro-batch reads, F/B where they differ:\n";
    int mb = 0;
    for (bool shown = false; mb < all && !shown; mb += columns) {
        text += print_columns(plan, table, mb, std::min(mb + columns, all), width);
        shown = mb >= steady;
    }
    if (mb < all && plan.shape.per_update == 0)
        text += fmt::format("\n... and so on for all {} micro-batches.\n", all);
    else if (mb < all)
        text += fmt::format("\n... and so on, one version more every {}micro-batch{}, for all {} micro-batches.\n",
                            plan.shape.per_update == 1 ? "" : fmt::format("{} ", plan.shape.per_update),
                            plan.shape.per_update == 1 ? "" : "es", all);
    return text;
}

}  // namespace pw
