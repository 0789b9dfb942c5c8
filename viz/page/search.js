// Search for tasks, and which boxes are bright: those that were found, or those on the critical path.
const search = {test: null, found: [], at: -1};  // found: the numbers of panel and box, in turn

function applyLit() {
  for (const panel of panels) {
    const test = search.test && search.test(panel.boxes), critical = view.critical && panel.boxes.critical;
    panel.lit = test ? Uint8Array.from(panel.boxes.op, (_, i) => test(i) ? 1 : 0) : critical || null;
  }
}

function searchFor(text) {
  search.test = text.trim() ? queryOf(text) : null;
  search.found = [];
  search.at = -1;
  applyLit();
  if (search.test)
    for (const panel of panels)
      panel.lit?.forEach((is, i) => { if (is && !isTransfer(panel, i)) search.found.push(panel.index, i); });
  const count = search.found.length / 2, result = count ? count + (count > 1 ? " tasks" : " task") : "none";
  byId("found").textContent = !text.trim() ? "" : search.test ? result : "try 2F7, stage 3";
  request("all");
}

function nextFound(step) {
  const count = search.found.length / 2;
  if (!count)
    return;
  search.at = (search.at + step + count) % count;
  byId("found").textContent = search.at + 1 + " of " + count;
  const panel = panels[search.found[2 * search.at]], box = search.found[2 * search.at + 1];
  select({panel, row: panel.rows[panel.boxes.device[box]], box}, true);
}

function makeSearch() {
  const query = byId("query");
  query.oninput = () => searchFor(query.value);
  byId("search").onsubmit = event => event.preventDefault();
  query.onkeydown = event => {
    if (event.key === "Enter") {
      event.preventDefault();
      nextFound(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      query.value = "";
      searchFor("");
      stage.focus();
    }
  };
}
