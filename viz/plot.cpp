#include "viz/plot.h"

#include "schedules/trace/trace_json.h"
#include "viz/files.h"
#include "viz/picture.h"
#include "viz/render.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <filesystem>

namespace pw {

void plot(const std::vector<Panel>& panels, const std::string& file) {
    const Format format = format_of(file);
    if (format == Format::Json) {
        if (panels.size() != 1 || !panels[0].trace)
            fail("cannot plot {} traces to '{}': a .json file holds one trace", panels.size(), file);
        write_trace(*panels[0].trace, file);
        return;
    }
    const Picture picture = picture_of(panels);
    if (format == Format::Html) {
        write_file(file, timeline_page(picture));
    } else if (format == Format::Text) {
        write_file(file, timeline_text(picture));
    } else {
        const GnuplotFiles files = timeline_script(picture, file);
        draw_by_gnuplot(file, files.script, files.data);
    }
}

void check_plot_file(const std::string& file) {
    if (file.empty())
        return;
    (void)format_of(file);
    check_target_file(file);
}

void check_timeline(const std::string& file, int devices) {
    check_plot_file(file);
    if (!file.empty() && format_of(file) != Format::Json)
        check_height(file, devices);
}

std::string text_of(const std::vector<Panel>& panels) { return timeline_text(picture_of(panels)); }

}  // namespace pw
