// calibrate: sets the factors of a config from measured steps.
#include "cli/command.h"
#include "cli/outputs.h"
#include "cli/streams.h"
#include "report/calibration.h"
#include "workloads/text/files.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace pw {

namespace {

struct CalibrateArguments {
    ConfigArguments config;
    std::vector<std::string> runs;
    std::string table, output;
    bool json = false;
};

void calibrate_config(CalibrateArguments arguments) {
    arguments.config.read_pipe();
    const Config config = arguments.config.load();
    std::vector<MeasuredRun> runs;
    std::vector<std::string> inputs = inputs_of(arguments.config, config);
    for (const std::string& text : arguments.runs) {
        runs.push_back(read_run(text, "--run"));
        if (!runs.back().path.empty())
            inputs.push_back(runs.back().path);
    }
    if (!arguments.table.empty()) {
        std::ranges::move(read_runs(arguments.table), std::back_inserter(runs));
        inputs.push_back(arguments.table);
    }
    check_config_target(arguments.output);
    check_outputs({{"-o", arguments.output}}, inputs);
    CalibrationResult result;
    {
        ProgressLine line;
        result = fit_calibration(arguments.config, runs, {[&](const std::string& state) { line.show(state); }});
    }
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.json)
            print_json(to_json(result));
        else
            print_result("{}", to_text(result));
    });
    outputs.attempt([&] {
        if (!arguments.output.empty())
            write_file(arguments.output, calibrated_yaml(result, arguments.config, arguments.output));
    });
    print_notes(result.notes);
    outputs.done();
}

}  // namespace

Action add_calibrate(CLI::App& command) {
    auto arguments = std::make_shared<CalibrateArguments>();
    add_config(command, arguments->config);
    command
        .add_option("--run", arguments->runs,
                    "a measured step, a time or a rate, of this plan: of overrides as in KEY=VALUE,KEY=VALUE=STEP, of "
                    "another config as in FILE=STEP, or, without a plan, of CONFIG; may be repeated")
        ->type_name("PLAN=STEP")
        ->allow_extra_args(false);
    command
        .add_option("--runs", arguments->table,
                    "measured steps in a table (CSV), a run in each line: columns are keys of the config and step")
        ->type_name("FILE");
    command.add_flag("--json", arguments->json, "print one JSON object");
    command.add_option("-o,--output", arguments->output, "write the config with the factors")->type_name("FILE.yaml");
    return [arguments] { calibrate_config(*arguments); };
}

}  // namespace pw
