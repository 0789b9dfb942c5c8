// Memory by device below the rows: steps, the limit, and what is under the pointer.
const curves = byId("curves"), memoryNote = byId("memory-note");
const kMostCurves = 128;
const kViridis = ["#440154", "#3b528b", "#21918c", "#5ec962", "#d8c51f"].map(rgb);

function curveColour(device, devices) {
  const at = devices < 2 ? 1 : 4 * device / (devices - 1), stop = Math.min(Math.floor(at), 3);
  const colour = mix(kViridis[stop], kViridis[stop + 1], at - stop);
  return legible(colour);
}

// A colour that is light enough on a dark page: 3 to 1 at least for the darkest.
const legible = colour => mix(colour, rgb(style("--text")), unpack(colours.ground)[0] < 128 ? 0.4 : 0);

// {row, colour, dashed} of the rows with samples, of the open panels; of very many those with the highest peaks. More
// than two panels have a curve each: the device with the highest peak.
function shownCurves() {
  const open = panels.filter(panel => !panel.folded);
  const rowsOf = panel => panel.rows.filter(row => row.memory.end > row.memory.begin);
  const highest = rows => rows.slice().sort((a, b) => b.peak - a.peak);
  for (const row of open.flatMap(rowsOf))
    row.peak ??= row.panel.memory.bytes.subarray(row.memory.begin, row.memory.end).reduce((a, b) => Math.max(a, b), 0);
  if (panels.length > 2)
    return {curves: open.map(panel => highest(rowsOf(panel))[0]).filter(Boolean).map(row =>
      ({row, colour: css(legible(rgb(row.panel.colour))), dashed: row.panel.dashed})), all: 0};
  const rows = open.flatMap(rowsOf), shown = rows.length > kMostCurves ? highest(rows).slice(0, kMostCurves) : rows;
  return {curves: shown.map(row => ({row, colour: css(curveColour(row.device, row.panel.rows.length)), dashed: row.panel.dashed})),
          all: rows.length};
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

// A curve as the highest and lowest line of pixels that it reaches in each column. `columns` are pixels column by column,
// `height` each, since curves of many tasks are mostly vertical.
function paintCurve(columns, count, height, ratio, {row, dashed, pixel: colour}, zero, slope) {
  const {time, bytes} = row.panel.memory, {begin, end} = row.memory;
  const scale = count / (view.to - view.from), thick = Math.max(1, Math.round(1.5 * ratio)), on = 6 * ratio, period = 10 * ratio;
  const columnOf = at => Math.min(Math.max(Math.round((at - view.from) * scale), 0), count);
  const yOf = value => zero - slope * value + 0.5 | 0;
  const last = columnOf(row.panel.length);
  let at = Math.max(firstWhere(begin, end, i => time[i] > view.from) - 1, begin), reached = columnOf(time[begin]);
  while (reached < last) {
    const until = view.from + (reached + 0.5) / scale;
    if (at + 1 >= end || time[at + 1] > until) {
      const next = at + 1 < end ? Math.min(Math.max(columnOf(time[at + 1]), reached + 1), last) : last;
      const y = yOf(bytes[at]), lines = Math.min(thick, height - y);
      for (; reached < next; ++reached)
        if (!dashed || reached % period < on)
          for (let line = 0; line < lines; ++line)
            columns[reached * height + y + line] = colour;
      continue;
    }
    let least = bytes[at], most = least;
    while (at + 1 < end && time[at + 1] <= until) {
      const value = bytes[++at];
      if (value < least)
        least = value;
      else if (value > most)
        most = value;
    }
    const from = yOf(most), lines = Math.min(yOf(least) + thick, height) - from;
    for (let column = reached; column < Math.min(reached + thick, last); ++column)
      for (let line = column * height + from; line < column * height + from + lines; ++line)
        columns[line] = colour;
    ++reached;
  }
}

const curveBuffer = {};
function drawMemory(marks) {
  if (!facts.memory || curves.hidden)
    return;
  const draw = fit(curves, view.width, kMemory), ratio = devicePixelRatio;
  if (curveBuffer.image?.width !== curves.width || curveBuffer.image.height !== curves.height)
    curveBuffer.image = draw.createImageData(curves.width, curves.height);
  const {image} = curveBuffer, pixels = new Uint32Array(image.data.buffer);
  pixels.fill(colours.ground);
  const top = memoryTop(), bottom = kMemory - 8;
  const zero = bottom * ratio, slope = (bottom - 6) * ratio / top, yOf = bytes => Math.round(zero - slope * bytes);
  const left = Math.round(view.left * ratio), right = Math.round((view.width - view.right) * ratio);
  const line = (y, colour) => pixels.fill(colour, y * curves.width + left, y * curves.width + right);
  for (const {time} of marks)
    for (let y = 0, x = Math.round(xOf(time) * ratio); y < curves.height; ++y)
      pixels[y * curves.width + x] = colours.grid;
  const [unitName, unit] = unitFor(top / 2, byteUnits()), step = roundStep(top / unit, 4) * unit, values = [];
  for (let value = 0; value <= top; value += step) {
    line(yOf(value), colours.grid);
    values.push(value);
  }
  const {curves: shown, all} = shownCurves();
  const count = right - left, height = curves.height;
  if (curveBuffer.columns?.length !== count * height)
    curveBuffer.columns = new Uint32Array(count * height);
  const {columns} = curveBuffer;
  columns.fill(0);
  for (const curve of shown)
    paintCurve(columns, count, height, ratio, {...curve, pixel: pack(curve.colour.match(/\d+/g).map(Number))}, zero, slope);
  for (let y = 0; y < height; ++y)
    for (let column = 0, at = y * curves.width + left; column < count; ++column, ++at)
      if (columns[column * height + y])
        pixels[at] = columns[column * height + y];
  draw.putImageData(image, 0, 0);
  draw.font = "11px " + fontFamily();
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  draw.fillStyle = colours.muted;
  for (const value of values)
    draw.fillText(+(value / unit).toPrecision(4) + (narrow() ? "" : " " + unitName), view.left - 6,
                  Math.min(yOf(value) / ratio, kMemory - 7));
  for (const limit of limitsOf().filter(value => value <= top)) {
    draw.strokeStyle = draw.fillStyle = colours.warning;
    draw.setLineDash([7, 4]);
    draw.beginPath();
    draw.moveTo(view.left, yOf(limit) / ratio + 0.5);
    draw.lineTo(view.width - view.right, yOf(limit) / ratio + 0.5);
    draw.stroke();
    draw.setLineDash([]);
    draw.strokeStyle = style("--ground");
    draw.lineWidth = 4;
    draw.lineJoin = "round";
    draw.strokeText("limit " + bytesText(limit), view.width - view.right - 4, yOf(limit) / ratio - 8);
    draw.lineWidth = 1;
    draw.fillText("limit " + bytesText(limit), view.width - view.right - 4, yOf(limit) / ratio - 8);
  }
  view.curves = {shown, all};
  noteMemory();
}

function nameOfCurve({row}) {
  const {panel, device} = row;
  return panels.length > 2 ? panel.name : (panels.length > 1 ? panel.name + ", " : "") + "device " + device;
}

function noteOf(text, colour) {
  const note = document.createElement("span");
  note.textContent = text;
  if (colour) {
    const swatch = document.createElement("i");
    swatch.style.background = colour;
    note.prepend(swatch);
  }
  return note;
}

// The line next to the heading: what the curves are, or their values at a time.
function noteMemory(time = null) {
  const {shown, all} = view.curves || {shown: [], all: 0}, notes = [];
  if (time === null) {
    if (panels.length > 2)
      notes.push(noteOf("the highest device of"), ...shown.map(curve => noteOf(nameOfCurve(curve), curve.colour)));
    else if (all > shown.length)
      notes.push(noteOf(`the ${shown.length} of ${all} devices with the highest peaks`));
    else if (!narrow())
      notes.push(noteOf("by device, from the first (dark) to the last (light)"));
    if (panels.length === 2 && panels.every(panel => !panel.folded))
      notes.push(noteOf(panels.map(panel => panel.name + (panel.dashed ? " dashed" : " solid")).join(", ")));
    for (const limit of limitsOf().filter(value => value > memoryTop()))
      notes.push(noteOf("limit " + bytesText(limit) + ", above the picture"));
  } else {
    const values = shown.map(curve => [bytesAt(curve.row, time), curve]).filter(([bytes]) => bytes !== null).sort((a, b) => b[0] - a[0]);
    const most = narrow() ? 2 : 6;
    notes.push(noteOf("at " + timeText(time)));
    for (const [bytes, curve] of values.slice(0, most))
      notes.push(noteOf(nameOfCurve(curve) + " " + bytesText(bytes), curve.colour));
    if (values.length > most)
      notes.push(noteOf("… " + values.length + " in all"));
  }
  memoryNote.replaceChildren(...notes);
}
