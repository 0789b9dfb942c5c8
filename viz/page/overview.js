// All rows over the whole time, right of the stage where the stage is too low for them. A frame marks the part shown; a
// press or a drag shows another part.
const overview = byId("overview");
const overviewPicture = {of: [], image: null};

function paintOverview(draw) {
  const {width, height} = overview, image = draw.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const lines = new Map();
  pixels.fill(colours.ground);
  for (let y = 0; y < height; ++y) {
    const top = y / height * view.height, [item] = itemsIn(top, top + 1);
    const rows = item?.row ? [item.row] : item?.group?.folded ? item.group.rows : null;
    if (!rows)
      continue;
    if (!lines.has(item))
      lines.set(item, meanLine(rows, width, 0, facts.length));
    pixels.set(lines.get(item), y * width);
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
