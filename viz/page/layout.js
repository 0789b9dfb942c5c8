// Where everything is: the time axis from left to right, panels and rows from top to bottom.
const view = {
  from: 0, to: 1,              // the time shown
  width: 0, left: 0, right: 0,   // of the canvases, and around the time axis
  stage: 0, scroll: 0,         // height of the canvas of rows, and how far it is below their top
  items: [], height: 0,        // titles and rows with their tops, and all of them together
  row: 24, transfers: true, paired: false,
  critical: false, idle: false, patterns: false,
  group: "",                   // "host", "replica" or "rank": what groups of rows are; "": none
  hair: null,                  // where the line under the pointer is
  hovered: null, selected: null, cursor: null, range: null,  // {panel, box} or {panel, gap}; a range is {from, to}
};
const kTitle = 30, kLane = 4, kFoldedRow = 7, kAxis = 30, kMemory = 132, kMargin = 20, kOverview = 96;

const plotWidth = () => view.width - view.left - view.right;
const xOf = time => view.left + (time - view.from) / (view.to - view.from) * plotWidth();
const timeAt = x => view.from + (x - view.left) / plotWidth() * (view.to - view.from);
const narrow = () => view.width < 560;

// Rows are as tall as a window takes of them.
function chooseRowHeight() {
  const rows = panels.reduce((sum, panel) => sum + panel.rows.length, 0), room = (innerHeight - 260) / rows;
  const versions = panels.some(panel => panel.versions), lanes = Math.max(...panels.map(panel => panel.lanes));
  view.transfers = rows <= 40;
  const most = Math.max(versions ? 34 : 24, 16 * lanes);
  view.row = rows > 128 ? 6 : Math.round(Math.min(most, Math.max(room - 6, 13)));
}

function rowHeight(row) {
  if (row.folded)
    return kFoldedRow + 3;
  const transfers = view.transfers && row.sends.end + row.receives.end > row.sends.begin + row.receives.begin;
  return view.row + (transfers ? 2 * kLane + 3 : 0) + (view.row < 10 ? 1 : view.row < 18 ? 3 : 7);
}

function layOut() {
  view.items = [];
  let top = panels.length > 1 ? 0 : 8;
  const add = item => {
    view.items.push({...item, top});
    top += item.height;
    if (item.row)
      item.row.item = view.items.at(-1);
  };
  const addRow = row => add({row, panel: row.panel, height: rowHeight(row), tasks: row.folded ? kFoldedRow : view.row});
  panels.forEach(panel => panel.rows.forEach(row => { row.item = null; }));
  if (view.paired) {
    const most = Math.max(...panels.map(panel => panel.rows.length));
    add({height: kTitle, title: panels.map(panel => panel.title).join("   over   ")});
    for (let device = 0; device < most; ++device) {
      panels.forEach(panel => device < panel.rows.length && addRow(panel.rows[device]));
      top += 6;
    }
  } else {
    for (const panel of panels) {
      if (panels.length > 1)
        add({height: kTitle, title: panel.title, panel});
      const groups = shownGroups(panel);
      if (!panel.folded && !groups)
        panel.rows.forEach(addRow);
      for (const group of panel.folded ? [] : groups || []) {
        add({height: kGroup + (group.folded ? kGroupLane + 4 : 0), group});
        if (!group.folded)
          group.rows.forEach(addRow);
      }
      top += 4;
    }
  }
  view.height = top + 4;
}

function measureLabels() {
  const draw = base.getContext("2d");
  draw.font = "12px " + fontFamily();
  const widths = panels.flatMap(panel => panel.rows.map(row => draw.measureText(labelOf(row)).width));
  view.left = 26 + Math.min(Math.max(narrow() ? 18 : 44, ...widths), narrow() ? 60 : 240);
}

// "device 3 · stage 3", and less in narrow windows.
function labelOf(row) {
  const {panel, device} = row, name = panel.names[device];
  const named = name && name !== String(device);
  const paired = view.paired && panels.length > 1 ? " · " + panel.name : "";
  if (narrow())
    return String(device) + (view.paired ? " " + panel.name[0] : "");
  return (named ? row.label.replace("device " + device, "device " + device + " · " + name) : row.label) + paired;
}

// The items that a range of heights meets.
function itemsIn(top, bottom) {
  const {items} = view, first = firstWhere(0, items.length, i => items[i].top + items[i].height > top);
  return items.slice(first, firstWhere(first, items.length, i => items[i].top >= bottom));
}

// Where a box is on the canvas of rows: {x, y, w, h}; null where its row is folded away.
function placeOf(panel, box) {
  const {boxes} = panel, item = panel.rows[boxes.device[box]].item, lane = boxes.lane[box];
  if (!item || (lane >= SEND && (!view.transfers || item.row.folded)))
    return null;
  const x = xOf(boxes.start[box]), w = Math.max(xOf(boxes.end[box]) - x, 1), top = item.top - view.scroll;
  if (lane >= SEND)
    return {x, y: top + item.tasks + 1 + (lane === RECEIVE ? kLane + 1 : 0), w, h: kLane};
  const [from, to] = partOf(panel, lane);
  return {x, y: top + item.tasks * from, w, h: item.tasks * (to - from)};
}

function placeOfGap(panel, gap, row) {
  const x = xOf(panel.gaps.start[gap]);
  return {x, y: row.item.top - view.scroll, w: Math.max(xOf(panel.gaps.end[gap]) - x, 1), h: row.item.tasks};
}

// What is at a place of the canvas of rows: {panel, box}, {panel, gap, row}, {panel} for a title, {group} for a heading,
// {row} for a label.
function whatIsAt(x, y) {
  const [item] = itemsIn(y + view.scroll, y + view.scroll + 1);
  if (!item)
    return null;
  if (item.group)
    return {group: item.group};
  if (!item.row)
    return item.panel ? {panel: item.panel, title: true} : null;
  const {row} = item, {panel} = row, inside = y + view.scroll - item.top, time = timeAt(x);
  if (x < view.left)
    return {row, panel, label: true};
  if (x > view.width - view.right)
    return null;
  const near = (view.to - view.from) / plotWidth();
  if (inside > item.tasks) {
    const lane = inside < item.tasks + 1 + kLane + 0.5 ? row.sends : row.receives;
    const box = view.transfers && !row.folded ? boxAt(lane, time, 3 * near) : -1;
    return box < 0 ? null : {panel, row, box};
  }
  const here = row.lanes.filter((_, k) => inside <= item.tasks * partOf(panel, k)[1] && inside >= item.tasks * partOf(panel, k)[0]);
  const boxNear = room => here.map(lane => boxAt(lane, time, room)).find(found => found >= 0) ?? -1;
  const box = boxNear(0);
  if (box >= 0)
    return {panel, row, box};
  const gap = boxAt(row.gaps, time, 0);
  if (gap >= 0)
    return {panel, row, gap};
  const close = boxNear(near);
  return close < 0 ? null : {panel, row, box: close};
}
