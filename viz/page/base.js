// The canvases that change when the time or the rows shown do: axis and rows.
const byId = id => document.getElementById(id);
const axis = byId("axis"), stage = byId("stage"), base = byId("base");

function fit(canvas, width, height) {
  const ratio = devicePixelRatio, w = Math.round(width * ratio), h = Math.max(Math.round(height * ratio), 1);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  return draw;
}

// The marks of the time axis, in a unit that suits the end of the range shown.
function ticks() {
  const range = view.to - view.from, step = roundStep(range, Math.max(plotWidth() / 110, 2));
  const [name, unit] = unitFor(Math.max(view.to, 1), kTimeUnits), digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  const marks = [];
  for (let i = Math.ceil(view.from / step - 1e-9); i * step <= view.to * (1 + 1e-12); ++i)
    marks.push({time: i * step, text: (i * step / unit).toFixed(Math.min(digits, 9)) + " " + name});
  return marks;
}

function drawAxis(marks) {
  const draw = fit(axis, view.width, kAxis);
  draw.clearRect(0, 0, view.width, kAxis);
  draw.font = "12px " + fontFamily();
  draw.textAlign = "center";
  draw.textBaseline = "middle";
  draw.fillStyle = colours.muted;
  let reached = 0;
  for (const {time, text} of marks) {
    const half = draw.measureText(text).width / 2, x = Math.min(xOf(time), view.width - half - 4);
    draw.fillRect(xOf(time), kAxis - 5, 1, 5);
    if (x - half < reached + 8)
      continue;
    draw.fillText(text, x, kAxis / 2 - 2);
    reached = x + half;
  }
}

// A line of pixels without boxes: the track of a row from the start to the end of its panel, with the lines of the axis.
function trackOf(panel, columns, marks, ratio) {
  const line = new Uint32Array(columns).fill(colours.ground), scale = columns / (view.to - view.from);
  const column = time => Math.min(Math.max(Math.round((time - view.from) * scale), 0), columns);
  line.fill(colours.track, column(0), column(panel.length));
  for (const {time} of marks) {
    const at = Math.round(xOf(time) * ratio) - Math.round(view.left * ratio);
    if (at >= 0 && at < columns)
      line[at] = colours.grid;
  }
  return line;
}

const buffer = {image: null, pixels: null};
function drawRows(marks) {
  const draw = fit(base, view.width, view.stage), ratio = devicePixelRatio;
  if (!buffer.image || buffer.image.width !== base.width || buffer.image.height !== base.height) {
    buffer.image = draw.createImageData(base.width, base.height);
    buffer.pixels = new Uint32Array(buffer.image.data.buffer);
  }
  const picture = {pixels: buffer.pixels, width: base.width, height: base.height};
  picture.pixels.fill(colours.ground);
  makeGlyphs(Math.round((view.row < 18 ? 9.5 : 11) * ratio));
  const left = Math.round(view.left * ratio), columns = Math.max(Math.round(plotWidth() * ratio), 1);
  const items = itemsIn(view.scroll, view.scroll + view.stage), tracks = panels.map(panel => trackOf(panel, columns, marks, ratio));
  for (const {row, panel, group, top, tasks} of items) {
    if (group?.folded) {
      const y0 = Math.round((top + kGroup - view.scroll) * ratio);
      paintGroup(picture, group, {left, columns, top: y0, h: Math.round(kGroupLane * ratio)});
    }
    if (!row)
      continue;
    const track = tracks[panel.index], labels = panel.labelsNow = panel.labelsSize === glyphs.size ? panel.labelsNow : labelsOf(panel);
    panel.labelsSize = glyphs.size;
    const y0 = Math.round((top - view.scroll) * ratio), y1 = Math.round((top + tasks - view.scroll) * ratio);
    for (let y = Math.max(y0, 0); y < Math.min(y1, picture.height); ++y)
      picture.pixels.set(track, y * picture.width + left);
    const whole = {left, columns, top: y0, h: y1 - y0};
    const under = view.idle && !row.folded ? paintGaps(picture, row, whole, track) : track;
    row.lanes.forEach((lane, k) => {
      const [from, to] = partOf(panel, k).map(part => y0 + Math.round((y1 - y0) * part));
      paintLane(picture, lane, panel, {left, columns, top: from, h: to - from, over: k > 0}, under, labels);
    });
    if (view.transfers && !row.folded)
      [row.sends, row.receives].forEach((lane, k) => {
        const from = y1 + Math.round((1 + k * (kLane + 1)) * ratio);
        paintLane(picture, lane, panel, {left, columns, top: from, h: Math.round(kLane * ratio)}, tracks[panel.index], null);
      });
  }
  draw.putImageData(buffer.image, 0, 0);
  if (view.idle)
    drawCauses(draw, items);
  drawNames(draw, items);
}

// As much of a text as fits.
function fitted(draw, text, width) {
  if (draw.measureText(text).width <= width)
    return text;
  const length = firstWhere(1, text.length, count => draw.measureText(text.slice(0, count) + "…").width > width);
  return text.slice(0, Math.max(length - 1, 1)) + "…";
}

// The causes in idle time that has room for them.
function drawCauses(draw, items) {
  draw.font = "10px " + fontFamily();
  draw.textAlign = "center";
  draw.textBaseline = "middle";
  draw.fillStyle = colours.text;
  const widths = new Map();
  for (const {row, panel, top, tasks} of items) {
    if (!row || row.folded || tasks < 12)
      continue;
    const [first, last] = boxesIn(row.gaps, view.from, view.to), {start, end, cause} = panel.gaps;
    if (last - first > plotWidth() / 8)
      continue;
    for (let i = first; i < last; ++i) {
      const {title} = panel.causes[cause[i]], x0 = Math.max(xOf(start[i]), view.left), x1 = Math.min(xOf(end[i]), view.width - view.right);
      if (!widths.has(title))
        widths.set(title, draw.measureText(title).width + 8);
      if (x1 - x0 > widths.get(title))
        draw.fillText(title, (x0 + x1) / 2, top - view.scroll + tasks / 2 + 0.5);
    }
  }
}

function drawHeading(draw, group, y) {
  draw.textAlign = "left";
  draw.font = "600 12px " + fontFamily();
  draw.fillStyle = colours.text;
  draw.fillText(fitted(draw, (group.folded ? "▸ " : "▾ ") + headingOf(group), view.width - 24), 8, y + kGroup / 2);
}

function drawNames(draw, items) {
  draw.textBaseline = "middle";
  const title = (text, y, folded) => {
    draw.textAlign = "left";
    draw.font = "600 13px " + fontFamily();
    draw.fillStyle = colours.text;
    draw.fillText(fitted(draw, (folded === undefined ? "" : folded ? "▸  " : "▾  ") + text, view.width - 32), 16, y + kTitle / 2 + 2);
  };
  for (const {row, panel, group, top, tasks, title: text} of items) {
    const y = top - view.scroll;
    if (group) {
      drawHeading(draw, group, y);
      continue;
    }
    if (!row) {
      title(text, y, panel && panels.length > 1 ? panel.folded : undefined);
      continue;
    }
    if (tasks < 9 && !row.folded && row.device % Math.ceil(11 / view.row) !== 0)
      continue;
    draw.textAlign = "right";
    draw.font = (tasks < 16 ? 10 : 12) + "px " + fontFamily();
    draw.fillStyle = row.folded ? colours.muted : colours.text;
    const label = row.folded ? "▸ " + row.device : labelOf(row);
    draw.fillText(fitted(draw, label, view.left - 20), view.left - 10, y + tasks / 2 + 0.5);
  }
  const first = items.find(item => item.row);
  if (first && items[0] === first && first.top < view.scroll + kTitle && !view.paired && panels.length > 1) {
    draw.fillStyle = style("--ground");
    draw.fillRect(0, 0, view.width, kTitle);
    title(first.panel.title, 0, false);
  }
}
