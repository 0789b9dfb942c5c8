// Memory by device below the rows: steps, the limit, and what is under the pointer.
const curves = byId("curves"), memoryNote = byId("memory-note");
const kMostCurves = 128;
const kViridis = ["#440154", "#3b528b", "#21918c", "#5ec962", "#d8c51f"].map(rgb);

function curveColour(device, devices) {
  const at = devices < 2 ? 1 : 4 * device / (devices - 1), stop = Math.min(Math.floor(at), 3);
  const colour = mix(kViridis[stop], kViridis[stop + 1], at - stop);
  return mix(colour, rgb(style("--text")), unpack(colours.ground)[0] < 128 ? 0.25 : 0);
}

// Rows with samples, of the open panels; of very many those with the highest peaks.
function shownCurves() {
  const rows = panels.filter(panel => !panel.folded).flatMap(panel => panel.rows).filter(row => row.memory.end > row.memory.begin);
  for (const row of rows)
    row.peak ??= row.panel.memory.bytes.subarray(row.memory.begin, row.memory.end).reduce((a, b) => Math.max(a, b), 0);
  if (rows.length <= kMostCurves)
    return {rows, all: rows.length};
  return {rows: rows.slice().sort((a, b) => b.peak - a.peak).slice(0, kMostCurves), all: rows.length};
}

const limitsOf = () => [...new Set(panels.filter(panel => !panel.folded).flatMap(panel => panel.limits).filter(limit => limit !== null))];

// The highest value of the axis: peaks, and limits that are not far above them.
function memoryTop() {
  const near = limitsOf().filter(limit => limit < 3 * facts.memory);
  return 1.08 * Math.max(facts.memory, ...near);
}

function bytesAt(row, time) {
  const {memory} = row.panel, after = firstWhere(row.memory.begin, row.memory.end, i => memory.time[i] > time);
  return after > row.memory.begin && time <= row.panel.length ? memory.bytes[after - 1] : null;
}

function paintCurve(pixels, width, row, yOf, colour, ratio) {
  const {memory} = row.panel, left = Math.round(view.left * ratio), columns = Math.round(plotWidth() * ratio);
  const scale = columns / (view.to - view.from), {begin, end} = row.memory, thick = Math.max(1, Math.round(1.5 * ratio));
  const last = Math.min(columns, Math.round((row.panel.length - view.from) * scale));
  let at = Math.max(firstWhere(begin, end, i => memory.time[i] > view.from) - 1, begin);
  let y = yOf(memory.bytes[at]);
  const vertical = (column, a, b) => {
    for (let line = Math.min(a, b); line < Math.max(a, b) + thick; ++line)
      if (line >= 0 && (line + 1) * width <= pixels.length)
        pixels.fill(colour, line * width + left + column, line * width + left + Math.min(column + thick, columns));
  };
  for (let column = Math.max(0, Math.round((memory.time[begin] - view.from) * scale)); column < last; ++column) {
    const until = view.from + (column + 1) / scale;
    let low = y, high = y;
    while (at + 1 < end && memory.time[at + 1] < until) {
      y = yOf(memory.bytes[++at]);
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
    if (!row.panel.dashed || column % (10 * ratio) < 6 * ratio || high - low > 1)
      vertical(column, low, high);
  }
}

function drawMemory(marks) {
  if (!facts.memory || byId("memory").hidden)
    return;
  const draw = fit(curves, view.width, kMemory), ratio = devicePixelRatio;
  const image = draw.createImageData(curves.width, curves.height), pixels = new Uint32Array(image.data.buffer);
  pixels.fill(colours.ground);
  const top = memoryTop(), bottom = kMemory - 8, yOf = bytes => Math.round((bottom - bytes / top * (bottom - 6)) * ratio);
  const left = Math.round(view.left * ratio), right = Math.round((view.width - view.right) * ratio);
  const line = (y, colour) => pixels.fill(colour, y * curves.width + left, y * curves.width + right);
  for (const {time} of marks)
    for (let y = 0, x = Math.round(xOf(time) * ratio); y < curves.height; ++y)
      pixels[y * curves.width + x] = colours.grid;
  const [unitName, unit] = unitFor(top / 2, kByteUnits), step = roundStep(top / unit, 4) * unit, values = [];
  for (let value = 0; value <= top; value += step) {
    line(yOf(value), colours.grid);
    values.push(value);
  }
  const {rows, all} = shownCurves();
  for (const row of rows)
    paintCurve(pixels, curves.width, row, yOf, pack(curveColour(row.device, row.panel.rows.length)), ratio);
  draw.putImageData(image, 0, 0);
  draw.font = "11px " + fontFamily();
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  draw.fillStyle = colours.muted;
  for (const value of values)
    draw.fillText(+(value / unit).toPrecision(4) + (narrow() ? "" : " " + unitName), view.left - 6, Math.min(yOf(value) / ratio, kMemory - 7));
  for (const limit of limitsOf().filter(value => value <= top)) {
    draw.strokeStyle = draw.fillStyle = colours.warning;
    draw.setLineDash([7, 4]);
    draw.beginPath();
    draw.moveTo(view.left, yOf(limit) / ratio + 0.5);
    draw.lineTo(view.width - view.right, yOf(limit) / ratio + 0.5);
    draw.stroke();
    draw.setLineDash([]);
    draw.fillText("limit " + bytesText(limit), view.width - view.right - 4, yOf(limit) / ratio - 8);
  }
  view.curves = {rows, all, top, yOf: bytes => yOf(bytes) / ratio};
  noteMemory();
}

// The line next to the heading: what the curves are, or their values at a time.
function noteMemory(time = null) {
  const {rows, all} = view.curves || {rows: [], all: 0};
  if (time === null) {
    const far = limitsOf().filter(limit => limit > memoryTop());
    const dashed = panels.some(panel => panel.dashed) && panels.filter(panel => !panel.folded).length > 1;
    memoryNote.textContent = [
      all > rows.length ? `the ${rows.length} of ${all} devices with the highest peaks` : narrow() ? "" : "by device, from the first (dark) to the last (light)",
      dashed ? panels.map(panel => panel.name + (panel.dashed ? " dashed" : " solid")).join(", ") : "",
      ...far.map(limit => "limit " + bytesText(limit) + ", above the picture")].filter(Boolean).join(" · ");
    return;
  }
  const values = rows.map(row => [bytesAt(row, time), row]).filter(([bytes]) => bytes !== null).sort((a, b) => b[0] - a[0]);
  memoryNote.textContent = "at " + timeText(time) + ": " + values.slice(0, narrow() ? 2 : 6).map(([bytes, row]) =>
    (panels.length > 1 ? row.panel.name + ", " : "") + "device " + row.device + " " + bytesText(bytes)).join(" · ") +
    (values.length > 6 ? ` · … ${values.length} devices` : "");
}
