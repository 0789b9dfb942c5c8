"use strict";
const canvas = document.getElementById("chart"), frame = document.getElementById("frame");
const box = document.getElementById("selection"), root = document.documentElement;
const fontSize = 12, lineHeight = 14;
const cells = data.curves.find(curve => curve.style === "cells");
const hasBars = data.curves.some(curve => curve.style === "bars");
const theme = name => getComputedStyle(root).getPropertyValue(name).trim();
const isDark = () => getComputedStyle(root).colorScheme === "dark";
const inTheme = colour => isDark() && data.dark[colour] || colour;
const fontFamily = () => theme("--font");
const number = value => +value.toPrecision(6);

function widthOf(text) {
    const draw = canvas.getContext("2d");
    draw.font = fontSize + "px " + fontFamily();
    return draw.measureText(text).width;
}

// Datasets

const radii = {dots: 2, points: 4.5, crosses: 5.5, rings: 9, "line and points": 4.5, steps: 4};
const markers = ["circle", "rect", "triangle", "rectRot", "star", "rectRounded"];
const dashes = [[], [8, 5], [2, 4]];

function datasetOf(curve, index) {
    const colour = inTheme(curve.colour);
    // The least order is on top.
    const isBar = curve.style === "bars" || curve.style === "cells";
    const shared = {label: curve.title, order: isBar ? 1000 + index : -index, borderColor: colour, backgroundColor: colour};
    if (curve.style === "cells")
        return {...shared, type: "bar", grouped: false, categoryPercentage: 1, barPercentage: 1, borderSkipped: false,
                borderColor: theme("--ground"), borderWidth: 1, backgroundColor: curve.shadeColours,
                data: curve.x.map((x, i) => ({x, y: [curve.y[i] - 0.5, curve.y[i] + 0.5]}))};
    const points = curve.x.map((x, i) => ({x, y: curve.y[i]}));
    if (curve.style === "bars")
        return {...shared, type: "bar", stack: "slot " + curve.slot, categoryPercentage: 0.8, barPercentage: 1, data: points};
    const isLine = ["line", "line and points", "steps"].includes(curve.style), ring = curve.style === "rings";
    const radius = cells && ring || curve.style === "line" && points.length > 1 ? 0 : radii[curve.style] || 4;
    return {...shared, type: "line", data: points, showLine: isLine, stepped: curve.style === "steps", borderWidth: 2,
            borderDash: curve.style === "line" ? dashes[index > 0 ? 1 : 0] : dashes[curve.dash],
            pointStyle: ring || !isLine && curve.style !== "points" ? (curve.style === "crosses" ? "crossRot" : "circle")
                                                                    : markers[curve.marker],
            pointRadius: radius, pointHoverRadius: radius + 2, pointHitRadius: 6, pointBorderWidth: ring || curve.style === "crosses" ? 2 : 1,
            pointBackgroundColor: ring ? "transparent" : colour, pointBorderColor: colour, spanGaps: false};
}

function axisOf(axis, name) {
    const marks = axis.ticks;  // else round numbers
    return {
        axis: name, type: axis.logarithmic ? "logarithmic" : "linear", min: axis.low, max: axis.high, reverse: axis.reverse, offset: false,
        title: {display: true, text: axis.label, color: theme("--text"), font: {size: fontSize}},
        grid: {color: axis.names ? "transparent" : theme("--grid"), borderColor: theme("--line")},
        ticks: {color: theme("--muted"), font: {size: fontSize}, autoSkip: true, maxRotation: 40, includeBounds: false,
                callback: value => axis.names ? axis.names[value] ?? "" : number(value)},
        afterBuildTicks: marks && (scale => {
            scale.ticks = marks.filter(value => value >= scale.min && value <= scale.max).map(value => ({value}));
        }),
    };
}

// What is under the mouse: the name of a point and all its numbers.
function linesOf(item) {
    const curve = data.curves[item.datasetIndex], i = item.dataIndex;
    if (curve.facts.length)
        return data.facts.map((head, k) => head + ": " + curve.facts[i][k]);
    return [data.x.label + ": " + number(curve.x[i]), data.y.label + ": " + number(curve.y[i])];
}
function nameOf(item) {
    const curve = data.curves[item.datasetIndex];
    return curve.names[item.dataIndex] || curve.title;
}

// Texts at points

const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function placesFor(x, y, width) {
    const places = [];
    for (const away of [0, 12, 24, 40, 60, 85])
        for (const top of [y - away - lineHeight - 4, y + away + 4])
            for (const left of [x + 7 + away / 2, x - 7 - away / 2 - width])
                places.push({box: [left, top, left + width, top + lineHeight], away});
    return places;
}

function drawTexts(chart) {
    const draw = chart.ctx, area = chart.chartArea, taken = [];
    const marks = data.curves.flatMap((curve, i) => curve.style === "bars" || curve.style === "cells" || !chart.isDatasetVisible(i) ? []
        : chart.getDatasetMeta(i).data.filter(point => !point.skip).map(({x, y}) => [x - 4, y - 4, x + 4, y + 4]));
    data.curves.forEach((curve, i) => curve.style === "steps" && chart.isDatasetVisible(i) && chart.getDatasetMeta(i).data.forEach(({x, y}, k, all) => {
        if (k > 0)
            marks.push([all[k - 1].x, all[k - 1].y - 2, x, all[k - 1].y + 2], [x - 2, Math.min(y, all[k - 1].y), x + 2, Math.max(y, all[k - 1].y)]);
    }));
    const mostRight = data.curves.some(isNamed) ? area.right + 4 : chart.width - 4;
    const levels = data.x.levels.map(({at}) => chart.scales.x.getPixelForValue(at)).map(x => [x - 2, area.top, x + 2, area.bottom]);
    draw.font = fontSize + "px " + fontFamily();
    draw.textBaseline = "top";
    const order = data.curves.map((curve, i) => i).sort((a, b) => (data.curves[b].style === "rings") - (data.curves[a].style === "rings"));
    for (const index of order) {
        const curve = data.curves[index];
        if (!chart.isDatasetVisible(index) || curve.style === "cells")
            continue;
        chart.getDatasetMeta(index).data.forEach((point, i) => {
            const text = curve.labels[i], {x, y} = point;
            if (!text || point.skip || x < area.left - 1 || x > area.right + 1 || y < area.top - 1 || y > area.bottom + 1)
                return;
            const width = draw.measureText(text).width;
            const places = curve.style === "bars" ? [{box: [x - width / 2, y - lineHeight - 3, x + width / 2, y - 3], away: 0}]
                                                  : placesFor(x, y, width);
            let best = null, least = Infinity;
            for (const place of places) {
                const inside = place.box[0] > area.left && place.box[2] < mostRight && place.box[1] > area.top - lineHeight && place.box[3] < area.bottom;
                if (!inside || taken.some(other => meets(other, place.box)) || levels.some(other => meets(other, place.box)))
                    continue;
                const cost = place.away + 25 * marks.filter(mark => meets(mark, place.box)).length;
                if (cost < least) {
                    least = cost;
                    best = place;
                }
            }
            if (!best || least > 150)  // a text would hide what it names
                return;
            taken.push(best.box);
            if (best.away > 0) {
                draw.strokeStyle = theme("--muted");
                draw.lineWidth = 0.7;
                draw.beginPath();
                draw.moveTo(x, y);
                draw.lineTo(best.box[0] > x ? best.box[0] - 2 : best.box[2] + 2, best.box[1] > y ? best.box[1] + 3 : best.box[3] - 3);
                draw.stroke();
            }
            draw.textAlign = "left";
            draw.fillStyle = theme("--text");
            draw.fillText(text, best.box[0], best.box[1] + 1);
        });
    }
}

// Names of lines at their ends, moved as far as they would touch.
function drawEnds(chart) {
    const draw = chart.ctx, {right, top, bottom} = chart.chartArea, ends = [];
    data.curves.forEach((curve, index) => {
        const points = chart.getDatasetMeta(index).data.filter(point => !point.skip && point.x <= right + 1);
        if (isNamed(curve) && points.length && chart.isDatasetVisible(index))
            ends.push({curve, point: points[points.length - 1], y: points[points.length - 1].y});
    });
    ends.sort((a, b) => a.y - b.y);
    let free = top;
    for (const end of ends) {
        end.y = Math.max(end.y, free);
        free = end.y + lineHeight;
    }
    free = bottom;
    for (const end of ends.reverse()) {
        end.y = Math.min(end.y, free);
        free = end.y - lineHeight;
    }
    draw.font = fontSize + "px " + fontFamily();
    draw.textBaseline = "middle";
    draw.textAlign = "left";
    for (const {curve, point, y} of ends) {
        draw.strokeStyle = inTheme(curve.colour);
        draw.lineWidth = 1;
        draw.beginPath();
        draw.moveTo(point.x + 5, point.y);
        draw.lineTo(right + 14, y);
        draw.stroke();
        draw.fillStyle = theme("--text");
        draw.fillText(curve.title, right + 18, y);
    }
}

function drawLevels(chart) {
    const draw = chart.ctx, {left, right, top, bottom} = chart.chartArea;
    draw.font = fontSize + "px " + fontFamily();
    draw.textBaseline = "middle";
    for (const name of ["x", "y"])
        for (const {at, name: text} of data[name].levels) {
            const scale = chart.scales[name], pixel = scale.getPixelForValue(at);
            if (at < scale.min || at > scale.max)
                continue;
            draw.strokeStyle = draw.fillStyle = theme("--warning");
            draw.setLineDash([6, 4]);
            draw.lineWidth = 1.4;
            draw.beginPath();
            draw.moveTo(...(name === "x" ? [pixel, top] : [left, pixel]));
            draw.lineTo(...(name === "x" ? [pixel, bottom] : [right, pixel]));
            draw.stroke();
            draw.setLineDash([]);
            const rightward = name === "x" && pixel < left + widthOf(text) + 10;
            draw.textAlign = rightward ? "left" : "right";
            draw.fillText(text, name === "x" ? pixel + (rightward ? 5 : -5) : right, name === "x" ? top + 8 : pixel - 9);
        }
}

// Numbers in the cells that are large enough, and the scale of their colours.
function drawCells(chart) {
    const draw = chart.ctx, {right, top, bottom} = chart.chartArea;
    draw.font = "11px " + fontFamily();
    draw.textBaseline = "middle";
    draw.textAlign = "center";
    chart.getDatasetMeta(data.curves.indexOf(cells)).data.forEach((cell, i) => {
        const {x, y, base, width} = cell.getProps(["x", "y", "base", "width"]);
        const text = String(+cells.shades[i].toPrecision(4));
        if (Math.abs(base - y) < 13 || draw.measureText(text).width > width - 4)
            return;
        draw.fillStyle = cells.shadeTexts[i];
        draw.fillText(text, x, (y + base) / 2);
    });
    const gradient = draw.createLinearGradient(0, bottom, 0, top);
    data.shade.colours.forEach((colour, i, all) => gradient.addColorStop(i / (all.length - 1), colour));
    draw.fillStyle = gradient;
    draw.fillRect(right + 16, top, 12, bottom - top);
    data.curves.filter(curve => curve.style === "rings").forEach(ring => ring.x.forEach((x, i) => {
        const cell = chart.getDatasetMeta(data.curves.indexOf(cells)).data[cells.x.findIndex((other, k) => other === x && cells.y[k] === ring.y[i])];
        const {x: middle, y, base, width} = cell.getProps(["x", "y", "base", "width"]);
        draw.strokeStyle = theme("--text");
        draw.lineWidth = 3;
        draw.strokeRect(middle - width / 2 + 1, Math.min(y, base) + 1, width - 2, Math.abs(base - y) - 2);
    }));
    draw.fillStyle = theme("--muted");
    draw.textAlign = "left";
    for (const {at, text} of data.shade.ticks)
        draw.fillText(text, right + 34, bottom + (top - bottom) * (at - data.shade.low) / (data.shade.high - data.shade.low));
    draw.textAlign = "right";
    draw.fillText(data.shade.label, chart.width - 4, top - 12);
}

const texts = {
    id: "texts",
    afterDatasetsDraw(chart) {
        chart.ctx.save();
        if (cells)
            drawCells(chart);
        drawLevels(chart);
        drawTexts(chart);
        drawEnds(chart);
        chart.ctx.restore();
    },
};

// The chart

// Lines are named at their ends if these names leave enough room, else in the legend.
let hasEnds = false;
const isNamed = curve => hasEnds && curve.end;
function roomForEnds() {
    const ends = data.curves.filter(curve => curve.end);
    const room = ends.length ? Math.max(...ends.map(curve => widthOf(curve.title))) + 26 : 0;
    hasEnds = room > 0 && room < 0.35 * frame.clientWidth;
    return hasEnds ? room : 8;
}

let chart = null, madeFor = 0;
function make() {
    madeFor = frame.clientWidth;
    if (chart)
        chart.destroy();
    Chart.defaults.font.family = fontFamily();
    chart = new Chart(canvas, {
        data: {datasets: data.curves.map(datasetOf)},
        plugins: [texts],
        options: {
            animation: false, maintainAspectRatio: false,
            layout: {padding: {top: cells ? 22 : 8, right: cells ? 90 : roomForEnds()}},
            scales: {x: axisOf(data.x, "x"), y: axisOf(data.y, "y")},
            interaction: {mode: "nearest", intersect: false},
            plugins: {
                legend: {position: "bottom", align: "start",
                         labels: {color: theme("--text"), usePointStyle: true, boxHeight: 7, padding: 14, sort: (a, b) => a.datasetIndex - b.datasetIndex,
                                  filter: item => item.text && !isNamed(data.curves[item.datasetIndex]) && data.curves[item.datasetIndex].style !== "cells"}},
                tooltip: {backgroundColor: theme("--raised"), titleColor: theme("--text"), bodyColor: theme("--text"),
                          borderColor: theme("--line"), borderWidth: 1, padding: 10, displayColors: false,
                          filter: (item, i) => i === 0, callbacks: {title: items => items.map(nameOf), label: linesOf}},
            },
        },
    });
}

// A part of the chart, selected with the mouse

let from = null;
function showAll() {
    for (const name of ["x", "y"]) {
        chart.options.scales[name].min = data[name].low;
        chart.options.scales[name].max = data[name].high;
    }
    chart.update();
}

function place(event) {
    const area = chart.chartArea, bounds = canvas.getBoundingClientRect();
    return {x: Math.min(Math.max(event.clientX - bounds.left, area.left), area.right),
            y: Math.min(Math.max(event.clientY - bounds.top, area.top), area.bottom)};
}

function showPart(a, b) {
    const {x, y} = chart.scales, options = chart.options.scales;
    const along = [a.x, b.x].map(pixel => x.getValueForPixel(pixel)).sort((p, q) => p - q);
    const up = [a.y, b.y].map(pixel => y.getValueForPixel(pixel)).sort((p, q) => p - q);
    if (Math.abs(a.x - b.x) > 8)
        [options.x.min, options.x.max] = data.x.names ? [Math.floor(along[0] + 0.5) - 0.5, Math.floor(along[1] + 0.5) + 0.5] : along;
    if (!hasBars && Math.abs(a.y - b.y) > 24)
        [options.y.min, options.y.max] = data.y.names ? [Math.floor(up[0] + 0.5) - 0.5, Math.floor(up[1] + 0.5) + 0.5] : up;
    chart.update();
}

canvas.addEventListener("pointerdown", event => {
    from = event.button === 0 ? place(event) : null;
    if (from)
        canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", event => {
    if (!from)
        return;
    const to = place(event);
    Object.assign(box.style, {display: "block", left: Math.min(from.x, to.x) + "px", top: Math.min(from.y, to.y) + "px",
                              width: Math.abs(to.x - from.x) + "px", height: Math.abs(to.y - from.y) + "px"});
});
canvas.addEventListener("pointerup", event => {
    const begin = from, to = place(event);
    from = null;
    box.style.display = "none";
    if (begin && Math.hypot(to.x - begin.x, to.y - begin.y) > 10)
        showPart(begin, to);
});
canvas.addEventListener("pointercancel", () => { from = null; box.style.display = "none"; });
canvas.addEventListener("dblclick", showAll);
addEventListener("resize", () => { if (frame.clientWidth !== madeFor) make(); });
addEventListener("keydown", event => { if (event.key === "Escape") showAll(); });

// The keyboard: arrows go to the next point along an axis

const isStop = dataset => dataset.type === "bar" || dataset.pointRadius > 0;
const stops = data.curves.flatMap((curve, datasetIndex) => isStop(datasetOf(curve, datasetIndex))
    ? curve.x.map((x, index) => ({datasetIndex, index, x, y: curve.y[index]})) : []);
const alongAxis = {
    x: stops.slice().sort((a, b) => a.x - b.x || a.y - b.y || a.datasetIndex - b.datasetIndex),
    y: stops.slice().sort((a, b) => a.y - b.y || a.x - b.x || a.datasetIndex - b.datasetIndex),
};
const arrows = {ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1]};
const live = document.getElementById("live");
let stop = null;
canvas.addEventListener("keydown", event => {
    if (!arrows[event.key] || event.ctrlKey || event.altKey || event.metaKey || !stops.length)
        return;
    event.preventDefault();
    const [axis, by] = arrows[event.key], order = alongAxis[axis], step = data[axis].reverse ? -by : by;
    const next = stop ? order.indexOf(stop) + step : step > 0 ? 0 : order.length - 1;
    stop = order[Math.min(Math.max(next, 0), order.length - 1)];
    const {datasetIndex, index} = stop, item = {datasetIndex, dataIndex: index};
    const {x, y} = chart.getDatasetMeta(datasetIndex).data[index].getProps(["x", "y"], true);
    chart.setActiveElements([{datasetIndex, index}]);
    chart.tooltip.setActiveElements([{datasetIndex, index}], {x, y});
    chart.update();
    live.textContent = [nameOf(item), ...linesOf(item)].join("; ");
});
document.getElementById("all").onclick = showAll;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", make);
if (cells)
    frame.style.height = Math.max(320, Math.min(1600, data.y.names.length * 26 + 130)) + "px";
make();
root.dataset.ready = "yes";
