// What is said of sweeps: tables and lines, JSON.
#include "report/notes.h"
#include "report/plan_chart.h"
#include "report/sweep.h"
#include "report/table.h"
#include "workloads/text/json_text.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace pw {

namespace {

// The micro-batches of a step on all replicas.
std::int64_t micro_batches_of(const SweepPoint& point) {
    return std::int64_t{point.report->trace.micro_batches} * point.report->trace.replicas;
}

// The point with the fewest micro-batches that gives at least `share` of the best point, with fewer than the best has.
// More micro-batches often bring nothing but a larger mini-batch.
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

// Returns the points that flush, if their steps have the same samples. Else none.
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

// A number or a quoted text is what JSON reads in the text, all else is YAML.
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

}  // namespace

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
