// The tables below the timeline: their heads sort them, and a button saves them. The tasks shown and the messages between
// devices are such tables, made when they are opened.
const kSizes = {ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
                KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, "%": 0.01, "": 1};

// The number that a text begins with, in a unit common to its quantity; NaN where it begins with none.
function numberIn(text) {
  const found = text.trim().match(/^([-+]?[\d.]+(?:e[-+]?\d+)?) ?([a-zA-Zµ%]*)/);
  return found ? found[1] * (kSizes[found[2]] ?? 1) : NaN;
}

function compareTexts(a, b) {
  const [x, y] = [numberIn(a), numberIn(b)];
  return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || (a < b ? -1 : a > b ? 1 : 0) : x - y;
}

const csvOf = rows => rows.map(row => row.map(text => /[",\n]/.test(text) ? '"' + String(text).replaceAll('"', '""') + '"' : text)
                                        .join(",")).join("\n") + "\n";

function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.download = name.toLowerCase().replace(/[^a-z0-9]+/g, "-") + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A head sorts: up at first, then down.
function makeHeads(heads, sortBy) {
  heads.forEach((head, k) => {
    const text = head.textContent;
    head.replaceChildren();
    button(head, text, "sort", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortBy(k, up ? 1 : -1);
    });
  });
}

function makeTables() {
  for (const details of byId("tables").querySelectorAll("details")) {
    const table = details.querySelector("table");
    if (!table || table.rows.length < 2)
      continue;
    const name = details.querySelector("summary").textContent, rows = [...table.rows].slice(1), texts = () => [...table.rows];
    makeHeads([...table.rows[0].cells], (k, way) =>
      table.tBodies[0].append(...rows.sort((a, b) => way * compareTexts(a.cells[k]?.textContent || "", b.cells[k]?.textContent || ""))));
    button(details, "save as CSV", "", () => save(name, csvOf(texts().map(row => [...row.cells].map(cell => cell.textContent)))));
  }
  addMadeTable("Tasks shown", taskTable);
  addMadeTable("Messages between devices", messageTable);
}

// A folded table that is made when it is opened, and again when the picture changes. `make` returns {heads, rows, note}:
// rows of values, with a text for each.
const madeTables = [];
function addMadeTable(name, make) {
  const details = document.createElement("details"), summary = details.appendChild(document.createElement("summary"));
  summary.textContent = name;
  byId("tables").append(details);
  const made = {details, name, make, order: null, key: ""};
  details.ontoggle = () => refreshTable(made);
  madeTables.push(made);
}

const kMostRows = 500;  // of a table that is made
function refreshTable(made) {
  if (!made.details.open)
    return;
  const {heads, rows, note, picture} = made.make(), [column, way] = made.order || [0, 0];
  if (way)
    rows.sort((a, b) => way * (typeof a[column] === "number" ? a[column] - b[column] : compareTexts(String(a[column]), String(b[column]))));
  const wide = document.createElement("div"), table = wide.appendChild(document.createElement("table"));
  wide.className = "wide";
  const line = table.createTHead().insertRow(), body = table.createTBody();
  const cells = heads.map(([text]) => {
    const cell = line.appendChild(document.createElement("th"));
    cell.textContent = text;
    return cell;
  });
  makeHeads(cells, (k, direction) => { made.order = [k, direction]; refreshTable(made); });
  if (way)
    cells[column].setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
  for (const row of rows.slice(0, kMostRows)) {
    const shown = body.insertRow();
    heads.forEach(([, text], k) => { shown.insertCell().textContent = text ? text(row[k]) : row[k]; });
    if (row.select) {
      shown.className = "link";
      shown.onclick = row.select;
    }
  }
  const words = document.createElement("p");
  words.textContent = (rows.length > kMostRows ? `The first ${kMostRows} of ${rows.length}. ` : "") + note;
  made.details.replaceChildren(made.details.firstChild, words, ...(picture ? [picture] : []), wide);
  button(made.details, "save as CSV", "all rows, with times in ns", () =>
    save(made.name, csvOf([heads.map(([text]) => text), ...rows.map(row => row.map(value => value ?? ""))])));
}

function refreshTables() {
  for (const made of madeTables) {
    const key = [view.from, view.to, ...panels.map(panel => panel.folded + (panel.lit ? search.text : ""))].join();
    if (made.details.open && made.key !== key)
      refreshTable(made);
    made.key = key;
  }
}

// The tasks of open panels in the time shown, or those that the search found.
function taskTable() {
  const heads = [["device"], ["task"], ["operation"], ["stage"], ["micro-batch"], ["start", exactTime], ["end", exactTime],
                 ["duration", timeText], ["bytes"]], open = panels.filter(panel => !panel.folded), rows = [];
  const hasSlack = open.some(panel => panel.boxes.slack);
  if (hasSlack)
    heads.push(["slack", time => time === null ? "" : timeText(time)], ["critical"]);
  if (panels.length > 1)
    heads.push(["plan"]);
  for (const panel of open) {
    const {boxes} = panel;
    for (let i = 0; i < boxes.start.length; ++i) {
      if (boxes.end[i] < view.from || boxes.start[i] > view.to || (panel.lit && search.test && !panel.lit[i]))
        continue;
      const row = [boxes.device[i], taskName(panel, i), ops[boxes.op[i]].words, boxes.stage[i], boxes.microbatch[i], boxes.start[i],
                   boxes.end[i], boxes.end[i] - boxes.start[i], boxes.bytes[i] > 0 ? boxes.bytes[i] : 0];
      if (hasSlack)
        row.push(boxes.slack ? boxes.slack[i] : null, boxes.critical?.[i] ? "yes" : "");
      if (panels.length > 1)
        row.push(panel.name);
      row.select = () => select({panel, row: panel.rows[boxes.device[i]], box: i}, true);
      rows.push(row);
    }
  }
  return {heads, rows, note: "A row goes to its task. The search restricts the table."};
}

// The device that sent what a RECV receives: of the send that it waits for, else the holder of the stage.
function senderOf(panel, box) {
  const before = predecessors(panel, box).find(other => panel.boxes.lane[other] === SEND);
  return before !== undefined ? panel.boxes.device[before]
                              : panel.stages.findIndex(stages => [stages].flat().includes(panel.boxes.peer[box]));
}

function messageTable() {
  const sums = new Map();
  for (const panel of panels.filter(each => !each.folded)) {
    const {boxes} = panel;
    for (const row of panel.rows)
      for (let i = row.receives.begin; i < row.receives.end; ++i) {
        if (boxes.end[i] < view.from || boxes.start[i] > view.to || boxes.peer[i] < 0)
          continue;
        const from = senderOf(panel, i), words = ops[boxes.op[i]].gradients ? "gradients" : "activations";
        const key = [panel.index, from, row.device, words].join();
        const sum = sums.get(key) || sums.set(key, [from, row.device, words, 0, 0, 0, ...(panels.length > 1 ? [panel.name] : [])]).get(key);
        ++sum[3];
        sum[4] += boxes.bytes[i];
        sum[5] += boxes.end[i] - boxes.start[i];
      }
  }
  const heads = [["from device"], ["to device"], ["content"], ["messages"], ["bytes", bytesText], ["time under way", timeText]];
  if (panels.length > 1)
    heads.push(["plan"]);
  const rows = [...sums.values()];
  return {heads, rows, picture: makeMatrix(rows), note: "Messages that are under way in the time shown."};
}
