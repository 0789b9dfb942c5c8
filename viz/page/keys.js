// The keyboard.
function zoomBy(factor, x = (view.left + view.width - view.right) / 2) {
  const at = timeAt(x);
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

function moveBy(part) {
  const by = (view.to - view.from) * part;
  show(view.from + by, view.to + by);
}

const openRows = () => view.items.filter(item => item.row && !item.row.folded).map(item => item.row);

// The task of a row nearest to a time.
function nearestTask(row, time) {
  const {finish} = row.lanes[0], held = row.lanes.filter(each => each.end > each.begin);
  if (!held.length)
    return null;
  const nearest = held.map(lane => Math.min(firstWhere(lane.begin, lane.end, i => finish[i] >= time), lane.end - 1));
  const later = nearest.filter(i => finish[i] >= time);
  const box = later.length ? later.reduce((a, b) => finish[b] < finish[a] ? b : a) : Math.max(...nearest);
  return {panel: row.panel, row, box};
}

function setCursor(what) {
  if (!what)
    return;
  view.cursor = what;
  revealRow(what.row);
  live.textContent = spoken(contentOf(what));
  if (view.selected)
    select(what, false);
  request("over");
}

function cursorTime() {
  const {cursor} = view;
  const time = cursor?.box >= 0 ? (cursor.panel.boxes.start[cursor.box] + cursor.panel.boxes.end[cursor.box]) / 2 : NaN;
  return time >= view.from && time <= view.to ? time : (view.from + view.to) / 2;
}

function moveRow(step) {
  const rows = openRows(), at = rows.indexOf(view.cursor?.row);
  const seen = rows.find(each => each.item.top + each.item.height > view.scroll);
  const row = at < 0 ? seen : rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  if (row)
    setCursor(nearestTask(row, cursorTime()));
}

function moveTask(step) {
  const {cursor} = view;
  if (!(cursor?.box >= 0))
    return moveRow(0);
  const {start, end, lane} = cursor.panel.boxes;
  if (lane[cursor.box] >= SEND)
    return moveRow(0);
  const next = neighbour(cursor.panel, cursor.box, step), box = next < 0 ? cursor.box : next;
  const length = view.to - view.from;
  if (end[box] > view.to)
    show(end[box] - 0.7 * length, end[box] + 0.3 * length);
  else if (start[box] < view.from)
    show(start[box] - 0.3 * length, start[box] + 0.7 * length);
  setCursor({...cursor, gap: -1, box});
}

function foldRow(row) {
  row.folded = !row.folded;
  layOut();
  request("all");
}

function foldPanel(panel) {
  panel.folded = !panel.folded;
  layOut();
  request("all");
}

const actions = {
  ArrowLeft: () => moveBy(-1 / 8), ArrowRight: () => moveBy(1 / 8), ArrowUp: () => moveRow(-1), ArrowDown: () => moveRow(1),
  ",": () => moveTask(-1), ".": () => moveTask(1), "+": () => zoomBy(0.7), "=": () => zoomBy(0.7), "-": () => zoomBy(1 / 0.7),
  "0": () => show(0, facts.length), Home: () => show(0, view.to - view.from),
  End: () => show(facts.length - (view.to - view.from), facts.length),
  Enter: () => { if (!view.cursor) moveRow(0); select(view.cursor, true); },
  f: () => view.cursor && foldRow(view.cursor.row), F: () => panels.length > 1 && foldPanel(view.cursor?.panel || panels[0]),
  G: () => { const group = view.cursor && groupOfRow(view.cursor.row); if (group) foldGroup(group); },
  "[": () => moveStep(-1), "]": () => moveStep(1),
  z: () => { const {range} = view; if (range) { select(null); show(range.from, range.to); } },
};
const everywhere = {
  "/": () => byId("query").select(), "?": () => byId("help").showModal(), n: switchTheme,
  Escape: () => {
    if (!view.selected && !view.range && search.test) {
      byId("query").value = "";
      searchFor("");
    }
    select(null);
  },
  c: () => toggles.critical?.(), i: () => toggles.idle?.(), t: () => toggles.transfers?.(),
  p: () => toggles.patterns?.(), d: () => toggles.paired?.(), g: nextGrouping,
};

function listenToKeys() {
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, dialog, summary"))
      return;
    const action = everywhere[event.key] || (event.target === stage && actions[event.key]);
    if (!action)
      return;
    event.preventDefault();
    showCard(null);
    action();
  });
  stage.addEventListener("focus", () => {
    if (!view.cursor && stage.matches(":focus-visible"))
      moveRow(0);
    request("over");
  });
  stage.addEventListener("blur", () => request("over"));
}
