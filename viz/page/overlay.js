// What is drawn over the rows and changes with the pointer: outlines, arrows of messages, the critical path.
const over = byId("over");

function outline(draw, place, width, colour) {
  const left = Math.max(place.x, view.left - 4), right = Math.min(place.x + place.w, view.width - view.right + 4);
  if (right < left || place.y > view.stage || place.y + place.h < 0)
    return;
  draw.strokeStyle = colour;
  draw.lineWidth = width;
  draw.strokeRect(left + width / 2, place.y + width / 2, Math.max(right - left - width, 0.5), place.h - width);
}

// The boxes of a micro-batch whose rows are on the canvas.
function outlineMicrobatch(draw, {panel, box}) {
  const {boxes} = panel, step = boxes.step[box], seen = [];
  for (const other of boxesOfMicrobatch(panel, boxes.microbatch[box])) {
    if (boxes.step[other] !== step || boxes.end[other] < view.from || boxes.start[other] > view.to)
      continue;
    const place = placeOf(panel, other);
    if (place && place.y < view.stage && place.y + place.h > 0)
      seen.push(place);
  }
  for (const place of seen)
    outline(draw, place, 1, colours.text);
}

function arrow(draw, from, to, colour) {
  const x0 = from.x + from.w, y0 = from.y + from.h / 2, x1 = to.x, y1 = to.y + to.h / 2;
  const bend = Math.min(Math.max(14, Math.abs(x1 - x0) / 3), 60);
  draw.strokeStyle = draw.fillStyle = colour;
  draw.lineWidth = 1.6;
  draw.beginPath();
  draw.moveTo(x0, y0);
  draw.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  draw.stroke();
  draw.beginPath();
  draw.moveTo(x1 + 1, y1);
  draw.lineTo(x1 - 6, y1 - 3.5);
  draw.lineTo(x1 - 6, y1 + 3.5);
  draw.fill();
}

// The tasks that a box is tied to, with transfers between them left out: those that it waited for, and those that wait
// for it.
function tasksBefore(panel, box) {
  const follow = at => isTransfer(panel, at) && panel.boxes.back[at] ? follow(at - panel.boxes.back[at]) : at;
  return [...new Set(predecessors(panel, box).map(follow))];
}

function tasksAfter(panel, box) {
  const {back} = panel.boxes;
  const follow = at => isTransfer(panel, at) ? successors(panel, at).filter(next => back[next] === next - at).flatMap(follow) : [at];
  return [...new Set(successors(panel, box).flatMap(follow))];
}

function drawChain(draw, {panel, box}) {
  const elsewhere = other => panel.boxes.device[other] !== panel.boxes.device[box];
  const edges = [...tasksBefore(panel, box).filter(elsewhere).map(other => [other, box]),
                 ...tasksAfter(panel, box).filter(elsewhere).map(other => [box, other])];
  for (const [from, to] of edges) {
    const a = placeOf(panel, from) || nearPlace(panel, from), b = placeOf(panel, to) || nearPlace(panel, to);
    if (a && b && Math.max(a.y, b.y) > -200 && Math.min(a.y, b.y) < view.stage + 200)
      arrow(draw, a, b, colours.accent);
  }
}

// A hidden transfer is at the lower edge of its row.
function nearPlace(panel, box) {
  const {item} = panel.rows[panel.boxes.device[box]];
  if (!item)
    return null;
  const x = xOf(panel.boxes.start[box]);
  return {x, y: item.top - view.scroll + item.tasks - 1, w: xOf(panel.boxes.end[box]) - x, h: 2};
}

// Where the path changes to another device, within the time shown.
function criticalSteps(panel) {
  if (!panel.criticalSteps) {
    const {critical, start, device} = panel.boxes, path = [];
    critical?.forEach((is, i) => { if (is) path.push(i); });
    path.sort((a, b) => start[a] - start[b] || panel.boxes.end[a] - panel.boxes.end[b]);
    panel.criticalSteps = [];
    for (let k = 1; k < path.length; ++k)
      if (device[path[k]] !== device[path[k - 1]])
        panel.criticalSteps.push([path[k - 1], path[k]]);
  }
  return panel.criticalSteps;
}

function drawCritical(draw, panel) {
  const steps = criticalSteps(panel), {start, end} = panel.boxes;
  const first = firstWhere(0, steps.length, k => start[steps[k][1]] >= view.from);
  const last = firstWhere(first, steps.length, k => start[steps[k][0]] > view.to);
  if (last - first > 3 * plotWidth())
    return;
  draw.strokeStyle = colours.warning;
  draw.lineWidth = last - first > plotWidth() / 6 ? 0.8 : 1.6;
  draw.beginPath();
  for (const [from, to] of steps.slice(first, last)) {
    const a = placeOf(panel, from) || nearPlace(panel, from), b = placeOf(panel, to) || nearPlace(panel, to);
    if (!a || !b)
      continue;
    const x = Math.min(xOf(end[from]), xOf(end[to]));
    draw.moveTo(x, a.y + a.h / 2);
    draw.lineTo(xOf(start[to]), b.y + b.h / 2);
  }
  draw.stroke();
}

function clipPlot(draw) {
  draw.save();
  draw.beginPath();
  draw.rect(view.left - 2, 0, plotWidth() + 4, view.stage);
  draw.clip();
}

function drawOver() {
  const draw = fit(over, view.width, view.stage);
  draw.clearRect(0, 0, view.width, view.stage);
  clipPlot(draw);
  if (view.critical)
    panels.forEach(panel => drawCritical(draw, panel));
  if (view.range) {
    draw.fillStyle = colours.accent + "26";
    draw.fillRect(xOf(view.range.from), 0, xOf(view.range.to) - xOf(view.range.from), view.stage);
  }
  const {hovered, selected, cursor} = view;
  if (hovered?.box >= 0)
    outlineMicrobatch(draw, hovered);
  if (selected?.box >= 0) {
    outlineMicrobatch(draw, selected);
    drawChain(draw, selected);
  }
  for (const [what, width, colour] of [[cursor, 2, colours.accent], [hovered, 2, colours.text], [selected, 2.5, colours.accent]]) {
    if (!what || what === cursor && !stage.matches(":focus-visible"))
      continue;
    const gap = what.gap >= 0 && what.row.item;
    const place = gap ? placeOfGap(what.panel, what.gap, what.row) : what.box >= 0 ? placeOf(what.panel, what.box) : null;
    if (place)
      outline(draw, place, width, colour);
    if (what.gap >= 0 && place && what.panel.gaps.waitsFor[what.gap] >= 0) {
      const cause = placeOf(what.panel, what.panel.gaps.waitsFor[what.gap]) || nearPlace(what.panel, what.panel.gaps.waitsFor[what.gap]);
      if (cause)
        arrow(draw, cause, {...place, x: place.x + place.w}, colours.accent);
    }
  }
  draw.restore();
}

// The line under the pointer through rows, axis and memory.
function showHair(x) {
  view.hair = x;
  const hair = byId("hair");
  const shown = x !== null && x >= view.left && x <= view.width - view.right;
  hair.style.display = shown ? "block" : "none";
  if (!shown)
    return;
  hair.style.transform = `translateX(${Math.round(x)}px)`;
  hair.firstElementChild.textContent = timeText(timeAt(x));
  hair.firstElementChild.style.top = byId("bar").offsetHeight + 2 + "px";
}
