// Cards: of the task or idle time under the pointer, and of the one that is selected.
const card = byId("card"), pinned = byId("pinned"), live = byId("live");

function spanRows({start, end}, i) {
  const length = end[i] - start[i];
  return [["start", exactTime(start[i])], ["end", exactTime(end[i])], ["duration", exactTime(length, length)]];
}

function taskRows(panel, box) {
  const {boxes} = panel, op = ops[boxes.op[box]];
  const rows = [["stage", boxes.stage[box]], ["micro-batch", boxes.microbatch[box]], ...spanRows(boxes, box)];
  if (op.transfer)
    rows.push(["size", bytesText(boxes.bytes[box])]);
  if (boxes.peer[box] >= 0)
    rows.push([op.receive ? "from stage" : "to stage", boxes.peer[box]]);
  if (isSliced(panel))
    rows.push(["slice", boxes.slice[box]]);
  if (boxes.version[box] >= 0)
    rows.push(["weight version", boxes.version[box]]);
  if (boxes.ahead[box])
    rows.push(["predicted ahead", boxes.ahead[box] + " updates"]);
  if (boxes.slack)
    rows.push(["slack", timeText(boxes.slack[box])]);
  if (boxes.critical?.[box])
    rows.push(["", "on the critical path"]);
  return rows;
}

function gapRows(panel, gap) {
  const {gaps} = panel, rows = [["cause", panel.causes[gaps.cause[gap]].title], ...spanRows(gaps, gap)];
  if (gaps.equal[gap] >= 0)
    rows.push(["with equal stages", timeText(gaps.equal[gap])]);
  if (gaps.waitsFor[gap] >= 0)
    rows.push(["waits for", taskName(panel, gaps.waitsFor[gap]) + " on device " + panel.boxes.device[gaps.waitsFor[gap]]]);
  return rows;
}

// {title, words, rows} of what is at a place.
function contentOf(what) {
  const {panel} = what, of = panels.length > 1 ? " · " + panel.name : "";
  if (what.gap >= 0)
    return {title: "idle · " + deviceName(panel, what.row.device) + of, words: panel.causes[panel.gaps.cause[what.gap]].words,
            rows: gapRows(panel, what.gap)};
  const op = ops[panel.boxes.op[what.box]];
  return {title: taskName(panel, what.box) + " · " + op.words + " on " + deviceName(panel, panel.boxes.device[what.box]) + of,
          words: "", rows: taskRows(panel, what.box)};
}

function fill(element, {title, words, rows}) {
  element.appendChild(document.createElement("b")).textContent = title;
  if (words)
    element.appendChild(document.createElement("p")).textContent = words;
  const table = element.appendChild(document.createElement("table"));
  for (const row of rows) {
    const line = table.insertRow();
    row.forEach(text => { line.insertCell().textContent = text; });
  }
}

function showCard(what, x, y) {
  card.hidden = !what;
  if (!what)
    return;
  if (card.what !== what) {
    card.what = what;
    card.replaceChildren();
    fill(card, contentOf(what));
    card.size = [card.offsetWidth, card.offsetHeight];
  }
  const [width, height] = card.size, right = x + 18 + width < innerWidth - 8;
  const left = right ? x + 18 : Math.max(x - 18 - width, 8), top = Math.min(y + 16, Math.max(innerHeight - height - 8, 8));
  card.style.transform = `translate(${left}px, ${top}px)`;
}

const spoken = ({title, words, rows}) => [title, words, ...rows.map(row => row.join(" "))].filter(Boolean).join(", ");

function linkTo(panel, box, text) {
  const link = document.createElement("button");
  link.textContent = text;
  link.onclick = () => { select({panel, row: panel.rows[panel.boxes.device[box]], box}, true); };
  return link;
}

function showPinned(what) {
  pinned.hidden = !what;
  pinned.replaceChildren();
  if (!what)
    return;
  const close = pinned.appendChild(document.createElement("button"));
  close.className = "close";
  close.textContent = "✕";
  close.setAttribute("aria-label", "close");
  close.onclick = () => select(null);
  if (what.range) {
    fill(pinned, rangeContent(what.range));
    const links = pinned.appendChild(document.createElement("div"));
    links.className = "links";
    const zoom = links.appendChild(document.createElement("button"));
    zoom.textContent = "zoom to it";
    zoom.onclick = () => { const {from, to} = what.range; select(null); show(from, to); };
    return;
  }
  const content = contentOf(what), {panel} = what;
  fill(pinned, content);
  live.textContent = spoken(content);
  const links = pinned.appendChild(document.createElement("div"));
  links.className = "links";
  const before = what.gap >= 0 ? [panel.gaps.waitsFor[what.gap]].filter(box => box >= 0) : tasksBefore(panel, what.box);
  before.forEach(box => links.append(linkTo(panel, box, "← " + taskName(panel, box))));
  if (what.box >= 0)
    tasksAfter(panel, what.box).slice(0, 6).forEach(box => links.append(linkTo(panel, box, taskName(panel, box) + " →")));
}

// What the devices of the open panels do in a range of time.
function rangeContent({from, to}) {
  const open = panels.filter(panel => !panel.folded), rows = [], sums = new Map();
  let all = 0, tasks = 0;
  const add = (name, lane, i) => {
    const part = Math.min(lane.finish[i], to) - Math.max(lane.start[i], from);
    if (part > 0)
      sums.set(name, (sums.get(name) || 0) + part);
  };
  for (const panel of open)
    for (const row of panel.rows) {
      all += Math.max(Math.min(to, panel.length) - Math.max(from, 0), 0);
      for (const lane of row.lanes) {
        const [first, last] = boxesIn(lane, from, to);
        tasks += last - first;
        for (let i = first; i < last; ++i)
          add(ops[panel.boxes.op[i]].words, lane, i);
      }
      const [first, last] = boxesIn(row.gaps, from, to);
      for (let i = first; i < last; ++i)
        add("idle: " + panel.causes[panel.gaps.cause[i]].title, row.gaps, i);
    }
  rows.push(["tasks", tasks, ""]);
  for (const [name, time] of [...sums].sort((a, b) => a[0].startsWith("idle") - b[0].startsWith("idle") || b[1] - a[1]))
    rows.push([name, timeText(time), percentText(time / all)]);
  return {title: timeText(to - from) + " from " + timeText(from), words: "sums over all devices, and parts of their time", rows};
}

// Selects a task, idle time or nothing; `reveal`: moves it into the picture.
function select(what, reveal = false) {
  view.selected = what;
  view.range = null;
  showCard(null);
  if (what) {
    view.cursor = what;
    if (reveal)
      revealBox(what);
  }
  showPinned(what);
  request("over");
}

function selectRange(from, to) {
  view.selected = null;
  view.range = {from: Math.max(Math.min(from, to), 0), to: Math.min(Math.max(from, to), facts.length)};
  showPinned({range: view.range});
  request("over");
}

function revealBox({panel, row, box, gap}) {
  const group = groupOfRow(row);
  if (panel.folded || row.folded || group?.folded) {
    panel.folded = row.folded = false;
    if (group)
      group.folded = false;
    layOut();
    request("all");
  }
  const lane = box >= 0 ? panel.boxes : panel.gaps, i = box >= 0 ? box : gap, length = view.to - view.from;
  if (lane.start[i] < view.from || lane.end[i] > view.to || xOf(lane.end[i]) - xOf(lane.start[i]) < 3) {
    const wide = Math.min(length, Math.max(60 * (lane.end[i] - lane.start[i]), 10));
    const middle = (lane.start[i] + lane.end[i]) / 2;
    show(middle - wide / 2, middle + wide / 2);
  }
  revealRow(row);
}

function revealRow(row) {
  const {item} = row, place = stage.getBoundingClientRect(), bar = byId("bar").offsetHeight + kAxis + 1;
  const top = view.scroll + Math.max(bar - place.top, 0);  // of what is seen of the rows
  const bottom = view.scroll + Math.min(view.stage, innerHeight - place.top);
  if (item && (item.top < top + 8 || item.top + item.height > bottom - 8))
    scrollToRows(item.top);
}

// Scrolls to where a height of the rows is in the middle of the stage.
function scrollToRows(height) {
  const bar = byId("bar").offsetHeight + kAxis + 1;
  scrollTo({top: byId("rows").getBoundingClientRect().top + scrollY - bar + height - view.stage / 2});
}
