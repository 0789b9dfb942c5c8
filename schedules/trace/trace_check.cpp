// Rules that every trace must satisfy, whichever program wrote it. The file does not contain the plan: its edges are
// those of the transfers.
#include "schedules/trace/trace_json.h"
#include "schedules/trace/trace_plan.h"
#include "workloads/error.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

// The task of an event: each runs once. What runs once per update runs on each holder of its stage.
using EventKey = std::array<int, 5>;  // step, op, stage, micro-batch, peer or device

EventKey key_of(int step, const Task& task, int device) {
    return {step, static_cast<int>(task.op), task.stage, task.microbatch,
            runs_once_per_update(task.op) ? -2 - device : task.peer};
}

class TraceCheck {
public:
    TraceCheck(const Trace& trace, const std::string& path) : trace_(trace), path_(path) {}

    void run() {
        check_shape();
        for (const TraceEvent& event : trace_.events)
            check_event(event);
        index_events();
        check_complete();
        check_overlap();
        for (const TraceEvent& event : trace_.events)
            check_inputs(event);
    }

private:
    template <class... Args>
    [[noreturn]] void reject(fmt::format_string<Args...> text, Args&&... args) const {
        fail("trace '{}': {}\n  help: {}", path_, fmt::format(text, std::forward<Args>(args)...),
             trace_.schedule == kForeign
                 ? "record the run again; tasks of a device run one at a time, in every step, on one clock"
                 : "write it again with --trace; a trace edited by hand is no evidence");
    }

    std::string print(const TraceEvent& event) const {
        return fmt::format("{} of device {} in step {}, from {} to {} ns", pw::print(event.task), event.device,
                           event.step, event.start, event.end);
    }

    void check_shape() {
        if (trace_.label != "predicted" && trace_.label != "measured")
            reject("its label is neither 'predicted' nor 'measured'");
        for (const auto& [name, count] :
             {std::pair("devices", trace_.devices), std::pair("stages", trace_.stages),
              std::pair("micro_batches", trace_.micro_batches), std::pair("micro_batch_size", trace_.micro_batch_size)})
            if (count < 1)
                reject("otherData.{} is {}, but every plan has one or more", name, count);
        std::set<int> held;
        for (const std::vector<int>& stages : trace_.stages_of)
            held.insert(stages.begin(), stages.end());
        int next = 0;  // the first stage that is on no device
        while (held.contains(next))
            ++next;
        if (next < trace_.stages)
            reject("otherData.stages_of: stage {} is on no device", next);
        if (trace_.events.empty())
            reject("it has no tasks");
        // Devices that measure times themselves have clocks that agree to about a microsecond per second.
        Ns last = 0;
        for (const TraceEvent& event : trace_.events)
            last = std::max(last, event.end);
        slack_ = trace_.label == "measured" ? 2000 + last / (1 << 20) : 0;
    }

    void check_event(const TraceEvent& event) const {
        const int stage = event.task.stage;
        const std::vector<int>& held = trace_.stages_of[static_cast<std::size_t>(event.device)];
        if (std::find(held.begin(), held.end(), stage) == held.end())
            reject("{}: the device does not hold stage {}", print(event), stage);
        if (!trace_.asynchronous && event.task.whole() >= trace_.micro_batches)
            reject("{}: the plan has {} micro-batches", print(event), trace_.micro_batches);
        if (!has_right_peer(event.task, trace_.stages))
            reject("{}: {} is no stage at its other end", print(event), event.task.peer);
    }

    void index_events() {
        for (std::size_t i = 0; i < trace_.events.size(); ++i)
            index_.emplace_back(key_of(trace_.events[i].step, trace_.events[i].task, trace_.events[i].device), i);
        std::sort(index_.begin(), index_.end());
        const auto twice = std::adjacent_find(index_.begin(), index_.end(),
                                              [](const auto& a, const auto& b) { return a.first == b.first; });
        if (twice != index_.end())
            reject("{}: it runs again from {} ns", print(trace_.events[twice->second]),
                   trace_.events[(twice + 1)->second].start);
    }

    const TraceEvent* find(int step, const Task& task, int device = 0) const {
        const std::pair<EventKey, std::size_t> wanted{key_of(step, task, device), 0};
        const auto found = std::lower_bound(index_.begin(), index_.end(), wanted);
        return found != index_.end() && found->first == wanted.first ? &trace_.events[found->second] : nullptr;
    }

    bool runs(int step, Op op, int stage, int microbatch) const {
        const std::pair<EventKey, std::size_t> wanted{{step, static_cast<int>(op), stage, microbatch, -1}, 0};
        const auto found = std::lower_bound(index_.begin(), index_.end(), wanted);
        return found != index_.end() &&
               std::equal(found->first.begin(), found->first.begin() + 4, wanted.first.begin());
    }

    // Checks that every stage runs every micro-batch in every step, forward and, if the plan trains, backward. A part
    // of a trace begins at a later step.
    void check_complete() const {
        int first = trace_.events.front().step, steps = 0, microbatches = trace_.micro_batches * trace_.slices;
        const Shape shape = plan_of(trace_).shape;
        bool trains = false;
        for (const TraceEvent& event : trace_.events) {
            first = std::min(first, event.step);
            steps = std::max(steps, event.step + 1);
            microbatches = std::max(microbatches, event.task.microbatch + 1);
            trains = trains || is_backward(event.task.op);
        }
        for (int step = first; step < steps; ++step)  // ends at the first missing task
            for (int stage = 0; stage < trace_.stages; ++stage)
                for (int mb = 0; mb < microbatches; ++mb) {
                    const auto has = [&](Op op) { return runs(step, op, stage, mb); };
                    const bool backward = has(Op::Backward) != (has(Op::BackwardInput) && has(Op::BackwardWeight));
                    if (!has(Op::Forward))
                        reject("no device runs {} in step {}", pw::print(Task{Op::Forward, stage, mb}), step);
                    if (trains && !backward && !shape.runs_forwards_only(stage))
                        reject("{}: step {} has neither this task nor both of its halves I and W, or all three",
                               pw::print(Task{Op::Backward, stage, mb}), step);
                }
    }

    // Checks that a device computes one task at a time. Transfers run in parallel, in lanes that overlap.
    void check_overlap() const {
        std::map<int, std::vector<const TraceEvent*>> tasks;
        for (const TraceEvent& event : trace_.events)
            if (!moves_data(event.task.op))
                tasks[event.device].push_back(&event);
        for (auto& [device, events] : tasks) {
            std::stable_sort(events.begin(), events.end(), [](const TraceEvent* a, const TraceEvent* b) {
                return std::pair(a->start, a->end) < std::pair(b->start, b->end);
            });
            for (std::size_t i = 1; i < events.size(); ++i)
                if (events[i]->start < events[i - 1]->end - slack_ && !events[i - 1]->task.with_next)
                    reject("{} begins before the end of {}", print(*events[i]), print(*events[i - 1]));
        }
    }

    void expect_after(const TraceEvent& event, const TraceEvent* input) const {
        if (input != nullptr && event.start < input->end - slack_)
            reject("{} begins before its input is there: {}", print(event), print(*input));
    }

    // Checks that an event comes after its inputs on the device itself. A received tensor is checked at its RECV; of
    // the tasks since the last update, the one of the same micro-batch is checked.
    void check_inputs(const TraceEvent& event) const {
        for (const OpInput& input : facts_of(event.task.op).inputs)
            switch (input.from) {
                case OpInput::From::Stage:
                case OpInput::From::SinceUpdate:
                    expect_after(event, made_here(event, input.made_by));
                    if (const std::optional<Op> whole = facts_of(input.made_by).whole)
                        expect_after(event, made_here(event, *whole));
                    break;
                case OpInput::From::EarlierSlice:
                    if (event.task.slice() > 0)
                        expect_after(event, made_here(event, input.made_by, -1));
                    break;
                case OpInput::From::LaterSlice:
                    if (event.task.slice() + 1 < trace_.slices) {
                        expect_after(event, made_here(event, input.made_by, 1));
                        expect_after(event, made_here(event, *facts_of(input.made_by).whole, 1));
                    }
                    break;
                case OpInput::From::OtherEnd:
                    check_receive(event);
                    break;
                case OpInput::From::Joined:
                case OpInput::From::Peers:
                    break;
            }
    }

    const TraceEvent* made_here(const TraceEvent& event, Op made_by, int slices_later = 0) const {
        const Task& task = event.task;
        const TraceEvent* made = find(event.step, {made_by, task.stage, task.microbatch + slices_later}, event.device);
        return made != nullptr && made->device == event.device ? made : nullptr;
    }

    // Checks that a tensor is not received before it is sent, and not read before it is received.
    void check_receive(const TraceEvent& event) const {
        const TraceEvent* send = find(event.step, other_end(event.task));
        if (send == nullptr)
            reject("{}: no device sends it", print(event));
        if (event.end < send->start - slack_)
            reject("{} ends before it is sent: {}", print(event), print(*send));
        for (const OpFacts& reader : kOpFacts)
            if (reads(reader.op, event.task.op))
                if (const TraceEvent* read = made_here(event, reader.op); read != nullptr)
                    expect_after(*read, &event);
    }

    const Trace& trace_;
    const std::string& path_;
    Ns slack_ = 0;
    std::vector<std::pair<EventKey, std::size_t>> index_;  // sorted
};

}  // namespace

void check_trace(const Trace& trace, const std::string& path) { TraceCheck(trace, path).run(); }

}  // namespace pw
