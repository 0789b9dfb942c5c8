// What the ranks of a training tell each other: sizes of layers, addresses, gradients of an S, squares of a U, losses
// and parameters. S is the sum of gradients over the holders of a stage, U the optimizer update.
#include "exec/training/training.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// What a rank asks of another one: bytes that a device there has, for one of its own.
struct Wanted {
    int device = 0, for_device = 0;
    std::uint64_t address = 0;
    Bytes bytes = 0;
};

constexpr std::size_t kMostBesideValues = 64;  // of a tensor: name and shape, in floats

void put_tensors(Mail& mail, const std::vector<NamedTensor>& tensors) {
    put(mail, tensors.size());
    for (const NamedTensor& tensor : tensors) {
        put_text(mail, tensor.name);
        put_all(mail, tensor.shape);
        put_all(mail, tensor.values);
    }
}

void get_tensors(MailReader& mail, std::vector<NamedTensor>& tensors) {
    for (auto count = mail.get<std::size_t>(); count > 0; --count) {
        NamedTensor tensor{mail.get_text(), mail.get_all<int>(), {}};
        tensor.values = mail.get_all<float>();
        tensors.push_back(std::move(tensor));
    }
}

std::byte* address_in(MailReader& mail) { return reinterpret_cast<std::byte*>(mail.get<std::uint64_t>()); }
void put_address(Mail& mail, const std::byte* address) { put(mail, reinterpret_cast<std::uint64_t>(address)); }

}  // namespace

bool TrainingDevice::reads(int device) const { return run_.plan.is_here(device); }

void TrainingDevice::fetch(int node) {
    if (run_.plan.ranks != nullptr)
        run_.plan.meetings->arrive(node, run_.fetches_across());
}

bool TrainingDevice::owns(const std::byte* from, Bytes bytes) const {
    return bytes >= 0 && bytes <= memory_bytes_ && from >= memory_ && from <= memory_ + (memory_bytes_ - bytes);
}

void TrainingDevice::tell_places(Mail& mail) {
    for (const int stage : run_.job.plan.shape.stages_of(device_)) {
        const StageState& state = state_of(stage);
        for (const GradientPart& part : state.parts)
            put_address(mail, part.block);
        for (const std::byte* weights : state.slots)
            put_address(mail, weights);
        for (const std::byte* statistics : state.left_statistics)
            put_address(mail, statistics);
    }
}

void TrainingDevice::hear_places(MailReader& mail) {
    for (const int stage : run_.job.plan.shape.stages_of(device_)) {
        StageState& state = state_of(stage);
        for (GradientPart& part : state.parts)
            part.block = address_in(mail);
        for (std::byte*& weights : state.slots)
            weights = address_in(mail);
        for (std::byte*& statistics : state.left_statistics)
            statistics = address_in(mail);
    }
}

void TrainingDevice::tell_begun(int stage, Mail& mail) const {
    for (const GradientPart& part : stages_.at(stage).parts)
        put(mail, part.begun);
}

void TrainingDevice::hear_begun(int stage, MailReader& mail) {
    for (GradientPart& part : stages_.at(stage).parts)
        part.begun = mail.get<Begun>();
}

void Training::tell_places(Mail& mail) const {
    for (const int device : plan.devices_of_rank(plan.map.own()))
        devices_[device]->tell_places(mail);
}

void Training::hear_places(int rank, MailReader& mail) {
    for (const int device : plan.devices_of_rank(rank))
        devices_[device]->hear_places(mail);
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

// Calls act(device, stage) for what the devices of a rank have of a meeting.
template <class Act>
void Training::for_told(const Meeting& meeting, int rank, Act act) const {
    for (const int node : meeting.first)
        if (const int device = plan.graph.device_of(node); plan.map.rank_of(device) == rank)
            for (const int stage : job.plan.shape.stages_of(device))
                if (std::find(meeting.stages.begin(), meeting.stages.end(), stage) != meeting.stages.end())
                    act(device, stage);
}

void Training::put_squares(Mail& mail, int device, int stage, int update) const {
    const std::span<double> squares = record_.squares_of(update);
    for (std::size_t layer = 0; layer < squares.size(); ++layer)
        if (job.split.stage_of[layer] == stage && measurers_[layer] == device)
            put(mail, squares[layer]);
}

void Training::get_squares(MailReader& mail, int device, int stage, int update) {
    const std::span<double> squares = record_.squares_of(update);
    for (std::size_t layer = 0; layer < squares.size(); ++layer)
        if (job.split.stage_of[layer] == stage && measurers_[layer] == device)
            squares[layer] = mail.get<double>();
}

void Training::meet_ranks(const Meeting& meeting, const std::vector<int>& others, int tag) {
    const Task& task = plan.graph.task(meeting.first.front());
    const int update = task.op == Op::Update ? job.plan.shape.mini_batch_of(task.microbatch) : -1;
    if (update >= 0)
        wait_for_squares(meeting);
    Mail letter;
    for_told(meeting, plan.map.own(), [&](int device, int stage) {
        if (update >= 0)
            put_squares(letter, device, stage, update);
        else
            devices_[device]->tell_begun(stage, letter);
    });
    const std::vector<Mail> replies = exchange(*plan.ranks, others, std::vector<Mail>(others.size(), letter), tag);
    for (std::size_t k = 0; k < others.size(); ++k) {
        MailReader reply(replies[k]);
        for_told(meeting, others[k], [&](int device, int stage) {
            if (update >= 0)
                get_squares(reply, device, stage, update);
            else
                devices_[device]->hear_begun(stage, reply);
        });
    }
}

// Between two ranks both have their fetches in one order: that of the letter of the rank that wants them.
std::vector<Fetch> Training::fetches_with(const Meeting& meeting, const std::vector<int>& others, int tag) {
    std::vector<std::vector<Wanted>> wanted(others.size());
    std::vector<Fetch> all;
    for (const int node : meeting.first) {
        const int device = plan.graph.device_of(node);
        if (!plan.is_here(device))
            continue;
        for (const Fetch& fetch : devices_[device]->fetches()) {
            all.push_back(fetch);
            if (!plan.is_here(fetch.from_device)) {
                const auto at =
                    std::find(others.begin(), others.end(), plan.map.rank_of(fetch.from_device)) - others.begin();
                wanted[at].push_back(
                    {fetch.from_device, fetch.to_device, reinterpret_cast<std::uint64_t>(fetch.from), fetch.bytes});
            }
        }
        devices_[device]->fetches().clear();
    }
    if (others.empty())
        return all;
    std::vector<Mail> letters(others.size());
    for (std::size_t k = 0; k < others.size(); ++k)
        put_all(letters[k], wanted[k]);
    const std::vector<Mail> asked = exchange(*plan.ranks, others, letters, tag);
    for (std::size_t k = 0; k < others.size(); ++k) {
        MailReader reader(asked[k]);
        for (const Wanted& each : reader.get_all<Wanted>()) {
            const auto* const from = reinterpret_cast<const std::byte*>(each.address);
            if (each.device < 0 || each.device >= static_cast<int>(devices_.size()) || !plan.is_here(each.device) ||
                !devices_[each.device]->owns(from, each.bytes))
                fail_with(ExitCode::RunFailed, "rank {} asks rank {} for bytes that no device there has", others[k],
                          plan.map.own());
            all.push_back({each.device, each.for_device, from, nullptr, each.bytes});
        }
    }
    return all;
}

void Training::fetch_from_ranks(const Meeting& meeting, const std::vector<int>& others, int tag) {
    std::vector<Ranks::Ticket> tickets;
    for (const Fetch& fetch : fetches_with(meeting, others, tag)) {
        const auto bytes = static_cast<std::size_t>(fetch.bytes);
        if (fetch.to != nullptr)
            tickets.push_back(plan.ranks->receive(plan.map.rank_of(fetch.from_device), tag + 1, {fetch.to, bytes}));
        else
            tickets.push_back(plan.ranks->send(plan.map.rank_of(fetch.to_device), tag + 1, {fetch.from, bytes}, false));
    }
    wait_for(*plan.ranks, tickets);
}

// Losses, and squares of the gradients, that devices of this rank know.
void Training::tell_step(Mail& mail) const {
    const int last = job.split.stage_of.back();
    for (int mb = 0; mb < job.plan.shape.microbatches; ++mb)
        if (plan.is_here(plan.graph.holder(last, mb)))
            put(mail, record_.losses()[static_cast<std::size_t>(mb)]);
    for (int update = 0; update < record_.updates(); ++update)
        for (const int device : plan.devices_of_rank(plan.map.own()))
            for (const int stage : job.plan.shape.stages_of(device))
                put_squares(mail, device, stage, update);
}

void Training::hear_step(int rank, MailReader& mail) {
    const int last = job.split.stage_of.back();
    for (int mb = 0; mb < job.plan.shape.microbatches; ++mb)
        if (plan.map.rank_of(plan.graph.holder(last, mb)) == rank)
            record_.take_loss(mb, mail.get<double>());
    for (int update = 0; update < record_.updates(); ++update)
        for (const int device : plan.devices_of_rank(rank))
            for (const int stage : job.plan.shape.stages_of(device))
                get_squares(mail, device, stage, update);
}

std::vector<LayerBytes> Training::of_all_ranks(std::vector<LayerBytes> own) const {
    if (plan.ranks == nullptr)
        return own;
    const std::vector<Mail> letters = [&] {
        Mail letter;
        put_all(letter, own);
        return all_gather(*plan.ranks, letter);
    }();
    for (int rank = 0; rank < plan.map.size(); ++rank) {
        const std::vector<LayerBytes> told = MailReader(letters[static_cast<std::size_t>(rank)]).get_all<LayerBytes>();
        for (std::size_t layer = 0; layer < own.size(); ++layer)
            if (plan.map.rank_of(plan.first_holder(job.split.stage_of[layer])) == rank)
                own[layer] = told.at(layer);
    }
    return own;
}

std::vector<std::vector<NamedTensor>> Training::of_all_ranks(std::vector<std::vector<NamedTensor>> by_device) const {
    if (plan.ranks == nullptr)
        return by_device;
    Mail letter;
    for (const int device : plan.devices_of_rank(plan.map.own()))
        put_tensors(letter, by_device[device]);
    const std::vector<Mail> letters = gather(*plan.ranks, letter);
    for (int rank = 1; rank < static_cast<int>(letters.size()); ++rank) {
        MailReader reader(letters[static_cast<std::size_t>(rank)]);
        for (const int device : plan.devices_of_rank(rank))
            get_tensors(reader, by_device[device]);
    }
    return by_device;
}

void Training::put_states(Mail& letter, const DeviceStates& own) const {
    std::size_t values = 0;
    for (const auto* all : {&own.parameters, &own.momenta})
        for (const std::vector<NamedTensor>& of_device : *all)
            for (const NamedTensor& tensor : of_device)
                values += tensor.values.size() + kMostBesideValues;
    letter.reserve(values * sizeof(float));  // it does not grow page by page
    for (const int device : plan.devices_of_rank(plan.map.own())) {
        put_tensors(letter, own.parameters[device]);
        put_tensors(letter, own.momenta[device]);
    }
}

void Training::get_states(const Mail& letter, int rank, DeviceStates& all) const {
    MailReader reader(letter);
    for (const int device : plan.devices_of_rank(rank)) {
        get_tensors(reader, all.parameters[device]);
        get_tensors(reader, all.momenta[device]);
    }
}

}  // namespace pw
