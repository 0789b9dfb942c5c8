// One page with everything inside: data, drawing on a canvas, zoom, pan and a card under the pointer.
#include "viz/html.h"

#include "viz/formats.h"
#include "viz/html_script.h"
#include "viz/picture.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace pw {

namespace {

using nlohmann::ordered_json;

// The page's data of a box: a list of these instead of an object, since a page holds many boxes.
struct Field {
    std::string_view name;
    std::int64_t (*of)(const Box& box);
};
constexpr Field kFields[] = {
    {"op", [](const Box& box) -> std::int64_t { return static_cast<int>(box.event->task.op); }},
    {"start", [](const Box& box) -> std::int64_t { return box.start; }},
    {"end", [](const Box& box) -> std::int64_t { return box.end; }},
    {"stage", [](const Box& box) -> std::int64_t { return box.event->task.stage; }},
    {"microbatch", [](const Box& box) -> std::int64_t { return box.event->task.microbatch; }},
    {"slice", [](const Box& box) -> std::int64_t { return box.event->task.slice; }},
    {"bytes", [](const Box& box) -> std::int64_t { return box.event->bytes; }},
    {"version", [](const Box& box) -> std::int64_t { return box.event->version; }},
    {"peer", [](const Box& box) -> std::int64_t { return box.event->task.peer; }},
    {"chunk", [](const Box& box) -> std::int64_t { return box.chunk; }},
    {"lane", [](const Box& box) -> std::int64_t { return box.lane; }},
    {"step", [](const Box& box) -> std::int64_t { return box.event->step; }},
    {"ahead", [](const Box& box) -> std::int64_t { return box.event->ahead; }},
};

ordered_json json_of(const Box& box) {
    ordered_json values = ordered_json::array();
    for (const Field& field : kFields)
        values.push_back(field.of(box));
    return values;
}

ordered_json field_names() {
    ordered_json names = ordered_json::array();
    for (const Field& field : kFields)
        names.push_back(field.name);
    return names;
}

// By the number of the operation: the page has no other table of operations.
ordered_json json_of_ops(int chunks) {
    ordered_json ops = ordered_json::array();
    for (const OpFacts& facts : kOpFacts) {
        const Op op = facts.op;
        ordered_json shades = ordered_json::array(), texts = ordered_json::array();
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const Colour colour = colour_of(op, chunk, chunks);
            shades.push_back(hex(colour));
            texts.push_back(hex(text_colour_on(colour)));
        }
        ops.push_back({{"letters", facts.letters},
                       {"words", facts.words},
                       {"colours", shades},
                       {"texts", texts},
                       {"numbered", is_compute(op)},
                       {"hatched", op == Op::Recompute},
                       {"transfer", is_transfer(op)},
                       {"receive", is_recv(op)}});
    }
    return ops;
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
    ordered_json panels = ordered_json::array(), legend = ordered_json::array();
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
    for (const Op op : legend_of(picture))
        legend.push_back({{"op", static_cast<int>(op)}, {"words", words_in_legend(op)}});
    ordered_json curves = ordered_json::array();
    for (std::size_t device = 0; device < devices; ++device)
        curves.push_back(hex(curve_colour(static_cast<int>(device), static_cast<int>(devices))));
    return {{"length", picture.length}, {"unit", {picture.time.name, picture.time.size}},
            {"memory", picture.memory}, {"bytes", {picture.bytes.name, picture.bytes.size}},
            {"fields", field_names()},  {"ops", json_of_ops(chunks)},
            {"legend", legend},         {"curves", curves},
            {"panels", panels}};
}

std::string tables_of(const std::vector<Panel>& panels) {
    std::string text;
    for (const Panel& panel : panels) {
        for (const std::vector<std::string>& row : panel.table) {
            const char* cell = &row == &panel.table.front() ? "th" : "td";
            text += &row == &panel.table.front() ? "<table>\n<tr>" : "<tr>";
            for (const std::string& value : row)
                text += fmt::format("<{0}>{1}</{0}>", cell, html_escaped(value));
            text += "</tr>\n";
        }
        text += panel.table.empty() ? "" : "</table>\n";
    }
    return text;
}

}  // namespace

std::string html_escaped(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '&':
                escaped += "&amp;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

void timeline_page(const std::vector<Panel>& panels, const std::string& file) {
    const Picture picture = picture_of(panels);
    std::string data = json_of(picture).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
        data.replace(at, 1, "\\u003c");  // a title must not end the script
    write_file(
        file,
        fmt::format(
            "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{}</title>\n"
            "<style>{}</style></head>\n<body>\n{}{}<script>\nconst picture = {};\n{}</script>\n</body>\n</html>\n",
            html_escaped(picture.timelines[0].title), kPageStyle, kPageBody, tables_of(panels), data, kPageScript));
}

}  // namespace pw
