// All rows over the whole time, right of the stage where the stage is too low for them. A frame marks the part shown; a
// press or a drag shows another part.
const overview = byId("overview");
const overviewPicture = {of: [], image: null};

// A row as a line of pixels: in each column the mean colour of its tasks and of its idle time.
function overviewLine(row, columns) {
  const {panel} = row, {boxes} = panel, sums = new Float64Array(4 * columns), scale = columns / facts.length;
  for (const lane of row.lanes)
    for (let i = lane.begin; i < lane.end; ++i) {
      const [r, g, b] = unpack(colours.ops[boxes.op[i]][boxes.chunk[i]][panel.lit && !panel.lit[i] ? "dim" : "plain"]);
      const x0 = lane.start[i] * scale, x1 = Math.min(lane.finish[i] * scale, columns);
      for (let column = Math.floor(x0); column < x1; ++column) {
        const part = Math.min(x1, column + 1) - Math.max(x0, column), at = 4 * column;
        sums[at] += r * part;
        sums[at + 1] += g * part;
        sums[at + 2] += b * part;
        sums[at + 3] += part;
      }
    }
  const track = unpack(colours.track), ground = unpack(colours.ground), last = panel.length * scale;
  return Uint32Array.from({length: columns}, (_, column) => {
    const [r, g, b, busy] = sums.subarray(4 * column, 4 * column + 4), whole = Math.max(busy, 1);  // lanes may overlap
    const under = column < last ? track : ground;
    return pack([r, g, b].map((sum, k) => (sum + under[k] * (whole - busy)) / whole | 0));
  });
}

function paintOverview(draw) {
  const {width, height} = overview, image = draw.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const lines = new Map();
  pixels.fill(colours.ground);
  for (let y = 0; y < height; ++y) {
    const top = y / height * view.height, [item] = itemsIn(top, top + 1);
    if (!item?.row)
      continue;
    if (!lines.has(item.row))
      lines.set(item.row, overviewLine(item.row, width));
    pixels.set(lines.get(item.row), y * width);
  }
  return image;
}

function drawOverview() {
  if (overview.hidden)
    return;
  const draw = fit(overview, kOverview, view.stage);
  const of = [overview.height, overview.width, view.items, colours.ops, ...panels.map(panel => panel.lit)];
  if (of.length !== overviewPicture.of.length || of.some((value, i) => value !== overviewPicture.of[i]))
    Object.assign(overviewPicture, {of, image: paintOverview(draw)});
  draw.putImageData(overviewPicture.image, 0, 0);
  const down = view.stage / view.height, across = kOverview / facts.length;
  const width = Math.max((view.to - view.from) * across, 4), height = Math.max(view.stage * down, 4);
  draw.strokeStyle = colours.accent;
  draw.lineWidth = 2;
  draw.strokeRect(Math.min(view.from * across, kOverview - width) + 1, Math.min(view.scroll * down, view.stage - height) + 1,
                  width - 2, height - 2);
}

function showFromOverview(event) {
  const box = overview.getBoundingClientRect(), length = view.to - view.from;
  const time = (event.clientX - box.left) / box.width * facts.length;
  scrollToRows((event.clientY - box.top) / box.height * view.height);
  show(time - length / 2, time + length / 2);
}

function listenToOverview() {
  const listen = (name, action) => overview.addEventListener(name, event => {
    event.stopPropagation();  // the stage pans
    action(event);
  });
  listen("pointerdown", event => {
    if (event.button)
      return;
    overview.setPointerCapture(event.pointerId);
    showFromOverview(event);
  });
  listen("pointermove", event => {
    if (event.buttons & 1)
      showFromOverview(event);
    else
      leave();
  });
  for (const name of ["pointerup", "dblclick"])
    listen(name, () => {});
}
