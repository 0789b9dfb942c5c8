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
        reserve();
        for (int device = 0; device < plan_.shape.devices; ++device)
            add_persistent(device);
        for (int node = 0; node < graph_.size(); ++node)
            if (saves_first(graph_.task(node).op))
                add_activations(node);
        for (int edge = 0; edge < static_cast<int>(costs_.edges.size()); ++edge) {
            add_landings(edge, true);
            add_landings(edge, false);
        }
        if (keeps_copies(costs_, early_))
            add_sent_copies();
        for (Buffer& buffer : buffers_)
            hold_for_pairs(buffer);
        return std::move(buffers_);
    }

private:
    int end_of(int device) const { return std::max<int>(0, static_cast<int>(plan_.order[device].size()) - 1); }

    // A pair holds what either of its tasks needs from its start to its end.
    void hold_for_pairs(Buffer& buffer) const {
        const std::vector<Task>& order = plan_.order[buffer.device];
        if (buffer.first > 0 && order[static_cast<std::size_t>(buffer.first) - 1].with_next)
            --buffer.first;
        if (static_cast<std::size_t>(buffer.last) < order.size() && order[buffer.last].with_next)
            ++buffer.last;
    }

    void add(Buffer buffer) {
        if (buffer.bytes > 0)
            buffers_.push_back(buffer);
    }

    // Returns the first and last position of the optimizer states: the whole list, or from LOAD to STORE.
    std::pair<int, int> life_of_states(int device, int stage) const {
        std::pair life{0, end_of(device)};
        if (graph_.nodes(Op::Store, stage).empty())
            return life;
        const std::vector<Task>& order = plan_.order[static_cast<std::size_t>(device)];
        for (int position = 0; position < std::ssize(order); ++position)
            if (const Task& task = order[static_cast<std::size_t>(position)];
                copies_states(task.op) && task.stage == stage)
                (leaves_device(task.op) ? life.second : life.first) = position;
        return life;
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
                const auto [first, last] = life_of_states(device, stage);
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

    // Reserves memory so that buffers do not move while more are added. Memory that is reserved but not used is never
    // touched.
    void reserve() {
        std::size_t each = 0;  // per micro-batch
        for (const StageBytes& bytes : costs_.bytes)
            for (const Bytes size :
                 {bytes.data, bytes.until_input, bytes.until_weight, bytes.gradient_kept, bytes.keys_and_values,
                  bytes.first_until_again, bytes.first_until_input, bytes.first_until_weight, bytes.statistics,
                  bytes.offloaded_until_input, bytes.offloaded_until_input, bytes.offloaded_until_weight,
                  bytes.offloaded_until_weight, bytes.until_input + bytes.until_weight})
                each += size > 0 ? 1 : 0;
        for (const EdgeBytes& bytes : costs_.edges)
            each += (bytes.forward > 0 ? 2 : 0) + (bytes.backward > 0 ? 2 : 0);
        buffers_.reserve(each * static_cast<std::size_t>(plan_.shape.microbatches));
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
        for (int mb = 0; size > 0 && mb < plan_.shape.microbatches; ++mb) {
            const int reader = of_reader.node(mb, readers), maker = of_maker.node(mb, makers);
            if (reader < 0 || maker < 0)
                continue;
            const int device = graph_.device_of(reader);
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
    void add_sent_copies() {
        // the number among the edges of costs
        std::vector<int> number_of(static_cast<std::size_t>(graph_.index().edges()), -1);
        for (int number = static_cast<int>(costs_.edges.size()) - 1; number >= 0; --number)
            if (const int edge = graph_.index().edge(costs_.edges[number].from, costs_.edges[number].to); edge >= 0)
                number_of[edge] = number;
        std::vector<std::array<std::ptrdiff_t, 2>> previous(costs_.edges.size(), {-1, -1});  // buffer, by direction
        for (int node = 0; node < graph_.size(); ++node) {
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
    std::vector<Buffer> buffers_;
};

}  // namespace

std::vector<Buffer> buffers_of(const Plan& plan, const Costs& costs, const VersionTable& versions, bool early,
                               const std::vector<int>& gradient_parts) {
    return buffers_of(plan, Proof{PlanGraph(plan)}, costs, versions, early, gradient_parts);
}

std::vector<Buffer> buffers_of(const Plan& plan, const Proof& proof, const Costs& costs, const VersionTable& versions,
                               bool early, const std::vector<int>& gradient_parts) {
    std::vector<Buffer> buffers = Collector(plan, proof, costs, versions, early, gradient_parts).collect();
    refuse_heavy(buffers);
    return buffers;
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

Rows by_device(const std::vector<Buffer>& buffers, int devices) {
    std::vector<int> count(static_cast<std::size_t>(devices), 0);
    for (const Buffer& buffer : buffers)
        ++count[buffer.device];
    Rows rows(count);
    for (int k = static_cast<int>(buffers.size()) - 1; k >= 0; --k)
        rows.item(buffers[k].device, --count[buffers[k].device]) = k;
    return rows;
}

std::vector<MemoryUse> memory_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers,
                                 std::span<const int> own) {
    // a device without tasks holds its weights at position 0
    std::vector<MemoryUse> use(std::max<std::size_t>(1, order.size()) + 1, MemoryUse{});
    for (const int k : own) {
        const Buffer& buffer = buffers[k];
        use[buffer.first][static_cast<int>(buffer.kind)] += buffer.bytes;
        use[buffer.last + 1][static_cast<int>(buffer.kind)] -= buffer.bytes;
        if (buffer.lives_on())
            use[0][static_cast<int>(buffer.kind)] += buffer.bytes;
    }
    for (std::size_t position = 1; position < use.size(); ++position)
        for (int kind = 0; kind < kMemoryKinds; ++kind)
            use[position][kind] += use[position - 1][kind];
    use.pop_back();
    return use;
}

std::vector<std::vector<MemoryUse>> memory_of(const Plan& plan, const std::vector<Buffer>& buffers) {
    const Rows own = by_device(buffers, plan.shape.devices);
    std::vector<std::vector<MemoryUse>> use;
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        use.push_back(memory_of(plan.order[device], buffers, own[device]));
    return use;
}

MemoryUse peak_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers, std::span<const int> own) {
    std::vector<Bytes> alive(std::max<std::size_t>(1, order.size()) + 1, 0);
    for (const int k : own) {
        alive[buffers[k].first] += buffers[k].bytes;
        alive[buffers[k].last + 1] -= buffers[k].bytes;
        if (buffers[k].lives_on())
            alive[0] += buffers[k].bytes;
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    const auto peak = static_cast<int>(std::max_element(alive.begin(), alive.end()) - alive.begin());
    MemoryUse use{};
    for (const int k : own)
        if (buffers[k].lives_at(peak))
            use[static_cast<int>(buffers[k].kind)] += buffers[k].bytes;
    return use;
}

MemoryUse peak_of(const std::vector<MemoryUse>& positions) {
    MemoryUse peak{};
    for (const MemoryUse& use : positions)
        if (total(use) > total(peak))
            peak = use;
    return peak;
}

}  // namespace pw
