#include "cli/sweep.h"

#include "cli/prediction.h"
#include "cli/streams.h"
#include "cli/table.h"
#include "job/cost_source.h"
#include "job/idle_keys.h"
#include "search/predict.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kMostPoints = 10'000;

std::size_t count_points(const Config& config) {
    std::size_t count = 1;
    for (const SweepAxis& axis : config.sweep) {
        count *= axis.texts.size();
        if (count > kMostPoints)
            config.fail_at("sweep", fmt::format("'sweep' has more than {} points", kMostPoints),
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

void keep(std::vector<std::string>& notes, const std::string& note) {
    if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
        notes.push_back(note);
}

// Where times are those of a micro-batch, whatever its size, the largest of unlike sizes would always be the best.
// `known`: of the points before; 0: none had such times.
void refuse_other_size(const Config& config, int size, int& known) {
    if (known > 0 && size != known)
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
    known = size;
}

Config load_point(ConfigArguments arguments, const std::vector<SweepAxis>& axes,
                  const std::vector<std::string>& texts) {
    for (std::size_t i = 0; i < axes.size(); ++i)
        arguments.set.push_back(fmt::format("{}={}", axes[i].key, texts[i]));
    return arguments.load();
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
Report simulate_point(Config config, std::vector<std::string>& notes, IdleInAll& idle, bool& any_size) {
    Notices notices;
    const Job job = make_job(std::move(config), notices);
    idle.keep_common(idle_keys(job.config, job.plan));
    any_size = job.source == CostSource::Uniform || job.profile.any_size;
    Report report = report_of(predict_numbers(job), job.config);
    for (const std::string& notice : notices)
        keep(notes, notice);
    keep(notes, note_on_costs(job));
    return report;
}

std::vector<SweepPoint> simulate_points(const ConfigArguments& arguments, const Config& config,
                                        std::vector<std::string>& notes) {
    std::vector<SweepPoint> points(count_points(config));
    ProgressLine progress;
    int known_size = 0;
    IdleInAll idle;
    for (std::size_t i = 0; i < points.size(); ++i) {
        progress.show(fmt::format("point {} of {}", i + 1, points.size()));
        points[i].texts = texts_of(config.sweep, i);
        bool any_size = false;
        try {
            Config point = load_point(arguments, config.sweep, points[i].texts);
            points[i].report = simulate_point(std::move(point), notes, idle, any_size);
        } catch (const Error& error) {
            points[i].error = error;
        }
        if (points[i].report && any_size)
            refuse_other_size(config, points[i].report->trace.micro_batch_size, known_size);
    }
    for (const IdleKey& key : idle.keys())
        keep(notes, print(key));
    return points;
}

// "micro_batches 8, bandwidth 10 GB/s".
std::string setting_of(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
    const std::vector<std::string> names = short_names(axes);
    std::string text;
    for (std::size_t i = 0; i < axes.size(); ++i)
        text += fmt::format("{}{} {}", i > 0 ? ", " : "", names[i], point.texts[i]);
    return text;
}

void require_one_that_works(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points) {
    if (std::any_of(points.begin(), points.end(), [](const SweepPoint& point) { return point.report.has_value(); }))
        return;
    const Error& first = *points.front().error;
    throw Error(first.code(), fmt::format("{}\n  note: no point of 'sweep' can be simulated; this is the first, {}",
                                          first.what(), setting_of(axes, points.front())));
}

bool is_asynchronous(const SweepPoint& point) { return point.report && point.report->trace.asynchronous; }

// By samples per second: points of unlike mini-batches have unlike steps. The first of equals; null when none fits.
// Asynchronous plans learn something else: they are compared with each other only.
const SweepPoint* best_of(const std::vector<SweepPoint>& points, bool asynchronous) {
    const SweepPoint* best = nullptr;
    for (const SweepPoint& point : points)
        if (point.report && fits(*point.report) && is_asynchronous(point) == asynchronous &&
            (!best || point.report->metrics.samples_per_second > best->report->metrics.samples_per_second))
            best = &point;
    return best;
}

// The best point: of those that flush, unless none does.
const SweepPoint* best_of(const std::vector<SweepPoint>& points) {
    const bool some_flush = std::any_of(
        points.begin(), points.end(), [](const SweepPoint& point) { return point.report && !is_asynchronous(point); });
    return best_of(points, !some_flush);
}

int micro_batches_of(const SweepPoint& point) { return point.report->trace.micro_batches; }

// A point that gives at least `share` of the best one with the fewest micro-batches, fewer than the best has: their
// number often grows into nothing but a larger mini-batch. Null: none.
const SweepPoint* almost(const std::vector<SweepPoint>& points, const SweepPoint& best, double share) {
    const SweepPoint* found = &best;
    const double enough = share * best.report->metrics.samples_per_second;
    for (const SweepPoint& point : points)
        if (point.report && fits(*point.report) && is_asynchronous(point) == is_asynchronous(best) &&
            point.report->metrics.samples_per_second >= enough && micro_batches_of(point) < micro_batches_of(*found))
            found = &point;
    return found == &best ? nullptr : found;
}

// What stands in the last column, flush left among cells that are flush right.
std::string verdict_of(const SweepPoint& point) {
    constexpr std::size_t kMost = 120;
    if (point.error) {
        const std::string line = first_line(*point.error);
        return line.size() > kMost ? line.substr(0, line.rfind(' ', kMost)) + " ..." : line;
    }
    return fmt::format("{}{}", fits(*point.report) ? "yes" : "no", is_asynchronous(point) ? " (asynchronous)" : "");
}

// Returns the memory that all devices of all points have where it is the same and limited; else kUnlimited.
Bytes common_limit_of(const std::vector<SweepPoint>& points) {
    std::optional<Bytes> limit;
    for (const SweepPoint& point : points)
        for (const Bytes own : point.report ? point.report->limits : std::vector<Bytes>{})
            if (limit.value_or(own) != own)
                return kUnlimited;
            else
                limit = own;
    return limit.value_or(kUnlimited);
}

std::vector<std::string> row_of_point(const SweepPoint& point, Bytes limit) {
    std::vector<std::string> row = point.texts;
    if (point.error) {
        row.insert(row.end(), 5, "-");
        return row;
    }
    const Metrics& metrics = point.report->metrics;
    row.push_back(print_time(metrics.step_time));
    row.push_back(fmt::format("{:.4g}", metrics.samples_per_second));
    row.push_back(print_percent(metrics.bubble_rate));
    row.push_back(print_bytes_as(largest_peak(*point.report), limit));
    row.push_back(print_bytes_as(largest_reserved(*point.report), limit));
    return row;
}

std::string print_table(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points) {
    std::size_t widest = 0;
    for (const SweepPoint& point : points)
        widest = std::max(widest, verdict_of(point).size());
    std::vector<std::string> header = short_names(axes);
    const Bytes limit = common_limit_of(points);
    for (const char* name : {"step time", "samples/s", "bubble", "peak memory"})
        header.emplace_back(name);
    header.push_back(memory_header("reserved", limit));
    header.push_back(fmt::format("{:<{}}", "fits", widest));
    Table table(header);
    for (const SweepPoint& point : points) {
        std::vector<std::string> row = row_of_point(point, limit);
        row.push_back(fmt::format("{:<{}}", verdict_of(point), widest));
        table.add(std::move(row));
    }
    return table.print();
}

std::string print_best(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points) {
    constexpr double kAlmost = 0.95;
    const Bytes limit = common_limit_of(points);
    const auto line = [&](const char* what, const SweepPoint& point) {
        const Metrics& metrics = point.report->metrics;
        return fmt::format("{}: {}: {:.4g} samples/s, step time {}, peak memory {}\n", what, setting_of(axes, point),
                           metrics.samples_per_second, print_time(metrics.step_time),
                           print_bytes_as(largest_peak(*point.report), limit));
    };
    const SweepPoint* best = best_of(points);
    const SweepPoint* asynchronous = best_of(points, true);
    std::string text = best ? line("best", *best) : "best: none fits\n";
    if (const SweepPoint* fewer = best ? almost(points, *best, kAlmost) : nullptr)
        text += fmt::format(
            "fewer micro-batches: {}: {} of its samples/s\n", setting_of(axes, *fewer),
            print_percent(fewer->report->metrics.samples_per_second / best->report->metrics.samples_per_second));
    return text + (asynchronous && asynchronous != best ? line("best asynchronous", *asynchronous) : "");
}

// A number or a quoted text is what JSON reads in it, all else its YAML.
Json json_of_value(const std::string& text) {
    try {
        Json value = parse_json<Json>(text, "a value");
        return value.is_primitive() ? value : Json(text);
    } catch (const Error&) {
        return text;
    }
}

Json json_of(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
    Json json = {{"set", Json::object()}};
    for (std::size_t i = 0; i < axes.size(); ++i)
        json["set"][axes[i].key] = json_of_value(point.texts[i]);
    if (point.error) {
        json["error"] = first_line(*point.error);
        return json;
    }
    Json numbers = json_of(*point.report);
    json["asynchronous"] = is_asynchronous(point);
    for (const char* of_the_whole : {"schema_version", "label", "devices"})
        numbers.erase(of_the_whole);
    numbers["peak_memory_bytes"] = largest_peak(*point.report);
    numbers["reserved_memory_bytes"] = largest_reserved(*point.report);
    json.update(numbers);
    return json;
}

Json json_of(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points) {
    const SweepPoint* best = best_of(points);
    const SweepPoint* asynchronous = best_of(points, true);
    Json json = {{"schema_version", 1}, {"points", Json::array()}};
    for (const SweepPoint& point : points)
        json["points"].push_back(json_of(axes, point));
    json["best"] = best ? json_of(axes, *best) : Json();
    json["best_asynchronous"] = asynchronous ? json_of(axes, *asynchronous) : Json();
    return json;
}

}  // namespace

std::string first_line(const Error& error) {
    return error.fact().substr(0, error.fact().find('\n'));  // a file's place is in the next
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

void simulate_sweep(const ConfigArguments& arguments, const Config& config, bool json, const std::string& plot) {
    if (!plot.empty())
        check_sweep_plot(config.sweep, plot);
    std::vector<std::string> notes;
    const std::vector<SweepPoint> points = simulate_points(arguments, config, notes);
    require_one_that_works(config.sweep, points);
    Outputs outputs;
    outputs.attempt([&] {
        if (json)
            print_json(json_of(config.sweep, points));
        else
            print_result("{}\n{}", print_table(config.sweep, points), print_best(config.sweep, points));
    });
    outputs.attempt([&] {
        if (!plot.empty())
            plot_sweep(config.sweep, points, plot);
    });
    for (const std::string& note : notes)
        print_note(note);
    outputs.done();
}

}  // namespace pw
