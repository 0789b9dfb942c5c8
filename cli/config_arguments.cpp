#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "workloads/text/files.h"

#include <CLI/CLI.hpp>

#include <utility>

namespace pw {

void add_set(CLI::App& command, std::vector<std::string>& set) {
    command.add_option("--set", set, "override a key of the config: --set pipeline.micro_batches=8; may be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
}

void ConfigArguments::read_pipe() {
    if (path.starts_with("/dev/"))
        text = read_text(path, "name a YAML file that can be read");
}

Config ConfigArguments::load() const {
    if (!text)
        require_config(path);
    return load_with({});
}

void add_config(CLI::App& command, ConfigArguments& arguments) {
    command.add_option("CONFIG", arguments.path, "a config (YAML); - for standard input")
        ->required()
        ->type_name("")
        ->transform([](std::string path) { return path == "-" ? std::string("/dev/stdin") : path; });
    add_set(command, arguments.set);
}

Job job_of(Config config) {
    Notices notices;
    Job job = make_job(std::move(config), notices);
    print_notes(notices);
    return job;
}

}  // namespace pw
