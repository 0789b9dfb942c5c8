// One page with everything inside: data, drawing on a canvas, zoom, pan and a card under the pointer.
#include "viz/files.h"
#include "viz/html_script.h"
#include "viz/render.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace pw {

namespace {

using nlohmann::ordered_json;

// Lists instead of objects: a page holds many boxes. The script names the places.
ordered_json json_of(const Box& box) {
    const TraceEvent& event = *box.event;
    const Task& task = event.task;
    return {static_cast<int>(task.op),
            box.start,
            box.end,
            task.stage,
            task.microbatch,
            task.slice,
            event.bytes,
            event.version,
            task.peer,
            box.chunk,
            box.lane,
            event.step,
            event.ahead};
}

ordered_json json_of(const Row& row) {
    ordered_json tasks = ordered_json::array(), transfers = ordered_json::array(), memory = ordered_json::array();
    for (const Box& box : row.tasks)
        tasks.push_back(json_of(box));
    for (const Box& box : row.transfers)
        transfers.push_back(json_of(box));
    for (const auto& [time, bytes] : row.memory)
        memory.push_back({time, bytes});
    return {{"label", row.label}, {"tasks", tasks}, {"transfers", transfers}, {"memory", memory}};
}

ordered_json json_of(const Picture& picture) {
    ordered_json panels = ordered_json::array(), ops = ordered_json::array(), legend = ordered_json::array();
    int chunks = 1;
    std::size_t devices = 1;
    for (const Timeline& timeline : picture.timelines) {
        chunks = std::max(chunks, timeline.chunks);
        devices = std::max(devices, timeline.rows.size());
        ordered_json rows = ordered_json::array();
        for (const Row& row : timeline.rows)
            rows.push_back(json_of(row));
        panels.push_back({{"title", timeline.title},
                          {"name", timeline.name},
                          {"length", timeline.length},
                          {"lanes", timeline.lanes},
                          {"versions", timeline.has_versions},
                          {"dashed", timeline.dashed},
                          {"rows", rows}});
    }
    for (int op = 0; op <= static_cast<int>(Op::RecvBackward); ++op) {
        ordered_json shades = ordered_json::array(), texts = ordered_json::array();
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const Colour colour = colour_of(static_cast<Op>(op), chunk, chunks);
            shades.push_back(hex(colour));
            texts.push_back(hex(text_colour_on(colour)));
        }
        ops.push_back({{"letters", letters_of(static_cast<Op>(op))},
                       {"words", words_of(static_cast<Op>(op))},
                       {"colours", shades},
                       {"texts", texts}});
    }
    for (const Op op : legend_of(picture))
        legend.push_back(static_cast<int>(op));
    ordered_json curves = ordered_json::array();
    for (std::size_t device = 0; device < devices; ++device)
        curves.push_back(hex(curve_colour(static_cast<int>(device), static_cast<int>(devices))));
    return {{"length", picture.length},
            {"unit", {picture.time.name, picture.time.size}},
            {"memory", picture.memory},
            {"bytes", {picture.bytes.name, picture.bytes.size}},
            {"ops", ops},
            {"legend", legend},
            {"curves", curves},
            {"panels", panels}};
}

}  // namespace

std::string timeline_page(const Picture& picture) {
    std::string data = json_of(picture).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
        data.replace(at, 1, "\\u003c");  // a title must not end the script
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{}</title>\n"
        "<style>{}</style></head>\n<body>\n{}<script>\nconst picture = {};\n{}</script>\n</body>\n</html>\n",
        html_escaped(picture.timelines[0].title), kPageStyle, kPageBody, data, kPageScript);
}

}  // namespace pw
