#include "schedules/memory/buffers.h"

#include "schedules/memory/held.h"
#include "schedules/memory/limits.h"
#include "schedules/memory/receiver_clocks.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace pw {

namespace {

// The positions of a stage's tasks in the list of their device, by micro-batch, with -1 for none.
class TaskPositions {
public:
    TaskPositions(const PlanGraph& graph, int stage) : graph_(graph) {
        for (std::size_t row = 0; row < kComputing.size(); ++row)
            nodes_[row] = graph.nodes(kComputing[row].op, stage);
    }

    // Returns the last task of the micro-batch whose operation is one of `ops`.
    int node(int mb, OpSet ops) const {
        int last = -1;
        for (std::size_t row = 0; row < kComputing.size(); ++row)
            if (is_in(kComputing[row].op, ops) && !nodes_[row].empty())
                last = std::max(last, nodes_[row][static_cast<std::size_t>(mb)]);
        return last;
    }
    // Without R or a backward, F is the task of its moment.
    int at(Moment moment, int mb) const {
        constexpr OpSet kOps[] = {kSavesFirst, kSavesAgain, kMakesInputGradients, kMakesWeightGradients};
        const int found = node(mb, kOps[static_cast<std::size_t>(moment)]);
        return graph_.position_of(found < 0 ? node(mb, kSavesFirst) : found);
    }

private:
    const PlanGraph& graph_;
    std::array<std::span<const int>, kComputing.size()> nodes_;
};

// Returns the use of the buffer that a tensor has once it is back on the device, or nothing if it never leaves.
std::optional<BufferUse> reloaded_use(BufferUse use) {
    if (use == BufferUse::OffloadedUntilInput)
        return BufferUse::ReloadedUntilInput;
    if (use == BufferUse::OffloadedUntilWeight)
        return BufferUse::ReloadedUntilWeight;
    return std::nullopt;
}

// A pair holds what either of its tasks needs from its start to its end.
void hold_for_pairs(Buffer& buffer, const std::vector<Task>& order) {
    if (buffer.first > 0 && order[static_cast<std::size_t>(buffer.first) - 1].with_next)
        --buffer.first;
    if (static_cast<std::size_t>(buffer.last) < order.size() && order[buffer.last].with_next)
        ++buffer.last;
}

// Returns the first and last position of the optimizer states of a stage: of LOAD and STORE, or else `whole`.
std::pair<int, int> life_of_states(const std::vector<Task>& order, int stage, std::pair<int, int> whole) {
    for (int position = 0; position < std::ssize(order); ++position)
        if (const Task& task = order[static_cast<std::size_t>(position)]; copies_states(task.op) && task.stage == stage)
            (leaves_device(task.op) ? whole.second : whole.first) = position;
    return whole;
}

// Returns about the most buffers of a plan. Memory that is reserved for them, so that they do not move while more are
// added, is never touched if it is not used.
std::size_t most_buffers(const Costs& costs, int microbatches) {
    std::size_t each = 0;  // per micro-batch
    for (const StageBytes& bytes : costs.bytes)
        for (const Bytes size :
             {bytes.data, bytes.until_input, bytes.until_weight, bytes.gradient_kept, bytes.keys_and_values,
              bytes.first_until_again, bytes.first_until_input, bytes.first_until_weight, bytes.statistics,
              bytes.offloaded_until_input, bytes.offloaded_until_input, bytes.offloaded_until_weight,
              bytes.offloaded_until_weight, bytes.until_input + bytes.until_weight})
            each += size > 0 ? 1 : 0;
    for (const EdgeBytes& bytes : costs.edges)
        each += (bytes.forward > 0 ? 2 : 0) + (bytes.backward > 0 ? 2 : 0);
    return each * static_cast<std::size_t>(microbatches);
}

// Collects the buffers of all devices, or of one at a time.
class Collector {
public:
    Collector(const Plan& plan, const Proof& proof, const Costs& costs, const VersionTable& versions, bool early,
              const std::vector<int>& parts)
        : plan_(plan),
          costs_(costs),
          versions_(versions),
          graph_(proof.graph),
          early_(early),
          parts_(parts),
          updated_on_(static_cast<std::size_t>(plan.shape.stages), -1) {
        if (early)
            clocks_.emplace(graph_, plan.shape,
                            std::ssize(proof.order) == graph_.size() ? proof.order : graph_.topological_order());
        if (std::none_of(costs.bytes.begin(), costs.bytes.end(),
                         [](const StageBytes& bytes) { return bytes.statistics > 0; }))
            return;
        for (int node = 0; node < graph_.size(); ++node)
            if (const Task& task = graph_.task(node); task.op == Op::Update) {
                trains_ = true;
                update_at_[{graph_.device_of(node), task.stage, plan.shape.mini_batch_of(task.microbatch)}] =
                    graph_.position_of(node);
            }
    }

    std::vector<Buffer> collect() {
        buffers_.reserve(most_buffers(costs_, plan_.shape.microbatches));
        collect(0, plan_.shape.devices);
        return std::move(buffers_);
    }

    // Valid until the next call.
    const std::vector<Buffer>& collect_on(int device) {
        buffers_.clear();
        collect(device, device + 1);
        return buffers_;
    }

private:
    void collect(int begin, int end) {
        devices_ = {begin, end};
        for (int device = begin; device < end; ++device)
            add_persistent(device);
        for (int node = first_node(begin); node < first_node(end); ++node)
            if (saves_first(graph_.task(node).op))
                add_activations(node);
        for (int edge = 0; edge < static_cast<int>(costs_.edges.size()); ++edge) {
            add_landings(edge, true);
            add_landings(edge, false);
        }
        if (keeps_copies(costs_, early_))
            add_sent_copies(first_node(begin), first_node(end));
        for (Buffer& buffer : buffers_)
            hold_for_pairs(buffer, plan_.order[buffer.device]);
        refuse_heavy(bytes_, largest_);
    }

    int first_node(int device) const { return device < plan_.shape.devices ? graph_.node(device, 0) : graph_.size(); }
    bool collects_on(int device) const { return devices_.first <= device && device < devices_.second; }

    int end_of(int device) const { return std::max<int>(0, static_cast<int>(plan_.order[device].size()) - 1); }

    void add(Buffer buffer) {
        if (buffer.bytes <= 0)
            return;
        buffers_.push_back(buffer);
        bytes_ += static_cast<double>(buffer.bytes);
        if (buffer.bytes > largest_.bytes)
            largest_ = buffer;
    }

    void add_persistent(int device) {
        const int end = end_of(device);
        for (const Task& task : plan_.order[device])
            if (task.op == Op::Update)
                updated_on_[task.stage] = device;
        for (const int stage : graph_.index().stages_of(device)) {
            const StageBytes& bytes = costs_.bytes[stage];
            const HeldState state =
                held_state_of(stage, static_cast<int>(graph_.index().devices_of(stage).size()), costs_);
            for (int version = 0; version < versions_.held[stage]; ++version)
                add({BufferUse::Weights, version == 0 ? MemoryKind::Weights : MemoryKind::StashedWeights,
                     state.weights + (version == 0 ? state.frozen : 0), device, stage, -1, -1, version, 0, end});
            add({BufferUse::Statistics, MemoryKind::Weights, bytes.statistics, device, stage, -1, -1, -1, 0, end});
            if (updated_on_[stage] == device) {
                const int parts = parts_.empty() ? 1 : parts_[stage];
                for (int part = 0; part < parts; ++part)
                    add({BufferUse::Gradients, MemoryKind::Gradients, state.gradients, device, stage, -1, -1, -1, 0,
                         end, part});
                const int versions = versions_.predicts(stage) ? versions_.held[stage] : 1;
                const Bytes states = state.states + (versions_.corrects(stage) ? bytes.weights : 0);
                const auto [first, last] = life_of_states(plan_.order[device], stage, {0, end});
                for (int version = 0; version < versions; ++version)
                    add({BufferUse::Optimizer, MemoryKind::Optimizer, states, device, stage, -1, -1, version, first,
                         last});
            }
            if (versions_.predicts(stage) || versions_.corrects(stage))
                add({BufferUse::Predicted, MemoryKind::StashedWeights, bytes.weights, device, stage, -1, -1, -1, 0,
                     end});
        }
        Bytes workspace = 0, of_first = 0;  // of the first task of an overlapping pair
        for (const Task& task : plan_.order[device])
            if (facts_of(task.op).workspace != nullptr) {
                const Bytes own = workspace_of(task, costs_);
                workspace = std::max(workspace, of_first + own);
                of_first = task.with_next && overlaps_pairs(costs_) ? own : 0;
            }
        add({BufferUse::Workspace, MemoryKind::Workspace, workspace, device, -1, -1, -1, -1, 0, end});
    }

    void add_activations(int node) {
        const Task& task = graph_.task(node);
        const StageBytes& bytes = costs_.bytes[task.stage];
        const TaskPositions positions(graph_, task.stage);
        const int device = graph_.device_of(node), first = graph_.position_of(node);
        const int mb = task.microbatch, input = positions.at(Moment::Input, mb);
        const std::array at = {first, positions.at(Moment::Again, mb), input, positions.at(Moment::Weight, mb)};
        const double length = costs_.length_of(mb, task.stage).bytes;
        const auto activation = [&](BufferUse use, MemoryKind kind, Bytes size, int from, int last) {
            add({use, kind, scaled_bytes(size, length), device, task.stage, mb, -1, -1, from, last});
        };
        const int offload = graph_.find({Op::Offload, task.stage, mb}),
                  reload = graph_.find({Op::Reload, task.stage, mb});
        for (const HeldTensor& held : activations_of(bytes, at[1] != first, input == at[3])) {
            const int from = at[static_cast<std::size_t>(held.from)], last = at[static_cast<std::size_t>(held.last)];
            const std::optional<BufferUse> reloaded = reloaded_use(held.use);
            const bool leaves = reloaded && offload >= 0 && reload >= 0;
            activation(held.use, held.kind, held.bytes, from, leaves ? graph_.position_of(offload) : last);
            if (leaves)
                activation(*reloaded, held.kind, held.bytes, graph_.position_of(reload), last);
        }
        const Shape& shape = plan_.shape;
        const int later = shape.slices - 1 - shape.slice_of(mb);
        if (later > 0 && input > first)
            activation(BufferUse::SliceGradients, MemoryKind::Activations, bytes.keys_and_values,
                       positions.at(Moment::Input, mb + later), input);
        if (shape.slices > 1 && input == first)
            activation(BufferUse::KeysAndValues, MemoryKind::Activations, bytes.keys_and_values, first,
                       positions.at(Moment::Forward, mb + later));
        if (bytes.statistics > 0)
            if (const int last = statistics_end(device, task); last >= 0)
                add({BufferUse::BatchStatistics, MemoryKind::Activations, bytes.statistics, device, task.stage, mb, -1,
                     -1, first, last});
    }

    // Returns where the running averages take the statistics of an F: at U or, in a stage without U, at the end of the
    // step. Returns -1 for a plan that does not train.
    int statistics_end(int device, const Task& forward) const {
        if (trains_ && plan_.shape.runs_forwards_only(forward.stage))
            return end_of(device);
        const auto update = update_at_.find({device, forward.stage, plan_.shape.mini_batch_of(forward.microbatch)});
        return update == update_at_.end() ? -1 : update->second;
    }

    // The lifetime of a landing buffer begins with its tensor if both stages share the device. Otherwise it begins with
    // its RECV or, if receives are posted early, as soon as the sender can have made the tensor.
    void add_landings(int number, bool forward) {
        const EdgeBytes& bytes = costs_.edges[number];
        const HeldTensor landing = landing_of(bytes, forward);
        const Bytes size = landing.bytes;
        const int receiver_stage = forward ? bytes.to : bytes.from, sender_stage = forward ? bytes.from : bytes.to;
        const Op send_op = forward ? Op::SendForward : Op::SendBackward;
        const OpSet readers = ops_that([&](const OpFacts& op) { return reads(op.op, *facts_of(send_op).other_end); });
        const OpSet makers = forward ? kSavesFirst : kMakesInputGradients;
        const TaskPositions of_reader(graph_, receiver_stage), of_maker(graph_, sender_stage);
        const int row = graph_.index().edge(bytes.from, bytes.to);
        const std::span<const int> sends = row < 0 ? std::span<const int>{} : graph_.nodes(send_op, row);
        if (std::ranges::none_of(graph_.index().devices_of(receiver_stage),
                                 [&](int device) { return collects_on(device); }))
            return;
        for (int mb = 0; size > 0 && mb < plan_.shape.microbatches; ++mb) {
            const int reader = of_reader.node(mb, readers), maker = of_maker.node(mb, makers);
            if (reader < 0 || maker < 0)
                continue;
            const int device = graph_.device_of(reader);
            if (!collects_on(device))
                continue;
            int first = graph_.position_of(maker);
            if (graph_.device_of(maker) != device) {
                const Task task{send_op, sender_stage, mb, 0, receiver_stage};
                const int send = sends.empty() ? -1 : sends[static_cast<std::size_t>(mb)];
                if (send < 0)
                    fail("plan '{}' has no {}: its transfers were not added", plan_.schedule, print(task));
                first = early_ ? clocks_->at(send) + 1 : graph_.position_of(graph_.find(other_end(task)));
            }
            const int last = std::max(graph_.position_of(reader), of_reader.at(landing.last, mb));
            add({landing.use, landing.kind, scaled_bytes(size, costs_.length_of(mb, bytes.from).bytes), device,
                 receiver_stage, mb, number, -1, first, last});
        }
    }

    // The sender's copy is the output of the task that makes the tensor. The copy lives until the next send on its edge
    // and direction is posted. That send waits until this copy has left.
    void add_sent_copies(int begin, int end) {
        // the number among the edges of costs
        std::vector<int> number_of(static_cast<std::size_t>(graph_.index().edges()), -1);
        for (int number = static_cast<int>(costs_.edges.size()) - 1; number >= 0; --number)
            if (const int edge = graph_.index().edge(costs_.edges[number].from, costs_.edges[number].to); edge >= 0)
                number_of[edge] = number;
        std::vector<std::array<std::ptrdiff_t, 2>> previous(costs_.edges.size(), {-1, -1});  // buffer, by direction
        for (int node = begin; node < end; ++node) {
            const Task& task = graph_.task(node);
            if (!is_send(task.op))
                continue;
            const bool forward = !carries_gradients(task.op);
            const int edge = graph_.index().edge(edge_of(task).from, edge_of(task).to);
            const int number = edge < 0 ? -1 : number_of[edge];
            if (number < 0)
                continue;
            const EdgeBytes& carried = costs_.edges[number];
            const Bytes bytes = scaled_bytes(forward ? carried.forward : carried.backward,
                                             costs_.length_of(task.microbatch, carried.from).bytes);
            if (bytes == 0)
                continue;
            const int device = graph_.device_of(node), position = graph_.position_of(node);
            const int made = graph_.position_of(graph_.inputs(node).front());
            std::ptrdiff_t& earlier = previous[number][forward ? 0 : 1];
            if (earlier >= 0 && buffers_[earlier].device == device)
                buffers_[earlier].last = position;
            earlier = std::ssize(buffers_);
            add({forward ? BufferUse::SentForward : BufferUse::SentBackward, MemoryKind::Communication, bytes, device,
                 task.stage, task.microbatch, number, -1, made, end_of(device)});
        }
    }

    const Plan& plan_;
    const Costs& costs_;
    const VersionTable& versions_;
    const PlanGraph& graph_;
    bool early_;
    const std::vector<int>& parts_;
    std::vector<int> updated_on_;  // by stage: the last device so far that has the stage's U
    std::optional<ReceiverClocks> clocks_;
    std::map<std::array<int, 3>, int> update_at_;  // device, stage, mini-batch -> position
    bool trains_ = false;                          // whether the plan has updates
    std::pair<int, int> devices_;                  // the first whose buffers are collected, and the last plus one
    std::vector<Buffer> buffers_;
    double bytes_ = 0;  // of all buffers so far
    Buffer largest_{};  // of these
};

}  // namespace

std::vector<Buffer> buffers_of(const Plan& plan, const Costs& costs, const VersionTable& versions, bool early,
                               const std::vector<int>& gradient_parts) {
    return buffers_of(plan, Proof{PlanGraph(plan)}, costs, versions, early, gradient_parts);
}

std::vector<Buffer> buffers_of(const Plan& plan, const Proof& proof, const Costs& costs, const VersionTable& versions,
                               bool early, const std::vector<int>& gradient_parts) {
    return Collector(plan, proof, costs, versions, early, gradient_parts).collect();
}

std::vector<Bytes> needed_by(const Plan& plan, const std::vector<Buffer>& buffers, const Costs& costs,
                             std::span<const Bytes> enough) {
    if (costs.has_arena)
        return pack(buffers, plan.shape.devices, enough).arena;
    const Rows on_device = by_device(buffers, plan.shape.devices);
    std::vector<Bytes> peaks;
    for (int device = 0; device < plan.shape.devices; ++device)
        peaks.push_back(total(peak_of(plan.order[static_cast<std::size_t>(device)], buffers, on_device[device])));
    return peaks;
}

std::vector<MemoryOfDevice> memory_by_device(const Plan& plan, const Proof& proof, const Costs& costs,
                                             const VersionTable& versions, bool early) {
    std::vector<MemoryOfDevice> memory;
    if (costs.has_arena) {
        const std::vector<Buffer> buffers = buffers_of(plan, proof, costs, versions, early);
        const Rows on_device = by_device(buffers, plan.shape.devices);
        for (const Bytes arena : pack(buffers, plan.shape.devices).arena) {
            const std::size_t device = memory.size();
            memory.push_back({peak_of(plan.order[device], buffers, on_device[device]), arena});
        }
        return memory;
    }
    const std::vector<int> one_part;
    Collector collector(plan, proof, costs, versions, early, one_part);
    std::vector<int> all;
    for (int device = 0; device < plan.shape.devices; ++device) {
        const std::vector<Buffer>& buffers = collector.collect_on(device);
        all.resize(buffers.size());
        std::iota(all.begin(), all.end(), 0);
        const MemoryUse peak = peak_of(plan.order[static_cast<std::size_t>(device)], buffers, all);
        memory.push_back({peak, total(peak)});
    }
    return memory;
}

std::vector<Bytes> reserved_of(const Plan& plan, const Costs& costs, const VersionTable& versions,
                               const TransferMode& mode) {
    return needed_by(plan, buffers_of(plan, costs, versions, mode.early_receive()), costs);
}

std::vector<Buffer> host_buffers_of(const std::vector<Buffer>& buffers) {
    std::map<std::tuple<BufferUse, int, int>, int> last;  // of what comes back: use, stage, micro-batch
    for (const Buffer& buffer : buffers)
        if (buffer.use == BufferUse::ReloadedUntilInput || buffer.use == BufferUse::ReloadedUntilWeight)
            last[{buffer.use, buffer.stage, buffer.microbatch}] = buffer.last;
    std::map<int, int> end;  // by device
    for (const Buffer& buffer : buffers)
        end[buffer.device] = std::max(end[buffer.device], buffer.last);
    std::vector<Buffer> on_hosts;
    for (const Buffer& buffer : buffers)
        if (buffer.lives_on()) {
            on_hosts.push_back(buffer);
            on_hosts.back().first = 0;
            on_hosts.back().last = end[buffer.device];
        } else if (const std::optional<BufferUse> reloaded = reloaded_use(buffer.use))
            if (const auto back = last.find({*reloaded, buffer.stage, buffer.microbatch}); back != last.end()) {
                on_hosts.push_back(buffer);
                on_hosts.back().last = back->second;
            }
    return on_hosts;
}

bool keeps_copies(const Costs& costs, bool early) { return costs.sent_copies || !early; }

}  // namespace pw
