// What Primus dumps of Megatron-LM's pipelines (`dump_pp_data`): pp_rank_0.json, ... with the milliseconds of tasks
// from the beginning of each iteration, by CUDA's events. Clocks of ranks begin anew in every iteration.
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

namespace pw {

namespace {

using nlohmann::json;

constexpr const char* kPrimusHelp =
    "name the files pp_rank_0.json, pp_rank_1.json, ... that Primus writes with dump_pp_data, of all ranks of the "
    "pipeline";

struct PrimusPass {
    const char* name;
    Op op;
};
constexpr PrimusPass kPrimusPasses[] = {{"fwd", Op::Forward}, {"bwd", Op::Backward}, {"wgrad", Op::BackwardWeight}};

bool begins_as_primus(std::string_view text) {
    constexpr std::string_view kKey = "\"fwd_start\"";
    return text.starts_with('{') && text.find(kKey) != text.npos;
}

int rank_of_primus(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    constexpr std::string_view kBefore = "pp_rank_";
    const std::size_t at = name.find(kBefore);
    int rank = -1;
    if (at != name.npos)
        std::from_chars(name.data() + at + kBefore.size(), name.data() + name.size(), rank);
    if (rank < 0)
        fail("trace '{}': its name does not say which rank it is of\n  help: {}", path, kPrimusHelp);
    return rank;
}

class PrimusRank {
public:
    PrimusRank(const std::string& path, int ranks)
        : ranks_(ranks), rank_{path, rank_of_primus(path), {}}, text_(read_text(path, kPrimusHelp, kMostTrace)) {}

    RecordedRank read(int chunks) {
        chunks_ = chunks;
        const json root = parse_json(text_, fmt::format("trace '{}'", rank_.path));
        if (!root.is_object())
            fail("trace '{}': expected an object with iterations, got {}\n  help: {}", rank_.path, root.type_name(),
                 kPrimusHelp);
        const JsonPlace iterations{rank_.path, root, "file", kPrimusHelp};
        for (const auto& [name, iteration] : root.items())
            read_iteration(iterations.object_at(name.c_str()), number_of(name));
        return std::move(rank_);
    }

private:
    int number_of(const std::string& name) const {
        int number = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (error != std::errc() || end != name.data() + name.size() || number < 0)
            fail("trace '{}': '{}' is not the number of an iteration\n  help: {}", rank_.path, shortened(name, 40),
                 kPrimusHelp);
        return number;
    }

    void read_iteration(const JsonPlace& iteration, int step) {
        std::set<std::pair<int, int>> split;  // stage, micro-batch of a backward whose weights' gradients are apart
        std::vector<RecordedTask> tasks;
        for (const PrimusPass& pass : kPrimusPasses)
            for (const RecordedTask& one : tasks_in(iteration, pass, step)) {
                if (one.task.op == Op::BackwardWeight)
                    split.emplace(one.task.stage, one.task.microbatch);
                tasks.push_back(one);
            }
        for (RecordedTask& one : tasks)
            if (one.task.op == Op::Backward && split.contains({one.task.stage, one.task.microbatch}))
                one.task.op = Op::BackwardInput;
        rank_.tasks.insert(rank_.tasks.end(), tasks.begin(), tasks.end());
    }

    std::vector<RecordedTask> tasks_in(const JsonPlace& iteration, const PrimusPass& pass, int step) const {
        std::vector<RecordedTask> tasks;
        const std::string name = pass.name;
        if (!iteration.has((name + "_start").c_str()) && pass.op == Op::BackwardWeight)  // of older versions
            return tasks;
        const json& starts = list_at(iteration, name + "_start");
        const json& ends = list_at(iteration, name + "_end", starts.size());
        for (std::size_t k = 0; k < starts.size(); ++k) {
            const auto [chunk, microbatch] = place_of(iteration, name, k, starts.size(), pass.op != Op::Forward);
            const Ns start = time_in(iteration, name + "_start", starts[k]);
            const Ns end = time_in(iteration, name + "_end", ends[k]);
            if (end < start)
                iteration.reject((name + "_end").c_str(), "number {} ends {} before it starts", k,
                                 print_time(start - end));
            tasks.push_back({Task{pass.op, chunk * ranks_ + rank_.rank, microbatch}, start, end, step});
        }
        return tasks;
    }

    const json& list_at(const JsonPlace& iteration, const std::string& key,
                        std::size_t size = std::string::npos) const {
        const json& list = iteration.at(key.c_str());
        if (!list.is_array())
            iteration.reject(key.c_str(), "expected a list, got {}", list.type_name());
        if (size != std::string::npos && list.size() != size)
            iteration.reject(key.c_str(), "{} values, but {} tasks start", list.size(), size);
        return list;
    }

    Ns time_in(const JsonPlace& iteration, const std::string& key, const json& value) const {
        const double time = value.is_number() ? value.get<double>() : -1;
        if (!(time >= 0 && time < static_cast<double>(kMaxTime) / 1e6))
            iteration.reject(key.c_str(), "expected milliseconds, got {}", shown(value));
        return std::llround(time * 1e6);
    }

    // Without lists of both, Megatron's own order: the chunks take turns after as many micro-batches as there are
    // ranks, in backwards from the last chunk on.
    std::pair<int, int> place_of(const JsonPlace& iteration, const std::string& name, std::size_t k, std::size_t all,
                                 bool backward) const {
        const auto value_of = [&](const std::string& key) -> int {
            if (!iteration.has(key.c_str()) || list_at(iteration, key).empty())
                return -1;
            const json& list = list_at(iteration, key, all);
            return static_cast<int>(iteration.checked(key.c_str(), list[k], 0, 65'535));
        };
        const int number = static_cast<int>(k), group = ranks_ * chunks_;
        const int chunk = value_of(name + "_chunk"), microbatch = value_of(name + "_minibatch");
        const int turn = number % group / ranks_;
        return {chunk >= 0 ? chunk : (backward ? chunks_ - 1 - turn : turn),
                microbatch >= 0 ? microbatch : number / group * ranks_ + number % ranks_};
    }

    const int ranks_;
    int chunks_ = 1;
    RecordedRank rank_;
    const std::string text_;
};

// Returns the number of stages of each rank, where Primus left its config.json next to the file.
int chunks_near(const std::string& path) {
    const std::filesystem::path config = std::filesystem::path(path).parent_path() / "config.json";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(config, ignored))
        return 1;
    const std::string name = config.string();
    const json root = parse_json(read_text(name, kPrimusHelp), fmt::format("config '{}'", name));
    for (const char* key : {"vp_size", "vpp_size"})
        if (root.is_object() && root.contains(key))
            return JsonPlace{name, root, "file", kPrimusHelp}.small(key, 1, 1024);
    return 1;
}

Trace read_primus(const std::vector<std::string>& paths, TaskNames&, std::vector<std::string>& notes) {
    std::vector<RecordedRank> ranks;
    const int chunks = chunks_near(paths.front());
    for (const std::string& path : paths)
        ranks.push_back(PrimusRank(path, static_cast<int>(paths.size())).read(chunks));
    return trace_of_ranks(std::move(ranks), RankClocks::FromSteps, notes);
}

}  // namespace

extern const TraceForm kPrimus{.tasks = "fwd_start, bwd_start, ... of pp_rank_0.json (Primus)",
                               .of_one_rank = true,
                               .names_tasks = false,
                               .is_task = nullptr,
                               .is_file = begins_as_primus,
                               .read = read_primus};

}  // namespace pw
