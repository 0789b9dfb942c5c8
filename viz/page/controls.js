// Legend, buttons, the table of plans, and the help.
function button(parent, text, title, action) {
  const made = parent.appendChild(document.createElement("button"));
  made.type = "button";
  made.textContent = text;
  made.title = title;
  made.onclick = () => action(made);
  return made;
}

function group() {
  const made = byId("tools").appendChild(document.createElement("div"));
  made.className = "group";
  return made;
}

const toggles = {};
function toggle(parent, name, text, title, changed) {
  const made = button(parent, text, title, () => set(!view[name]));
  const set = value => {
    view[name] = value;
    made.setAttribute("aria-pressed", value);
    changed();
  };
  made.setAttribute("aria-pressed", view[name]);
  toggles[name] = () => set(!view[name]);
}

function makeTools() {
  const has = name => panels.some(panel => name(panel));
  const relay = () => { layOut(); makeLegend(); request("all"); };
  const shown = group();
  if (has(panel => panel.boxes.critical))
    toggle(shown, "critical", "critical path", "tasks that determine the step time (c)", () => { applyLit(); request("all"); });
  if (has(panel => panel.causes.length))
    toggle(shown, "idle", "idle causes", "idle time in the colour of its cause (i)", relay);
  if (has(panel => panel.rows.some(row => row.sends.end > row.sends.begin)))
    toggle(shown, "transfers", "transfers", "sends and receives below the tasks (t)", relay);
  if (panels.length > 1)
    toggle(shown, "paired", "by device", "the rows of one device below each other (d)", () => { measureLabels(); relay(); });
  toggle(shown, "patterns", "patterns", "a pattern for each operation, in addition to its colour (p)", relay);
  const zoom = group();
  button(zoom, "−", "zoom out (-)", () => zoomBy(1 / 0.7)).setAttribute("aria-label", "zoom out");
  button(zoom, "all", "show the whole time (0)", () => show(0, facts.length));
  button(zoom, "+", "zoom in (+)", () => zoomBy(0.7)).setAttribute("aria-label", "zoom in");
  const rows = group();
  button(rows, "▴", "lower rows", () => setRow(view.row - (view.row > 12 ? 4 : 2)));
  button(rows, "▾", "higher rows", () => setRow(view.row + 4));
  const others = group();
  button(others, "◐", "light or dark (n)", switchTheme).setAttribute("aria-label", "light or dark");
  button(others, "?", "keys", () => byId("help").showModal()).setAttribute("aria-label", "keys");
}

function setRow(height) {
  view.row = Math.min(Math.max(height, 4), 48);
  layOut();
  request("all");
}

function switchTheme() {
  const dark = unpack(colours.ground)[0] < 128;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  themeChanged();
}

function themeChanged() {
  readColours();
  makeLegend();
  madeTables.forEach(made => { made.key = ""; });
  request("all");
}

function makeLegend() {
  const legend = byId("legend");
  legend.replaceChildren();
  const key = (words, colour, kind = "", letters = [""]) => {
    const made = legend.appendChild(document.createElement("span"));
    made.className = "key";
    const swatches = made.appendChild(document.createElement("span"));
    swatches.className = "swatches";
    [colour].flat().forEach((each, k) => {
      const swatch = swatches.appendChild(document.createElement("i"));
      swatch.className = kind;
      swatch.style.background = each.css;
      swatch.style.color = each.textCss || "";
      swatch.textContent = letters[k] ?? "";
    });
    made.append(words);
  };
  for (const {op, words} of facts.legend) {
    const transfer = ops[op].transfer;
    if (!transfer)
      key(words, colours.ops[op], "", [ops[op].letters]);
    else if (view.transfers)
      key(words, colours.ops[op][0], "thin");
  }
  const note = text => { legend.appendChild(document.createElement("span")).textContent = text; };
  if (Math.max(...panels.map(panel => panel.chunks)) > 1)
    note("tints: the stages of a device, the first the darkest");
  if (view.idle) {
    const used = new Set();
    panels.forEach(panel => panel.gaps.cause.forEach(cause => used.add(cause)));
    const causes = panels.find(panel => panel.causes.length)?.causes || [];
    causes.forEach((cause, k) => used.has(k) && key("idle: " + cause.title, colours.causes[k], "stripes"));
  }
}

// The heads of the table of plans sort it; a row shows its panel.
function makeRanking() {
  const table = byId("ranking");
  if (!table)
    return;
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const valueOf = (row, k) => k ? +row.cells[k]?.dataset.value : row.cells[0].textContent;
  makeHeads(heads, (k, way) => body.append(...[...body.rows].sort((a, b) => {
    const [x, y] = [valueOf(a, k), valueOf(b, k)];
    return (x < y ? -1 : x > y ? 1 : 0) * way;
  })));
  heads[1]?.firstChild.click();
  for (const row of body.rows)
    row.onclick = () => {
      const panel = panels[row.dataset.panel];
      panel.folded = false;
      layOut();
      request("all");
      const top = byId("rows").getBoundingClientRect().top + scrollY - byId("bar").offsetHeight - kAxis;
      scrollTo({top: top + view.items.find(item => item.panel === panel).top});
    };
}

const kKeys = [["← →", "move in time"], ["↑ ↓", "the row above or below"], [", .", "the task before or after in the row"],
               ["+ −", "zoom; with Ctrl or ⌘ the browser's own"], ["0", "the whole time"], ["Home End", "the beginning, the end"],
               ["Enter", "the card of the task in focus, with its arrows"], ["Esc", "close the card, end the search"],
               ["/", "search: 2F7, F7, stage 3, device 5, micro-batch 12; Enter goes to the next"],
               ["f", "fold the row, Shift+F its panel, Shift+G its group"],
               ["g", "groups of rows: by host, by replica, none"],
               ["c", "critical path"], ["i", "causes of idle time"], ["t", "transfers"], ["p", "patterns"], ["d", "rows by device"],
               ["n", "light or dark"], ["z", "zoom to the selected range"], ["[ ]", "the step before or after"],
               ["wheel", "scrolls; with Ctrl or ⌘ zooms, with Shift moves in time"],
               ["drag", "moves in time; with Shift selects a range"], ["double-click", "the whole time"]];
function makeHelp() {
  for (const [keys, words] of kKeys) {
    const line = byId("keys").insertRow(), cell = line.insertCell();
    keys.split(" ").forEach(key => { cell.appendChild(document.createElement("kbd")).textContent = key; cell.append(" "); });
    line.insertCell().textContent = words;
  }
}
