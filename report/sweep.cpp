#include "report/sweep.h"

#include "job/cost_source.h"
#include "job/idle_keys.h"
#include "report/notes.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kMostPoints = 10'000;

std::size_t count_points(const ConfigSource& source, const std::vector<SweepAxis>& axes) {
    std::size_t count = 1;
    for (const SweepAxis& axis : axes) {
        if (axis.texts.empty())
            fail("the axis '{}' of a sweep has no values\n  help: give it some, such as 4 and 8", axis.key);
        count *= axis.texts.size();
        if (count > kMostPoints)
            source.load_with({}).fail_at("sweep", fmt::format("'sweep' has more than {} points", kMostPoints),
                                         "list fewer values, or sweep some keys one after the other with --set");
    }
    return count;
}

// The last axis is the fastest.
std::vector<std::string> texts_of(const std::vector<SweepAxis>& axes, std::size_t point) {
    std::vector<std::string> texts(axes.size());
    for (std::size_t i = axes.size(); i-- > 0; point /= axes[i].texts.size())
        texts[i] = axes[i].texts[point % axes[i].texts.size()];
    return texts;
}

void keep(Notices& notes, const std::string& note) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end())
        notes.push_back(note);
}

// Refuses to compare unlike sizes of micro-batches if times do not depend on the size: the largest would always be the
// best. `known`: the size in earlier points, or 0 if no point had such times.
void refuse_other_size(const ConfigSource& source, int size, int& known) {
    if (known > 0 && size != known) {
        const Config config = source.load_with({});
        config.fail_at(
            "sweep",
            fmt::format("'sweep' compares micro-batches of {} and {} samples, but model: {} has the same times for "
                        "both",
                        std::min(size, known), std::max(size, known),
                        std::filesystem::path(config.workload.model).filename().string()),
            is_uniform(config)
                ? "sweep other keys, or name a model that has times by size: a built-in one, or layers in a *.yaml"
                : "sweep other keys; or write samples: N into a layer graph, or search.profile_batch: N, the samples "
                  "that its times are for");
    }
    known = size;
}

Config load_point(const ConfigSource& source, const std::vector<SweepAxis>& axes,
                  const std::vector<std::string>& texts) {
    std::vector<std::string> set;
    for (std::size_t i = 0; i < axes.size(); ++i)
        set.push_back(fmt::format("{}={}", axes[i].key, texts[i]));
    return source.load_with(set);
}

// Keys that have no effect at any point.
class IdleInAll {
public:
    void keep_common(std::vector<IdleKey> of_point) {
        const auto is_read = [&](const IdleKey& key) {
            return std::none_of(of_point.begin(), of_point.end(),
                                [&](const IdleKey& other) { return other.key == key.key; });
        };
        if (first_)
            keys_ = std::move(of_point);
        else
            std::erase_if(keys_, is_read);
        first_ = false;
    }
    const std::vector<IdleKey>& keys() const { return keys_; }

private:
    bool first_ = true;
    std::vector<IdleKey> keys_;
};

struct PointCosts {
    bool any_size = false;   // costs are per micro-batch, whatever its size
    int uniform_stages = 0;  // the number of stages if costs are per stage, however many there are
    std::string schedule = {};
};

Report simulate_point(Config config, bool with_events, Notices& notes, IdleInAll& idle, PointCosts& costs) {
    Notices notices;
    const Job job = make_job(std::move(config), notices);
    idle.keep_common(idle_keys(job.setup, job.plan));
    const bool is_uniform_job = job.source == CostSource::Uniform;
    costs = {is_uniform_job || job.profile.any_size, is_uniform_job ? job.plan.shape.stages : 0,
             job.setup.pipeline.schedule};
    Report report = predicted_report(job, with_events);
    for (const std::string& notice : notices)
        keep(notes, notice);
    for (const std::string& note : notes_on_costs(job))
        keep(notes, note);
    if (const std::string note = note_on_precision(job.setup); !note.empty())
        keep(notes, note);
    return report;
}

// Points of a uniform workload by their number of stages: the more stages, the larger the model.
class UniformStages {
public:
    void add(const PointCosts& costs) {
        std::vector<std::string>& names = schedules_[costs.uniform_stages];
        if (std::ranges::find(names, costs.schedule) == names.end())
            names.push_back(costs.schedule);
    }
    // Empty if all points have equally many.
    std::string note() const {
        if (schedules_.size() < 2)
            return "";
        std::vector<std::string> numbers;
        for (const auto& [stages, names] : schedules_)
            numbers.push_back(fmt::format("{} with {}", stages, fmt::join(names, ", ")));
        return fmt::format(
            "a uniform workload has the times of a stage, and the numbers of stages differ: {}. More "
            "stages are a larger model: compare bubbles, not times",
            fmt::join(numbers, "; "));
    }

private:
    std::map<int, std::vector<std::string>> schedules_;
};

void simulate_points(const ConfigSource& source, const Hooks& hooks, bool with_events, Sweep& sweep) {
    const std::size_t count = count_points(source, sweep.axes);
    int known_size = 0;
    IdleInAll idle;
    UniformStages uniform;
    for (std::size_t i = 0; i < count && !hooks.stops(); ++i) {
        hooks.show(fmt::format("point {} of {}", i + 1, count));
        SweepPoint& point = sweep.points.emplace_back(SweepPoint{texts_of(sweep.axes, i), {}, {}});
        PointCosts costs;
        try {
            Config config = load_point(source, sweep.axes, point.texts);
            point.report = simulate_point(std::move(config), with_events, sweep.notes, idle, costs);
        } catch (const Error& error) {
            point.error = error;
        }
        if (point.report && costs.uniform_stages > 0)
            uniform.add(costs);
        if (point.report && costs.any_size)
            refuse_other_size(source, point.report->trace.micro_batch_size, known_size);
    }
    for (const IdleKey& key : idle.keys())
        keep(sweep.notes, print(key));
    if (const std::string note = uniform.note(); !note.empty())
        keep(sweep.notes, note);
}

void require_one_that_works(const Sweep& sweep) {
    const std::vector<SweepPoint>& points = sweep.points;
    if (points.empty())
        fail_with(ExitCode::RunFailed, "the sweep was stopped before its first point");
    if (std::any_of(points.begin(), points.end(), [](const SweepPoint& point) { return point.report.has_value(); }))
        return;
    const Error& first = *points.front().error;
    throw Error(first.code(), fmt::format("{}\n  note: none of {} points can be simulated; this is the first, {}",
                                          first.what(), points.size(), setting_of(sweep, 0)));
}

// The first of equals.
std::optional<std::size_t> best_among(const Sweep& sweep, bool asynchronous) {
    const std::vector<SweepPoint>& points = sweep.points;
    const bool of_tokens = counts_tokens(sweep);
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < points.size(); ++i)
        if (const SweepPoint& point = points[i];
            point.report && fits(*point.report) && is_asynchronous(point) == asynchronous &&
            (!best || rate_of(point, of_tokens) > rate_of(points[*best], of_tokens)))
            best = i;
    return best;
}

void choose_best(Sweep& sweep) {
    sweep.best = best_among(sweep, false);
    sweep.best_asynchronous = best_among(sweep, true);
    const bool some_flush = std::any_of(sweep.points.begin(), sweep.points.end(), [](const SweepPoint& point) {
        return point.report && !is_asynchronous(point);
    });
    if (!some_flush)
        sweep.best = sweep.best_asynchronous;
}

}  // namespace

bool is_asynchronous(const SweepPoint& point) { return point.report && point.report->trace.asynchronous; }

double rate_of(const SweepPoint& point, bool of_tokens) {
    return of_tokens ? work_rate_of(*point.report) : point.report->metrics.samples_per_second;
}

bool counts_tokens(const Sweep& sweep) {
    std::set<int> tokens;
    bool of_cluster = false;
    for (const SweepPoint& point : sweep.points)
        if (point.report) {
            tokens.insert(point.report->tokens);
            of_cluster = of_cluster || point.report->cluster;
        }
    return !tokens.contains(0) && (of_cluster || tokens.size() > 1);
}

std::vector<std::string> short_names(const std::vector<SweepAxis>& axes) {
    const auto last_part = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
    std::vector<std::string> names;
    for (const SweepAxis& axis : axes) {
        const auto alike = std::count_if(axes.begin(), axes.end(), [&](const SweepAxis& other) {
            return last_part(other.key) == last_part(axis.key);
        });
        names.push_back(alike > 1 ? axis.key : last_part(axis.key));
    }
    return names;
}

std::string setting_of(const Sweep& sweep, std::size_t point) {
    const std::vector<std::string> names = short_names(sweep.axes);
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += fmt::format("{}{} {}", i > 0 ? ", " : "", names[i], sweep.points[point].texts[i]);
    return text;
}

Sweep simulate_sweep(const ConfigSource& source, const std::vector<SweepAxis>& axes, const Hooks& hooks,
                     bool with_events) {
    Sweep sweep{axes, {}, {}, {}};
    for (SweepAxis& axis : sweep.axes)
        if (axis.key == "pipeline.schedule" && axis.texts == std::vector{std::string(kAllSchedules)})
            axis.texts = schedules_in(std::string(kAllSchedules));
    simulate_points(source, hooks, with_events, sweep);
    require_one_that_works(sweep);
    choose_best(sweep);
    return sweep;
}

std::vector<std::string> schedules_in(const std::string& list) {
    if (list == kAllSchedules)
        return training_schedules();
    std::vector<std::string> names;
    std::set<std::string> different;
    std::istringstream text(list);
    for (std::string name; std::getline(text >> std::ws, name, ',');) {
        name.erase(name.find_last_not_of(' ') + 1);
        const std::string plan = name.ends_with(".csv") ? name : std::string(schedule_named(name).name);
        if (!different.insert(plan).second)
            fail("schedule '{}' is listed twice\n  help: name each schedule once", plan);
        names.push_back(std::move(name));
    }
    return names;
}

Sweep simulate_schedules(const ConfigSource& source, const std::vector<std::string>& schedules, const Hooks& hooks,
                         bool with_events) {
    Sweep sweep = simulate_sweep(source, {{"pipeline.schedule", schedules}}, hooks, with_events);
    const bool of_tokens = counts_tokens(sweep);
    std::stable_sort(sweep.points.begin(), sweep.points.end(), [&](const SweepPoint& a, const SweepPoint& b) {
        const auto rank = [&](const SweepPoint& point) {
            return std::tuple(!point.report, point.report && !fits(*point.report),
                              point.report ? -rate_of(point, of_tokens) : 0.0);
        };
        return rank(a) < rank(b);
    });
    choose_best(sweep);
    return sweep;
}

}  // namespace pw
