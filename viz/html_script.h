// The fixed parts of the page that html.cpp writes.
#pragma once

#include <string_view>

namespace pw {

inline constexpr std::string_view kPageStyle = R"css(
body { margin: 0; background: #fff; color: #1f2328; font: 13px sans-serif; }
header { display: flex; flex-wrap: wrap; gap: 6px 16px; align-items: center; padding: 10px 16px; }
header span i { display: inline-block; width: 14px; height: 12px; margin-right: 6px; vertical-align: -1px; }
header span.transfer i { height: 5px; vertical-align: 2px; }
nav { margin-left: auto; color: #57606a; }
button { font: inherit; min-width: 28px; padding: 2px 8px; border: 1px solid #d0d7de; border-radius: 5px;
         background: #f6f8fa; color: #1f2328; cursor: pointer; }
canvas { display: block; cursor: grab; outline: none; }
canvas.moving { cursor: grabbing; }
#card { position: fixed; display: none; pointer-events: none; background: #fff; border: 1px solid #d0d7de;
        border-radius: 6px; box-shadow: 0 3px 12px #0002; padding: 8px 12px; z-index: 1; }
#card b { display: block; margin-bottom: 4px; }
#card td { padding: 0 14px 0 0; font-variant-numeric: tabular-nums; }
#card td:first-child { color: #57606a; }
body > table { margin: 0 26px 16px; border-collapse: collapse; }
body > table :is(td, th) { padding: 2px 16px 2px 0; text-align: right; white-space: pre; font-variant-numeric: tabular-nums; }
body > table :is(td, th):first-child { text-align: left; }
)css";

inline constexpr std::string_view kPageBody = R"html(<header id="legend"></header>
<canvas id="view" tabindex="0" aria-label="timeline"></canvas>
<div id="card"></div>
)html";

inline constexpr std::string_view kPageScript = R"js("use strict";
// The index of each fact in the list that a box is.
const {op: OP, start: START, end: END, stage: STAGE, microbatch: MICROBATCH, slice: SLICE, bytes: BYTES,
       version: VERSION, peer: PEER, chunk: CHUNK, lane: LANE, step: STEP, ahead: AHEAD} =
    Object.fromEntries(picture.fields.map((name, position) => [name, position]));
const opOf = box => picture.ops[box[OP]];
const canvas = document.getElementById("view"), draw = canvas.getContext("2d"), card = document.getElementById("card");
const [unit, unitSize] = picture.unit, [bytesUnit, bytesSize] = picture.bytes;
const right = 24, titleHeight = 28, lane = 6, laneGap = 2, memoryHeight = 150, axisHeight = 42;
const taskHeight = Math.max(picture.panels.some(p => p.versions) ? 34 : 26, 18 * Math.max(...picture.panels.map(p => p.lanes)));
const hasTransfers = picture.panels.some(p => p.rows.some(r => r.transfers.length));
const rowHeight = taskHeight + (hasTransfers ? 2 * (lane + laneGap) : 0) + 9;
draw.font = "12px sans-serif";
const left = 26 + Math.max(70, ...picture.panels.flatMap(p => p.rows.map(r => draw.measureText(r.label).width)));

let from = 0, to = picture.length * 1.0, width = 0, hovered = null, grabbed = null;
let y = 0;
for (const panel of picture.panels) {
    panel.top = y;
    panel.rows.forEach((row, i) => { row.top = y + titleHeight + i * rowHeight; });
    y += titleHeight + panel.rows.length * rowHeight;
}
const memoryTop = y + titleHeight, bottom = picture.memory ? memoryTop + memoryHeight : y;
const height = bottom + axisHeight;

const x = time => left + (time - from) / (to - from) * (width - left - right);
const timeAt = pixel => from + (pixel - left) / (width - left - right) * (to - from);
const inUnit = time => (time / unitSize).toLocaleString("en", {maximumFractionDigits: 6, useGrouping: false}) + " " + unit;
const memoryY = bytes => bottom - bytes / (picture.memory * 1.08) * memoryHeight;

function place(panel, row, box) {
    if (opOf(box).transfer)
        return [row.top + taskHeight + laneGap + (opOf(box).receive ? lane + laneGap : 0), lane];
    return [row.top + taskHeight / panel.lanes * box[LANE], taskHeight / panel.lanes];
}

function nice(length) {
    const raw = length / 8, decade = Math.pow(10, Math.floor(Math.log10(raw)));
    return decade * ([1, 2, 5, 10].find(f => f * decade >= raw) || 10);
}

function grid() {
    const step = nice((to - from) / unitSize) * unitSize;
    draw.font = "12px sans-serif";
    draw.textAlign = "center";
    for (let i = Math.ceil(from / step); i * step <= to; ++i) {
        draw.fillStyle = "#e3e6ea";
        draw.fillRect(x(i * step), titleHeight, 1, bottom - titleHeight);
        draw.fillStyle = "#57606a";
        draw.fillText(+(i * step / unitSize).toPrecision(9), x(i * step), bottom + 14);
    }
    draw.fillStyle = "#1f2328";
    draw.fillText("time in " + unit, (left + width - right) / 2, bottom + 32);
}

function hatch(x0, y0, w, h) {
    draw.save();
    draw.beginPath();
    draw.rect(x0, y0, w, h);
    draw.clip();
    draw.strokeStyle = "#2f6db5";
    draw.lineWidth = 1;
    draw.beginPath();
    for (let i = Math.floor((x0 - h) / 6) * 6; i < x0 + w; i += 6) {
        draw.moveTo(i, y0 + h);
        draw.lineTo(i + h, y0);
    }
    draw.stroke();
    draw.restore();
}

function versionLabel(box) {
    return "v" + box[VERSION] + (box[AHEAD] ? "+" + box[AHEAD] : "");
}

function drawBox(panel, row, box) {
    const x0 = Math.max(x(box[START]), left - 1), x1 = Math.min(x(box[END]), width - right + 1);
    if (x(box[END]) < left || x0 > width - right)
        return;
    const [y0, h] = place(panel, row, box), w = Math.max(x1 - x0, 0.5), op = opOf(box);
    const seam = w > 4 && !op.transfer ? 1 : 0;
    draw.fillStyle = op.colours[box[CHUNK]] || op.colours[0];
    draw.fillRect(x0, y0, w - seam, h);
    if (op.hatched)
        hatch(x0, y0, w - seam, h);
    if (hovered && hovered.box[MICROBATCH] === box[MICROBATCH] && hovered.panel === panel && hovered.box[STEP] === box[STEP]) {
        draw.strokeStyle = "#1f2328";
        draw.lineWidth = hovered.box === box ? 2 : 1;
        draw.strokeRect(x0 + 0.5, y0 + 0.5, Math.max(w - seam - 1, 0.5), h - 1);
    }
    if (op.transfer)
        return;
    draw.fillStyle = op.texts[box[CHUNK]] || op.texts[0];
    draw.textAlign = "center";
    const middle = (x0 + x1 - seam) / 2, versions = panel.versions && panel.lanes === 1 && box[VERSION] >= 0;
    const text = op.numbered ? String(box[MICROBATCH]) : "", version = versionLabel(box);
    if (text && w > text.length * 6.4 + 2) {
        draw.font = "11px sans-serif";
        draw.fillText(text, middle, y0 + h / 2 - (versions ? 6 : 0));
    }
    if (versions && w > version.length * 5 + 2) {
        draw.font = "8px sans-serif";
        draw.fillText(version, middle, y0 + h / 2 + (text ? 9 : 0));
    }
}

function memoryLegend(at, line) {
    const item = (text, colour, dashed) => {
        draw.strokeStyle = colour;
        draw.lineWidth = 2;
        draw.setLineDash(dashed ? [6, 4] : []);
        draw.beginPath();
        draw.moveTo(at, line);
        draw.lineTo(at + 22, line);
        draw.stroke();
        draw.setLineDash([]);
        draw.fillText(text, at + 28, line);
        at += 44 + draw.measureText(text).width;
    };
    draw.font = "12px sans-serif";
    const every = Math.ceil(picture.curves.length / 16);
    picture.curves.forEach((colour, i) => i % every || item((i ? "" : "device ") + i, colour, false));
    at += 16;
    if (picture.panels.length > 1)
        picture.panels.forEach(panel => item(panel.name, "#57606a", panel.dashed));
}

function drawMemory() {
    draw.textAlign = "right";
    draw.font = "12px sans-serif";
    const step = nice(picture.memory / bytesSize * 1.6) * bytesSize;
    for (let i = 0; i * step <= picture.memory * 1.08; ++i) {
        draw.fillStyle = "#e3e6ea";
        draw.fillRect(left, memoryY(i * step), width - left - right, 1);
        draw.fillStyle = "#57606a";
        draw.fillText(+(i * step / bytesSize).toPrecision(4) + " " + bytesUnit, left - 8, memoryY(i * step));
    }
    draw.textAlign = "left";
    draw.fillStyle = "#1f2328";
    draw.font = "bold 13px sans-serif";
    draw.fillText("Memory", left, memoryTop - titleHeight / 2);
    memoryLegend(left + 76, memoryTop - titleHeight / 2);
    clip(() => picture.panels.forEach(panel => panel.rows.forEach((row, device) => {
        if (!row.memory.length)
            return;
        draw.strokeStyle = picture.curves[device];
        draw.lineWidth = 1.6;
        draw.setLineDash(panel.dashed ? [6, 4] : []);
        draw.beginPath();
        draw.moveTo(x(row.memory[0][0]), memoryY(row.memory[0][1]));
        row.memory.forEach(([time, bytes], i) => {
            draw.lineTo(x(time), memoryY(row.memory[Math.max(i - 1, 0)][1]));
            draw.lineTo(x(time), memoryY(bytes));
        });
        draw.lineTo(x(panel.length), memoryY(row.memory[row.memory.length - 1][1]));
        draw.stroke();
        draw.setLineDash([]);
    })));
}

function clip(body) {
    draw.save();
    draw.beginPath();
    draw.rect(left, 0, width - left - right, bottom);
    draw.clip();
    body();
    draw.restore();
}

function render() {
    draw.clearRect(0, 0, width, height);
    draw.textBaseline = "middle";
    grid();
    for (const panel of picture.panels) {
        draw.textAlign = "left";
        draw.fillStyle = "#1f2328";
        draw.font = "bold 13px sans-serif";
        draw.fillText(panel.title, left, panel.top + titleHeight / 2);
        for (const row of panel.rows) {
            draw.font = "12px sans-serif";
            draw.textAlign = "right";
            draw.fillStyle = "#1f2328";
            draw.fillText(row.label, left - 10, row.top + taskHeight / 2);
            clip(() => {
                draw.fillStyle = "#f1f3f5";
                if (hasTransfers)
                    for (const i of [0, 1])
                        draw.fillRect(x(0), row.top + taskHeight + laneGap + i * (lane + laneGap), x(panel.length) - x(0), lane);
                row.tasks.forEach(box => drawBox(panel, row, box));
                row.transfers.forEach(box => drawBox(panel, row, box));
            });
        }
    }
    if (picture.memory)
        drawMemory();
}

function find(px, py) {
    if (px < left || px > width - right)
        return null;
    const near = (to - from) / width;  // a pixel, for boxes thinner than that
    for (const panel of picture.panels)
        for (const [device, row] of panel.rows.entries())
            for (const box of py >= row.top && py < row.top + rowHeight ? row.transfers.concat(row.tasks) : []) {
                const [y0, h] = place(panel, row, box), time = timeAt(px);
                if (py >= y0 && py < y0 + h && time >= box[START] - near && time <= box[END] + near)
                    return {panel, device, row, box};
            }
    return null;
}

function bytesText(bytes) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; bytes >= 1024 && i < names.length - 1; ++i)
        bytes /= 1024;
    return +bytes.toPrecision(4) + " " + names[i];
}

function memoryRows(px, py) {
    if (!picture.memory || py < memoryTop || py > bottom || px < left || px > width - right)
        return [];
    return picture.panels.flatMap(panel => panel.rows.map(row => {
        let held = null;
        for (const [time, bytes] of row.memory)
            if (time <= timeAt(px))
                held = bytes;
        const name = (picture.panels.length > 1 ? panel.name + ", " : "") + row.label;
        return held === null || timeAt(px) > panel.length ? null : [name, bytesText(held)];
    })).filter(Boolean);
}

function boxRows({box}) {
    const rows = [["stage", box[STAGE]], ["micro-batch", box[MICROBATCH]], ["start", inUnit(box[START])],
                  ["end", inUnit(box[END])], ["duration", inUnit(box[END] - box[START])]];
    if (opOf(box).transfer)
        rows.push([opOf(box).receive ? "from stage" : "to stage", box[PEER]], ["bytes", bytesText(box[BYTES])]);
    if (box[SLICE])
        rows.push(["slice", box[SLICE]]);
    if (box[VERSION] >= 0)
        rows.push(["weight version", box[VERSION]], ...(box[AHEAD] ? [["predicted ahead", box[AHEAD]]] : []));
    return rows;
}

function showCard(px, py, title, rows) {
    card.style.display = rows.length ? "block" : "none";
    card.replaceChildren();
    card.appendChild(document.createElement("b")).textContent = title;
    const table = card.appendChild(document.createElement("table"));
    for (const row of rows) {
        const line = table.insertRow();
        row.forEach(text => { line.insertCell().textContent = text; });
    }
    card.style.left = Math.min(px + 16, innerWidth - card.offsetWidth - 8) + "px";
    card.style.top = Math.min(py + 16, innerHeight - card.offsetHeight - 8) + "px";
}

function show(begin, end) {
    const length = Math.min(Math.max(end - begin, 10), picture.length);
    from = Math.min(Math.max(begin, 0), picture.length - length);
    to = from + length;
    render();
}

function zoom(factor, pixel = (left + width - right) / 2) {
    const at = timeAt(pixel);
    show(at - (at - from) * factor, at + (to - at) * factor);
}

function resize() {
    canvas.style.height = height + "px";  // first: a vertical scroll bar takes some of the width
    width = Math.max(document.documentElement.clientWidth, 480);
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    canvas.style.width = width + "px";
    draw.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    render();
}

function button(nav, text, title, action) {
    const made = nav.appendChild(document.createElement("button"));
    made.textContent = text;
    made.title = title;
    made.onclick = action;
    nav.append(" ");
}

function swatch(parent, words, colour, kind = "") {
    const item = parent.appendChild(document.createElement("span"));
    item.className = kind;
    item.appendChild(document.createElement("i")).style.background = colour;
    item.append(words);
}

const legend = document.getElementById("legend");
for (const {op, words} of picture.legend)
    swatch(legend, words, picture.ops[op].colours[0], picture.ops[op].transfer ? "transfer" : "");
if (hasTransfers)
    legend.appendChild(document.createElement("span")).textContent = "(sends above, receives below)";
const nav = legend.appendChild(document.createElement("nav"));
nav.append("wheel or + − zooms, drag or arrows move ");
button(nav, "+", "zoom in", () => zoom(0.7));
button(nav, "−", "zoom out", () => zoom(1 / 0.7));
button(nav, "all", "show all", () => show(0, picture.length));

canvas.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(Math.pow(1.0015, event.deltaY), event.offsetX);
}, {passive: false});
canvas.addEventListener("pointerdown", event => {
    grabbed = {at: event.offsetX, from, to};
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("moving");
});
canvas.addEventListener("pointerup", () => { grabbed = null; canvas.classList.remove("moving"); });
canvas.addEventListener("pointercancel", () => { grabbed = null; canvas.classList.remove("moving"); });
canvas.addEventListener("pointermove", event => {
    if (grabbed) {
        const shift = (grabbed.at - event.offsetX) / (width - left - right) * (grabbed.to - grabbed.from);
        show(grabbed.from + shift, grabbed.to + shift);
        return;
    }
    const found = find(event.offsetX, event.offsetY);
    const memory = found ? [] : memoryRows(event.offsetX, event.offsetY);
    if ((found && found.box) !== (hovered && hovered.box)) {
        hovered = found;
        render();
    }
    if (found)
        showCard(event.clientX, event.clientY, opOf(found.box).words + " on device " + found.device, boxRows(found));
    else
        showCard(event.clientX, event.clientY, "memory at " + inUnit(Math.round(timeAt(event.offsetX))), memory);
});
canvas.addEventListener("pointerleave", () => { hovered = null; card.style.display = "none"; render(); });
canvas.addEventListener("dblclick", () => show(0, picture.length));
canvas.addEventListener("keydown", event => {
    const move = (to - from) / 8;
    const actions = {"+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": () => show(0, picture.length),
                     ArrowLeft: () => show(from - move, to - move), ArrowRight: () => show(from + move, to + move)};
    if (actions[event.key]) {
        event.preventDefault();
        actions[event.key]();
    }
});
addEventListener("resize", resize);
resize();
)js";

}  // namespace pw
