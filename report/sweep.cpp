#include "report/sweep.h"

#include "job/cost_source.h"
#include "job/idle_keys.h"
#include "report/notes.h"
#include "report/plan_chart.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "workloads/text/json_text.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
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

// Where times are those of a micro-batch, whatever its size, the largest of unlike sizes would always be the best.
// `known`: of the points before; 0: none had such times.
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

// Sets `any_size` where the costs are those of a micro-batch, whatever its size.
Report simulate_point(Config config, bool with_events, Notices& notes, IdleInAll& idle, bool& any_size) {
    Notices notices;
    const Job job = make_job(std::move(config), notices);
    idle.keep_common(idle_keys(job.setup, job.plan));
    any_size = job.source == CostSource::Uniform || job.profile.any_size;
    Report report = predicted_report(job, with_events);
    for (const std::string& notice : notices)
        keep(notes, notice);
    for (const std::string& note : notes_on_costs(job))
        keep(notes, note);
    if (const std::string note = note_on_precision(job.setup); !note.empty())
        keep(notes, note);
    return report;
}

void simulate_points(const ConfigSource& source, const Hooks& hooks, bool with_events, Sweep& sweep) {
    const std::size_t count = count_points(source, sweep.axes);
    int known_size = 0;
    IdleInAll idle;
    for (std::size_t i = 0; i < count && !hooks.stops(); ++i) {
        hooks.show(fmt::format("point {} of {}", i + 1, count));
        SweepPoint& point = sweep.points.emplace_back(SweepPoint{texts_of(sweep.axes, i), {}, {}});
        bool any_size = false;
        try {
            Config config = load_point(source, sweep.axes, point.texts);
            point.report = simulate_point(std::move(config), with_events, sweep.notes, idle, any_size);
        } catch (const Error& error) {
            point.error = error;
        }
        if (point.report && any_size)
            refuse_other_size(source, point.report->trace.micro_batch_size, known_size);
    }
    for (const IdleKey& key : idle.keys())
        keep(sweep.notes, print(key));
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

// Returns the tokens or samples per second of a point. Steps of points with unlike mini-batches cannot be compared.
double rate_of(const SweepPoint& point, bool of_tokens) {
    return of_tokens ? work_rate_of(*point.report) : point.report->metrics.samples_per_second;
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

// The micro-batches of a step on all replicas.
std::int64_t micro_batches_of(const SweepPoint& point) {
    return std::int64_t{point.report->trace.micro_batches} * point.report->trace.replicas;
}

// A point that gives at least `share` of the best one with the fewest micro-batches, fewer than the best has: their
// number often grows into nothing but a larger mini-batch.
std::optional<std::size_t> almost(const Sweep& sweep, std::size_t best, double share) {
    const std::vector<SweepPoint>& points = sweep.points;
    const bool of_tokens = counts_tokens(sweep);
    std::size_t found = best;
    const double enough = share * rate_of(points[best], of_tokens);
    for (std::size_t i = 0; i < points.size(); ++i)
        if (const SweepPoint& point = points[i];
            point.report && fits(*point.report) && is_asynchronous(point) == is_asynchronous(points[best]) &&
            rate_of(point, of_tokens) >= enough && micro_batches_of(point) < micro_batches_of(points[found]))
            found = i;
    return found == best ? std::nullopt : std::optional(found);
}

long samples_of(const SweepPoint& point) { return samples_of_step(point.report->metrics); }

// Returns the text of the last column, flush left among cells that are flush right.
std::string verdict_of(const SweepPoint& point) {
    constexpr std::size_t kMost = 120;
    if (point.error) {
        const std::string line = first_line(*point.error);
        return line.size() > kMost ? line.substr(0, line.rfind(' ', kMost)) + " ..." : line;
    }
    const std::string verdict = fits(*point.report) ? "yes" : "no";
    if (!is_asynchronous(point))
        return verdict;
    const long samples = samples_of(point);
    return fmt::format("{} (asynchronous, {} sample{} an update)", verdict, samples, samples == 1 ? "" : "s");
}

bool lists_schedules(const Sweep& sweep) { return sweep.axes.size() == 1 && sweep.axes[0].key == "pipeline.schedule"; }

// Returns why a schedule cannot be simulated, without its name at the beginning.
std::string reason_of(const SweepPoint& point) {
    std::string reason = first_line(*point.error);
    for (const std::string& beginning : {"schedule " + point.texts.front() + " ", point.texts.front() + " "})
        if (reason.starts_with(beginning))
            return reason.substr(beginning.size());
    return reason;
}

// A line for each reason why schedules cannot be simulated: "left out: 1f1b, zb-h1: places one stage ...".
std::string unsuitable_text(const Sweep& sweep) {
    std::vector<std::pair<std::string, std::string>> reasons;  // and the schedules
    for (const SweepPoint& point : sweep.points) {
        if (!point.error)
            continue;
        const std::string reason = reason_of(point);
        const auto known = std::find_if(reasons.begin(), reasons.end(),
                                        [&](const auto& reason_and_names) { return reason_and_names.first == reason; });
        if (known == reasons.end())
            reasons.emplace_back(reason, point.texts.front());
        else
            known->second += ", " + point.texts.front();
    }
    std::string text;
    for (const auto& [reason, names] : reasons)
        text += fmt::format("left out: {}: {}\n", names, escaped_line(reason));
    return text;
}

std::string table_text(const Sweep& sweep) {
    std::vector<const SweepPoint*> points;
    for (const SweepPoint& point : sweep.points)
        if (!point.error || !lists_schedules(sweep))
            points.push_back(&point);
    std::size_t widest = 0;
    for (const SweepPoint* point : points)
        widest = std::max(widest, verdict_of(*point).size());
    std::vector<std::string> header = short_names(sweep.axes);
    for (std::string& head : fact_heads(sweep))
        header.push_back(std::move(head));
    header.back() = fmt::format("{:<{}}", header.back(), widest);
    Table table(header);
    const Bytes limit = common_limit_of(sweep);
    const bool of_tokens = counts_tokens(sweep);
    for (const SweepPoint* point : points) {
        std::vector<std::string> row = point->texts;
        for (std::string& fact : facts_of(*point, limit, of_tokens))
            row.push_back(std::move(fact));
        row.back() = fmt::format("{:<{}}", row.back(), widest);
        table.add(std::move(row));
    }
    return table.print() + (lists_schedules(sweep) ? unsuitable_text(sweep) : "");
}

// Returns the points that flush, if their steps have the same samples; else none.
std::vector<PlanDot> comparable_plans(const Sweep& sweep) {
    std::vector<PlanDot> plans;
    std::optional<long> samples;
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
        const SweepPoint& point = sweep.points[i];
        if (!point.report || is_asynchronous(point))
            continue;
        if (samples.value_or(samples_of(point)) != samples_of(point))
            return {};
        samples = samples_of(point);
        plans.push_back({largest_reserved(*point.report), point.report->metrics.step_time, fits(*point.report),
                         setting_of(sweep, i), point.texts});
    }
    return plans;
}

std::string best_text(const Sweep& sweep) {
    constexpr double kAlmost = 0.95;
    const Bytes limit = common_limit_of(sweep);
    const bool of_tokens = counts_tokens(sweep);
    const char* const unit = of_tokens ? "tokens/s" : "samples/s";
    const auto line = [&](const char* what, std::size_t number) {
        const Report& report = *sweep.points[number].report;
        return fmt::format("{}: {}: {} {}, step time {}, peak memory {}\n", what, setting_of(sweep, number),
                           print_rate(rate_of(sweep.points[number], of_tokens), of_tokens), unit,
                           print_time(report.metrics.step_time), print_bytes_as(largest_peak(report), limit));
    };
    const auto& [best, asynchronous] = std::pair(sweep.best, sweep.best_asynchronous);
    const bool alone = best && is_asynchronous(sweep.points[*best]);
    std::string text =
        best ? line(alone ? "best (asynchronous, as every plan here)" : "best", *best) : "best: none fits\n";
    if (const auto fewer = best ? almost(sweep, *best, kAlmost) : std::nullopt)
        text += fmt::format(
            "fewer micro-batches: {}: {} of its {}\n", setting_of(sweep, *fewer),
            print_percent(rate_of(sweep.points[*fewer], of_tokens) / rate_of(sweep.points[*best], of_tokens)), unit);
    text += asynchronous && asynchronous != best ? line("best asynchronous", *asynchronous) : "";
    return text + less_memory_text(comparable_plans(sweep), limit);
}

// A number or a quoted text is what JSON reads in it, all else its YAML.
Json value_in_json(const std::string& text) {
    try {
        Json value = parse_json<Json>(text, "a value");
        return value.is_primitive() ? value : Json(text);
    } catch (const Error&) {
        return text;
    }
}

Json json_of_point(const std::vector<SweepAxis>& axes, const SweepPoint& point, bool with_devices) {
    Json json = {{"set", Json::object()}};
    for (std::size_t i = 0; i < axes.size(); ++i)
        json["set"][axes[i].key] = value_in_json(point.texts[i]);
    if (point.error) {
        json["error"] = first_line(*point.error);
        return json;
    }
    Json numbers = to_json(*point.report);
    json["asynchronous"] = is_asynchronous(point);
    const Json devices = std::move(numbers["devices"]);
    for (const char* of_the_whole : {"schema_version", "label", "devices"})
        numbers.erase(of_the_whole);
    numbers["peak_memory_bytes"] = largest_peak(*point.report);
    numbers["reserved_memory_bytes"] = largest_reserved(*point.report);
    json.update(numbers);
    if (with_devices)
        json["devices"] = devices;
    return json;
}

std::size_t count_devices(const Sweep& sweep) {
    std::size_t count = 0;
    for (const SweepPoint& point : sweep.points)
        count += point.report ? point.report->metrics.devices.size() : 0;
    return count;
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

Bytes common_limit_of(const Sweep& sweep) {
    std::optional<Bytes> limit;
    for (const SweepPoint& point : sweep.points)
        for (const Bytes own : point.report ? point.report->limits : std::vector<Bytes>{})
            if (limit.value_or(own) != own)
                return kUnlimited;
            else
                limit = own;
    return limit.value_or(kUnlimited);
}

std::vector<std::string> fact_heads(const Sweep& sweep) {
    std::vector<std::string> heads = {"step time", "samples/s"};
    if (counts_tokens(sweep))
        heads.emplace_back("tokens/s");
    for (std::string head : {"bubble", "peak memory"})
        heads.push_back(std::move(head));
    heads.push_back(memory_header("reserved", common_limit_of(sweep)));
    heads.emplace_back("fits");
    return heads;
}

std::vector<std::string> facts_of(const SweepPoint& point, Bytes limit, bool of_tokens) {
    std::vector<std::string> facts(of_tokens ? 6 : 5, "-");
    if (point.report) {
        const Metrics& metrics = point.report->metrics;
        facts = {print_time(metrics.step_time), print_rate(metrics.samples_per_second, false)};
        if (of_tokens)
            facts.push_back(print_rate(work_rate_of(*point.report), true));
        facts.push_back(print_percent(metrics.bubble_rate));
        facts.push_back(print_bytes_as(largest_peak(*point.report), limit));
        facts.push_back(print_bytes_as(largest_reserved(*point.report), limit));
    }
    facts.push_back(verdict_of(point));
    return facts;
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

Json to_json(const Sweep& sweep) {
    constexpr std::size_t kMostListedDevices = 100'000;
    const bool with_devices = count_devices(sweep) <= kMostListedDevices;
    const auto json_of_best = [&](const std::optional<std::size_t>& best) {
        return best ? json_of_point(sweep.axes, sweep.points[*best], with_devices) : Json();
    };
    Json json = {{"schema_version", 1}, {"points", Json::array()}};
    for (const SweepPoint& point : sweep.points)
        json["points"].push_back(json_of_point(sweep.axes, point, with_devices));
    json["best"] = json_of_best(sweep.best);
    json["best_asynchronous"] = json_of_best(sweep.best_asynchronous);
    return json;
}

std::string to_text(const Sweep& sweep) { return fmt::format("{}\n{}", table_text(sweep), best_text(sweep)); }

}  // namespace pw
