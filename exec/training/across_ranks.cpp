// The data that the ranks of a training exchange: sizes of layers, addresses, gradients of an S, squares of a U,
// losses and parameters. S is the sum of gradients over the holders of a stage, U the optimizer update.
#include "exec/training/training.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// A rank's request to another rank: bytes of a device there, for a device of the requesting rank.
struct FetchRequest {
    int device = 0, for_device = 0;
    std::uint64_t address = 0;
    Bytes bytes = 0;
};

constexpr std::size_t kHeaderFloats = 64;  // the size of a tensor's name and shape, in floats

void write_tensors(Message& message, const std::vector<NamedTensor>& tensors) {
    write(message, tensors.size());
    for (const NamedTensor& tensor : tensors) {
        write_text(message, tensor.name);
        write_all(message, tensor.shape);
        write_all(message, tensor.values);
    }
}

void read_tensors(MessageReader& message, std::vector<NamedTensor>& tensors) {
    for (auto count = message.read<std::size_t>(); count > 0; --count) {
        NamedTensor tensor{message.read_text(), message.read_all<int>(), {}};
        tensor.values = message.read_all<float>();
        tensors.push_back(std::move(tensor));
    }
}

}  // namespace

bool TrainingDevice::reads(int device) const { return run_.plan.is_here(device); }

void TrainingDevice::fetch(int node) {
    if (run_.plan.barriers->spans_ranks(node))
        run_.plan.barriers->arrive(node, run_.fetches_across());
}

bool TrainingDevice::owns(const std::byte* from, Bytes bytes) const {
    return bytes >= 0 && bytes <= memory_bytes_ && from >= memory_ && from <= memory_ + (memory_bytes_ - bytes);
}

void TrainingDevice::write_addresses(Message& message) const {
    for (const auto& [stage, held] : stages_)
        held.memory.write_addresses(message);
}

void TrainingDevice::read_addresses(MessageReader& message) {
    for (auto& [stage, held] : stages_)
        held.memory.read_addresses(message);
}

void Training::write_addresses(Message& message) const {
    for (const int device : plan.devices_of_rank(plan.map.own()))
        devices_[device]->write_addresses(message);
}

void Training::read_addresses(int rank, MessageReader& message) {
    for (const int device : plan.devices_of_rank(rank))
        devices_[device]->read_addresses(message);
}

std::span<std::byte> Training::message(int transfer) {
    const Task& task = plan.graph.task(transfer);
    const Bytes bytes = plan.moved[transfer];
    if (bytes == 0)
        return {};
    const int edge = plan.edge_of(task);
    const bool forward = !carries_gradients(task.op);
    std::byte* const at = is_send(task.op) ? plan.tensors.made(forward, edge, task.microbatch)
                                           : plan.tensors.landed(forward, edge, task.microbatch);
    return {at, static_cast<std::size_t>(bytes)};
}

// Calls act(device, stage) for the devices of a rank in a barrier and their stages there.
template <class Act>
void Training::for_stages_at(const Barrier& barrier, int rank, Act act) const {
    for (const int node : barrier.first)
        if (const int device = plan.graph.device_of(node); plan.map.rank_of(device) == rank)
            for (const int stage : job.plan.shape.stages_of(device))
                if (std::find(barrier.stages.begin(), barrier.stages.end(), stage) != barrier.stages.end())
                    act(device, stage);
}

void Training::write_squares(Message& message, int device, int stage, int update) const {
    const std::span<double> squares = record_.squares_of(update);
    for (std::size_t layer = 0; layer < squares.size(); ++layer)
        if (job.split.stage_of[layer] == stage && layouts().measurers[layer] == device)
            write(message, squares[layer]);
}

void Training::read_squares(MessageReader& message, int device, int stage, int update) {
    const std::span<double> squares = record_.squares_of(update);
    for (std::size_t layer = 0; layer < squares.size(); ++layer)
        if (job.split.stage_of[layer] == stage && layouts().measurers[layer] == device)
            squares[layer] = message.read<double>();
}

void Training::synchronise_ranks_at(const Barrier& barrier, const std::vector<int>& others, int tag) {
    const Task& task = plan.graph.task(barrier.first.front());
    const int update = task.op == Op::Update ? job.plan.shape.mini_batch_of(task.microbatch) : -1;
    if (update >= 0)
        wait_for_squares(barrier);
    Message message;
    for_stages_at(barrier, plan.map.own(), [&](int device, int stage) {
        if (update >= 0)
            write_squares(message, device, stage, update);
        else
            devices_[device]->memory(stage).write_begun(message);
    });
    const std::vector<Message> replies =
        exchange(plan.ranks, others, std::vector<Message>(others.size(), message), tag);
    for (std::size_t k = 0; k < others.size(); ++k) {
        MessageReader reply(replies[k]);
        for_stages_at(barrier, others[k], [&](int device, int stage) {
            if (update >= 0)
                read_squares(reply, device, stage, update);
            else
                devices_[device]->memory(stage).read_begun(reply);
        });
    }
}

// The order of the fetches between two ranks is the same on both: the order of the requesting rank's message.
std::vector<Fetch> Training::fetches_with(const Barrier& barrier, const std::vector<int>& others, int tag) {
    std::vector<std::vector<FetchRequest>> requests(others.size());
    std::vector<Fetch> all;
    for (const int node : barrier.first) {
        const int device = plan.graph.device_of(node);
        if (!plan.is_here(device))
            continue;
        for (const Fetch& fetch : devices_[device]->fetches()) {
            all.push_back(fetch);
            if (!plan.is_here(fetch.from_device)) {
                const auto at =
                    std::find(others.begin(), others.end(), plan.map.rank_of(fetch.from_device)) - others.begin();
                requests[at].push_back(
                    {fetch.from_device, fetch.to_device, reinterpret_cast<std::uint64_t>(fetch.from), fetch.bytes});
            }
        }
        devices_[device]->fetches().clear();
    }
    if (others.empty())
        return all;
    std::vector<Message> messages(others.size());
    for (std::size_t k = 0; k < others.size(); ++k)
        write_all(messages[k], requests[k]);
    const std::vector<Message> requested = exchange(plan.ranks, others, messages, tag);
    for (std::size_t k = 0; k < others.size(); ++k) {
        MessageReader reader(requested[k]);
        for (const FetchRequest& each : reader.read_all<FetchRequest>()) {
            const auto* const from = reinterpret_cast<const std::byte*>(each.address);
            if (each.device < 0 || each.device >= static_cast<int>(devices_.size()) || !plan.is_here(each.device) ||
                !devices_[each.device]->owns(from, each.bytes))
                fail_with(ExitCode::RunFailed, "rank {} requests bytes from rank {} that no device there has",
                          others[k], plan.map.own());
            all.push_back({each.device, each.for_device, from, nullptr, each.bytes});
        }
    }
    return all;
}

void Training::fetch_from_ranks(const Barrier& barrier, const std::vector<int>& others, int tag) {
    std::vector<Ranks::Ticket> tickets;
    for (const Fetch& fetch : fetches_with(barrier, others, tag)) {
        const auto bytes = static_cast<std::size_t>(fetch.bytes);
        if (fetch.to != nullptr)
            tickets.push_back(plan.ranks.receive(plan.map.rank_of(fetch.from_device), tag + 1, {fetch.to, bytes}));
        else
            tickets.push_back(plan.ranks.send(plan.map.rank_of(fetch.to_device), tag + 1, {fetch.from, bytes}, false));
    }
    wait_for(plan.ranks, tickets);
}

// Writes the losses, and the squares of the gradients, of this rank's devices.
void Training::write_step(Message& message) const {
    const int last = job.split.stage_of.back();
    for (int mb = 0; mb < job.plan.shape.microbatches; ++mb)
        if (plan.is_here(plan.graph.holder(last, mb)))
            write(message, record_.losses()[static_cast<std::size_t>(mb)]);
    for (int update = 0; update < record_.updates(); ++update)
        for (const int device : plan.devices_of_rank(plan.map.own()))
            for (const int stage : job.plan.shape.stages_of(device))
                write_squares(message, device, stage, update);
}

void Training::read_step(int rank, MessageReader& message) {
    const int last = job.split.stage_of.back();
    for (int mb = 0; mb < job.plan.shape.microbatches; ++mb)
        if (plan.map.rank_of(plan.graph.holder(last, mb)) == rank)
            record_.take_loss(mb, message.read<double>());
    for (int update = 0; update < record_.updates(); ++update)
        for (const int device : plan.devices_of_rank(rank))
            for (const int stage : job.plan.shape.stages_of(device))
                read_squares(message, device, stage, update);
}

std::vector<LayerBytes> Training::of_all_ranks(std::vector<LayerBytes> own) const {
    const std::vector<Message> messages = [&] {
        Message message;
        write_all(message, own);
        return all_gather(plan.ranks, message);
    }();
    for (int rank = 0; rank < plan.map.size(); ++rank) {
        const std::vector<LayerBytes> theirs =
            MessageReader(messages[static_cast<std::size_t>(rank)]).read_all<LayerBytes>();
        for (std::size_t layer = 0; layer < own.size(); ++layer)
            if (plan.map.rank_of(plan.first_holder(job.split.stage_of[layer])) == rank)
                own[layer] = theirs.at(layer);
    }
    return own;
}

std::vector<std::vector<NamedTensor>> Training::of_all_ranks(std::vector<std::vector<NamedTensor>> by_device) const {
    Message message;  // empty on rank 0, which has its own
    for (const int device : plan.devices_of_rank(plan.map.own()))
        if (plan.map.own() != 0)
            write_tensors(message, by_device[device]);
    const std::vector<Message> messages = gather(plan.ranks, message);
    for (int rank = 1; rank < static_cast<int>(messages.size()); ++rank) {
        MessageReader reader(messages[static_cast<std::size_t>(rank)]);
        for (const int device : plan.devices_of_rank(rank))
            read_tensors(reader, by_device[device]);
    }
    return by_device;
}

void Training::write_states(Message& message, const DeviceStates& own) const {
    std::size_t values = 0;
    for (const auto* all : {&own.parameters, &own.states})
        for (const std::vector<NamedTensor>& of_device : *all)
            for (const NamedTensor& tensor : of_device)
                values += tensor.values.size() + kHeaderFloats;
    message.reserve(values * sizeof(float));  // it must not grow page by page
    for (const int device : plan.devices_of_rank(plan.map.own())) {
        write_tensors(message, own.parameters[device]);
        write_tensors(message, own.states[device]);
    }
}

void Training::read_states(const Message& message, int rank, DeviceStates& all) const {
    MessageReader reader(message);
    for (const int device : plan.devices_of_rank(rank)) {
        read_tensors(reader, all.parameters[device]);
        read_tensors(reader, all.states[device]);
    }
}

}  // namespace pw
