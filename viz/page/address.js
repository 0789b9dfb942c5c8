// The part of the address after "#": the time shown, what the buttons chose and the selected task. A copied address shows
// the same picture.
const kChoices = ["critical", "idle", "transfers", "paired", "patterns"], chosenAtFirst = {};

function addressOf() {
  const parts = [], [from, to] = facts.shown;
  if (view.from !== from || view.to !== to)
    parts.push("time=" + Math.round(view.from) + "-" + Math.round(view.to));
  for (const choice of kChoices)
    if (view[choice] !== chosenAtFirst[choice])
      parts.push(choice + "=" + (view[choice] ? 1 : 0));
  if (view.group !== (groupKinds()[0] || ""))
    parts.push("group=" + (view.group || "none"));
  const closed = panels.flatMap(panel => (shownGroups(panel) || []).flatMap((group, k) => group.folded ? [panel.index + "-" + k] : []));
  if (closed.length)
    parts.push("closed=" + closed.join("."));
  const folded = panels.filter(panel => panel.folded).map(panel => panel.index);
  if (folded.length)
    parts.push("folded=" + folded.join("."));
  if (view.selected?.box >= 0)
    parts.push("task=" + view.selected.panel.index + "." + view.selected.box);
  return parts.join("&");
}

// Notes the address, and makes open tables anew, when the picture has not changed for a moment.
let addressTimer = 0;
function noteAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    refreshTables();
    const address = addressOf();
    if (address !== location.hash.slice(1))
      try {
        history.replaceState(null, "", "#" + address);
      } catch { /* a page inside another page may not */ }
  }, 250);
}

// Shows what the address says. What it does not say stays; what is wrong in it is passed over.
function readAddress() {
  const parts = new Map(location.hash.slice(1).split("&").map(part => part.split("=")));
  const [from, to] = (parts.get("time") || "").split("-").map(Number);
  if (to > from)
    show(from, to);
  for (const choice of kChoices)
    if (parts.has(choice) && toggles[choice] && view[choice] !== (parts.get(choice) === "1"))
      toggles[choice]();
  if (parts.has("group"))
    groupBy(parts.get("group"));
  for (const [panel, group] of (parts.get("closed") || "").split(".").map(part => part.split("-"))) {
    const found = panels[panel] && shownGroups(panels[panel])?.[group];
    if (found)
      found.folded = true;
  }
  for (const index of (parts.get("folded") || "").split(".").filter(Boolean))
    if (panels[index])
      panels[index].folded = true;
  layOut();
  const [panel, box] = (parts.get("task") || "").split(".").map(Number), of = panels[panel];
  if (of && box < of.boxes.start.length)
    select({panel: of, row: of.rows[of.boxes.device[box]], box});
  request("all");
}

function listenToAddress() {
  for (const choice of kChoices)
    chosenAtFirst[choice] = view[choice];
  readAddress();
  addEventListener("hashchange", readAddress);
}
