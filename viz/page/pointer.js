// Pointer and wheel.
let grab = null;           // what a pressed pointer moves
const touches = new Map();  // pointers that are down

function placeIn(event) {
  const box = stage.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

const sameThing = (a, b) => a === b || (a && b && a.panel === b.panel && a.box === b.box && a.gap === b.gap && a.row === b.row);

function hover(event) {
  const [x, y] = placeIn(event), at = whatIsAt(x, y), what = at && (at.box >= 0 || at.gap >= 0) ? at : null;
  showHair(x);
  stage.classList.toggle("pointing", Boolean(at && (at.box >= 0 || at.label || at.group || (at.title && panels.length > 1))));
  if (!sameThing(what, view.hovered)) {
    view.hovered = what;
    request("over");
  }
  showCard(sameThing(view.hovered, view.selected) ? null : view.hovered, event.clientX, event.clientY);
}

function leave() {
  showHair(null);
  showCard(null);
  if (view.hovered) {
    view.hovered = null;
    request("over");
  }
}

function wheel(event) {
  const zooms = event.ctrlKey || event.metaKey, sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (!zooms && !sideways)
    return;
  event.preventDefault();
  const scale = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 300 : 1;
  if (zooms) {
    const far = event.deltaY * scale * (Math.abs(event.deltaY) < 20 ? 6 : 1);  // a pinch on a touchpad has small steps
    zoomBy(1.0015 ** Math.min(Math.max(far, -600), 600), event.clientX - stage.getBoundingClientRect().left);
  } else {
    moveBy((Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.deltaY) * scale / plotWidth());
  }
}

function pinch() {
  const [a, b] = [...touches.values()], distance = Math.max(Math.abs(a - b), 20);
  if (grab?.distance)
    zoomBy(grab.distance / distance, (a + b) / 2);
  grab = {distance};
}

function press(event) {
  if (event.button)
    return;
  const [x, y] = placeIn(event);
  touches.set(event.pointerId, x);
  if (touches.size === 2)
    return pinch();
  grab = {x, y, from: view.from, to: view.to, range: event.shiftKey, moved: false};
  stage.setPointerCapture(event.pointerId);
}

function drag(event) {
  if (!grab)
    return hover(event);
  const [x] = placeIn(event);
  touches.set(event.pointerId, x);
  if (touches.size === 2)
    return pinch();
  if (grab.distance || (!grab.moved && Math.abs(x - grab.x) < 4))
    return;
  grab.moved = true;
  leave();
  if (grab.range) {
    const at = view.from + (grab.x - view.left) / plotWidth() * (view.to - view.from);
    view.range = {from: Math.min(at, timeAt(x)), to: Math.max(at, timeAt(x))};
    request("over");
    return;
  }
  stage.classList.add("moving");
  const by = (grab.x - x) / plotWidth() * (grab.to - grab.from);
  show(grab.from + by, grab.to + by);
}

function release(event) {
  touches.delete(event.pointerId);
  stage.classList.remove("moving");
  const was = grab;
  grab = null;
  if (!was || was.distance || event.type === "pointercancel")
    return;
  if (was.moved)
    return was.range ? selectRange(view.range.from, view.range.to) : undefined;
  const at = whatIsAt(was.x, was.y);
  if (at?.title)
    return panels.length > 1 ? foldPanel(at.panel) : undefined;
  if (at?.group)
    return foldGroup(at.group);
  if (at?.label)
    return foldRow(at.row);
  select(at, false);
}

function listenToPointer() {
  stage.addEventListener("pointerdown", press);
  stage.addEventListener("pointermove", drag);
  stage.addEventListener("pointerup", release);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener("pointerleave", () => grab || leave());
  stage.addEventListener("dblclick", () => show(0, facts.length));
  for (const element of [stage, axis, curves])
    element.addEventListener("wheel", wheel, {passive: false});
  curves.addEventListener("pointermove", event => {
    const x = event.clientX - curves.getBoundingClientRect().left;
    showHair(x);
    noteMemory(x >= view.left && x <= view.width - view.right ? timeAt(x) : null);
  });
  curves.addEventListener("pointerleave", () => { showHair(null); noteMemory(); });
}
