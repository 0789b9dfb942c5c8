// Messages between devices as a picture: a cell for each pair, the darker the more (lighter in dark windows), above the
// table of the same sums.
const kQuantities = [["bytes", 4, bytesText], ["time under way", 5, timeText], ["messages", 3, String]];  // columns of the table
const kCells = 460;  // pixels that all cells together take, at the most where they have room
const matrix = {quantity: 0};

// The sums of both contents by panel: a row for each sender, a column for each receiver.
function matricesOf(rows) {
  return panels.filter(panel => !panel.folded).map(panel => {
    const size = panel.rows.length, sums = new Float64Array(size * size), [, column] = kQuantities[matrix.quantity];
    for (const row of rows)
      if (panels.length === 1 || row[6] === panel.name)
        sums[row[0] * size + row[1]] += row[column];
    return {panel, size, sums, most: sums.reduce((a, b) => Math.max(a, b), 0)};
  }).filter(({most}) => most > 0);
}

function cellColour(part) {
  const ground = unpack(colours.ground), dark = ground[0] < 128;
  return part > 0 ? mix(mix(ground, rgb(style("--accent")), 0.18), dark ? [214, 234, 255] : [8, 48, 107], part) : unpack(colours.track);
}

function paintMatrix(canvas, {panel, size, sums, most}) {
  const room = Math.min(kCells, document.documentElement.clientWidth - 90), cell = Math.max(Math.min(Math.floor(room / size), 28), 2);
  const left = 26, top = 18, draw = fit(canvas, left + size * cell + 2, top + size * cell + 2), gap = cell > 5 ? 1 : 0;
  draw.clearRect(0, 0, canvas.width, canvas.height);
  for (let from = 0; from < size; ++from)
    for (let to = 0; to < size; ++to) {
      draw.fillStyle = css(cellColour(sums[from * size + to] / most));
      draw.fillRect(left + to * cell, top + from * cell, cell - gap, cell - gap);
    }
  draw.font = "10px " + fontFamily();
  draw.fillStyle = colours.muted;
  draw.textBaseline = "middle";
  for (let device = 0, each = Math.ceil(22 / cell); device < size; device += each) {
    draw.textAlign = "center";
    draw.fillText(device, left + (device + 0.5) * cell, top - 9);
    draw.textAlign = "right";
    draw.fillText(device, left - 5, top + (device + 0.5) * cell);
  }
  const [kind] = panel.groups, sorted = kind && kind.of.every((group, k) => !k || group >= kind.of[k - 1]);
  draw.fillStyle = cell > 8 ? colours.muted : colours.line;
  for (let device = 1; sorted && device < size; ++device)
    if (kind.of[device] !== kind.of[device - 1]) {  // between hosts
      draw.fillRect(left + device * cell - gap, top, 1, size * cell);
      draw.fillRect(left, top + device * cell - gap, size * cell, 1);
    }
  return {left, top, cell};
}

// What is under the pointer.
function wordsAt({panel, size, sums}, {left, top, cell}, event) {
  const box = event.target.getBoundingClientRect();
  const to = Math.floor((event.clientX - box.left - left) / cell), from = Math.floor((event.clientY - box.top - top) / cell);
  if (from < 0 || to < 0 || from >= size || to >= size)
    return "";
  const value = sums[from * size + to], [, , text] = kQuantities[matrix.quantity];
  return `${deviceName(panel, from)} to ${deviceName(panel, to)}: ${value ? text(value) : "none"}`;
}

function makeMatrix(rows) {
  const made = document.createElement("div"), all = matricesOf(rows);
  made.className = "matrix";
  if (!all.length)
    return made;
  const list = made.appendChild(document.createElement("select")), [name, , text] = kQuantities[matrix.quantity];
  list.setAttribute("aria-label", "what the picture shows");
  kQuantities.forEach(([each], k) => list.add(new Option(each, k, false, k === matrix.quantity)));
  list.onchange = () => { matrix.quantity = +list.value; made.replaceWith(makeMatrix(rows)); };
  for (const each of all) {
    const figure = made.appendChild(document.createElement("figure")), caption = document.createElement("figcaption");
    const canvas = document.createElement("canvas"), words = `${name} from device (row) to device (column)`;
    const scale = document.createElement("span"), scroller = document.createElement("div");
    scale.className = "scale";
    scale.style.background = `linear-gradient(90deg, ${[0.001, 0.5, 1].map(part => css(cellColour(part))).join(", ")})`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words + ": the table below has the numbers");
    scroller.className = "wide";
    scroller.append(canvas);
    const place = paintMatrix(canvas, each), note = document.createElement("p");
    const usual = `${words}${panels.length > 1 ? " · " + each.panel.name : ""}`;
    note.textContent = usual;
    caption.append("0 ", scale, " " + text(each.most));
    figure.append(note, scroller, caption);
    canvas.onpointermove = event => { note.textContent = wordsAt(each, place, event) || usual; };
    canvas.onpointerleave = () => { note.textContent = usual; };
  }
  return made;
}
