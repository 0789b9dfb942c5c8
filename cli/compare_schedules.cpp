// compare --schedules: several schedules of a config, with the same profile, in a table.
#include "cli/compare.h"
#include "cli/outputs.h"
#include "cli/streams.h"
#include "exec/all_ranks.h"
#include "job/launched_ranks.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/schedule_comparison.h"
#include "schedules/trace/trace_json.h"
#include "viz/plot.h"
#include "workloads/text/files.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace pw {

namespace {

constexpr std::size_t kLeastWidth = 10;  // of a column whose cells are not known yet

// Prints at once, even if stdout is a file, since a row may take minutes.
void show(const std::string& text) {
    print_result("{}", text);
    finish_results();
}

// Writes a line per point, so that a changed point is a changed line.
std::string lines_of(const Json& comparison) {
    std::string points;
    for (const Json& point : comparison["points"])
        points += (points.empty() ? "\n  " : ",\n  ") + point.dump();
    return fmt::format("{{\n \"schema_version\": {},\n \"points\": [{}\n ]\n}}\n", comparison["schema_version"].dump(),
                       points);
}

// Prints the comparison row by row, and writes the rows so far to the folder.
class ComparisonOutput {
public:
    explicit ComparisonOutput(const SchedulesOutput& output)
        : root_(output.folder),
          csv_(output.csv),
          json_(output.json),
          kept_(!output.folder.empty() && is_first_rank()),
          pictures_(has_gnuplot()) {}

    void begin(const Job& job, int turns) {
        if (kept_ && !has_begun_)
            open();
        has_begun_ = true;
        if (kept_ && job.source == CostSource::Measured && !profile_is_written_) {
            outputs_.attempt([&] { write_profile(job.profile, file("profile.yaml")); });
            profile_is_written_ = true;
        }
        print_note(summary_of(job));
        if (is_first_rank())
            if (const std::string note = note_on_turns(job, turns); !note.empty())
                print_note(note);
    }

    void end(const ScheduleComparison& so_far) {
        const ScheduleRun& run = so_far.runs.back();
        print_notes(run.comparison.notes);
        print_warnings(run.comparison.warnings);
        if (so_far.runs.size() == 1)
            outputs_.attempt(
                [&] { show_text(so_far.title + "\n" + table_of(ScheduleComparison{}).last_row(kLeastWidth)); });
        outputs_.attempt([&] { show_text(table_of(so_far).last_row(kLeastWidth)); });
        if (!kept_)
            return;
        outputs_.attempt([&] { draw(run); });
        outputs_.attempt([&] { write_tables(so_far); });
    }

    void finish(const ScheduleComparison& all) {
        outputs_.attempt([&] { show_text(left_out_text(all)); });
        outputs_.attempt([&] { write_csv(csv_, to_json(all)["points"]); });
        if (json_)
            outputs_.attempt([&] { print_json(to_json(all)); });
        if (kept_)
            outputs_.attempt([&] { write_tables(all); });
        outputs_.attempt([&] {
            if (kept_ && !all.losses.empty())
                plot_curves(all.losses, "samples", "loss", file(pictures_ ? "losses.svg" : "losses.html"));
        });
        outputs_.done();
    }

private:
    void show_text(const std::string& text) const {
        if (csv_ != "-" && !json_)
            show(text);
    }

    void write_tables(const ScheduleComparison& so_far) const {
        write_file(file("accuracy.json"), lines_of(to_json(so_far)));
        write_file(file("table.txt"), to_text(so_far));
    }

    void open() {
        std::filesystem::create_directories(root_);
        if (!pictures_)
            print_note(
                "gnuplot not found: writing pages (.html) instead of pictures, and the traces; where gnuplot is "
                "installed: "
                "pipewright compare S.predicted.json S.measured.json --plot S.svg");
    }

    std::string file(const std::string& name) const { return (root_ / name).string(); }

    // Without gnuplot, writes pages, and traces that can be drawn where gnuplot is installed.
    void draw(const ScheduleRun& run) {
        plot_comparison(run.comparison, file(run.schedule + (pictures_ ? ".svg" : ".html")));
        if (pictures_)
            return;
        write_trace(run.comparison.predicted.trace, file(run.schedule + ".predicted.json"));
        write_trace(run.comparison.measured.trace, file(run.schedule + ".measured.json"));
    }

    std::filesystem::path root_;
    std::string csv_;
    bool json_, kept_, pictures_;
    bool has_begun_ = false, profile_is_written_ = false;
    Outputs outputs_;
};

}  // namespace

void compare_shown(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                   const SchedulesOutput& output) {
    ConfigArguments of_first = arguments;
    of_first.set.push_back("pipeline.schedule=" + schedules.front());
    const Config first = of_first.load();
    with_all_ranks(first, [&] {
        if (is_first_rank())  // which writes the folder, too
            check_outputs({{"-o", output.folder, Output::Kind::Folder}, csv_output(output.csv)},
                          inputs_of(arguments, first));
        ScheduleHooks hooks;
        ComparisonOutput shown(output);
        ProgressLine line;
        hooks.turns = output.turns;
        hooks.progress = [&](const std::string& state) { line.show(state); };
        hooks.measures = [&] { note_on_measuring(first); };
        hooks.begins = [&](const Job& job, int of_run, const Notices& notes, const Notices& warnings) {
            line.hide();
            print_notes(notes);
            print_warnings(warnings);
            shown.begin(job, of_run);
        };
        hooks.ended = [&](const ScheduleComparison& so_far) {
            line.hide();
            shown.end(so_far);
        };
        const ScheduleComparison all = compare_schedules(arguments, schedules, hooks);
        if (is_first_rank())
            shown.finish(all);
    });
}

}  // namespace pw
