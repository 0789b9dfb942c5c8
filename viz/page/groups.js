// Rows in groups, by host, replica or process (schedules/trace/device_groups.h): a heading for each group, which folds
// the group to a lane of its mean colours.
const kGroup = 24, kGroupLane = 16;

const groupKinds = () => [...new Set(panels.flatMap(panel => panel.groups.map(({kind}) => kind)))];

// The groups of a panel as they are shown: none where rows of several panels are paired.
function shownGroups(panel) {
  return view.paired ? undefined : panel.groups.find(({kind}) => kind === view.group)?.groups;
}

function makeGroups() {
  for (const panel of panels)
    for (const kind of panel.groups)
      kind.groups = kind.names.map((name, index) =>
        ({name, panel, folded: false, rows: panel.rows.filter(row => kind.of[row.device] === index)}));
  const kinds = groupKinds();
  view.group = kinds[0] || "";
  if (!kinds.length)
    return;
  const list = document.createElement("select");
  list.id = "groups";
  list.title = "groups of rows (g)";
  list.setAttribute("aria-label", "groups of rows");
  list.add(new Option("no groups", ""));
  kinds.forEach(kind => list.add(new Option("by " + kind, kind)));
  list.onchange = () => groupBy(list.value);
  group().append(list);
  groupBy(view.group);
}

function groupBy(kind) {
  view.group = groupKinds().includes(kind) ? kind : "";
  if (byId("groups"))
    byId("groups").value = view.group;
  layOut();
  request("all");
}

const nextGrouping = () => {
  const kinds = [...groupKinds(), ""];
  groupBy(kinds[(kinds.indexOf(view.group) + 1) % kinds.length]);
};

function foldGroup(group) {
  group.folded = !group.folded;
  layOut();
  request("all");
}

const groupOfRow = row => shownGroups(row.panel)?.find(({rows}) => rows.includes(row));

// "n1 · 8 devices"
const headingOf = group => `${group.name} · ${group.rows.length} ${group.rows.length > 1 ? "devices" : "device"}`;

// Rows as a line of pixels: in each column the mean colour of their tasks and of their idle time.
function meanLine(rows, columns, from, to) {
  const sums = new Float64Array(4 * columns), scale = columns / (to - from), [{panel}] = rows, {op, chunk} = panel.boxes;
  const tints = colours.ops.map(of => of.map(({plain, dim}) => [unpack(plain), unpack(dim)])), {lit} = panel;
  const add = (column, part, [r, g, b]) => {
    const at = 4 * column;
    sums[at] += r * part;
    sums[at + 1] += g * part;
    sums[at + 2] += b * part;
    sums[at + 3] += part;
  };
  for (const lane of rows.flatMap(row => row.lanes)) {
    const [first, last] = boxesIn(lane, from, to);
    for (let i = first; i < last; ++i) {
      const tint = tints[op[i]][chunk[i]][lit && !lit[i] ? 1 : 0];
      const x0 = Math.max((lane.start[i] - from) * scale, 0), x1 = Math.min((lane.finish[i] - from) * scale, columns);
      let x = x0;
      for (let next = (x0 | 0) + 1; next < x1; x = next++)
        add(next - 1, next - x, tint);
      if (x1 > x)
        add(Math.min(x | 0, columns - 1), x1 - x, tint);
    }
  }
  const track = unpack(colours.track), ground = unpack(colours.ground), end = (panel.length - from) * scale;
  const line = new Uint32Array(columns);
  for (let column = 0, at = 0; column < columns; ++column, at += 4) {
    const under = column < end ? track : ground, whole = Math.max(sums[at + 3], rows.length), idle = whole - sums[at + 3];
    line[column] = pack([0, 1, 2].map(k => (sums[at + k] + under[k] * idle) / whole | 0));  // lanes may overlap
  }
  return line;
}

function paintGroup(picture, group, {left, columns, top, h}) {
  const line = meanLine(group.rows, columns, view.from, view.to);
  for (let y = Math.max(top, 0); y < Math.min(top + h, picture.height); ++y)
    picture.pixels.set(line, y * picture.width + left);
}
