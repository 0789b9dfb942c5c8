// Puts everything together: what has to be drawn again is drawn in the next frame.
const pending = {};
let frame = 0;

function request(part) {
  pending[part] = true;
  frame ||= requestAnimationFrame(redraw);
}

function redraw() {
  cancelAnimationFrame(frame);
  frame = 0;
  const {all, rows} = pending;
  pending.all = pending.rows = pending.over = false;
  if (all)
    measure();
  if (all || rows) {
    const marks = ticks();
    drawRows(marks);
    drawOverview();
    if (all) {
      drawAxis(marks);
      drawMemory(marks);
      showHair(view.hair);  // the time at the pointer has changed
    }
  }
  drawOver();
  noteStep();
  noteAddress();
}

// Widths and heights of the canvases, and how far the rows are scrolled.
function measure() {
  view.width = document.documentElement.clientWidth;
  fit(curves, view.width, kMemory);
  measureScroll();
  const bar = byId("bar").offsetHeight;
  axis.style.top = bar + "px";
  stage.style.top = bar + kAxis + 1 + "px";
  byId("rows").style.height = view.height + "px";
  const room = innerHeight - bar - kAxis - 1 - (byId("memory").hidden ? 0 : byId("memory").offsetHeight);
  view.stage = Math.max(Math.min(view.height, room), Math.min(view.height, 120));
  stage.style.height = view.stage + "px";
  if (document.documentElement.clientWidth !== view.width)  // a vertical scroll bar has come
    view.width = document.documentElement.clientWidth;
  overview.hidden = narrow() || view.height < 2 * view.stage;
  view.right = kMargin + (overview.hidden ? 0 : kOverview);
  measureScroll();
}

function measureScroll() {
  view.scroll = stage.offsetTop;
}

// Shows a range of time: within the picture, and 10 ns at least.
function show(from, to) {
  const length = Math.min(Math.max(to - from, 10), facts.length);
  view.from = Math.min(Math.max(from, 0), facts.length - length);
  view.to = view.from + length;
  request("all");
}

function titleOfPage() {
  if (panels.length === 1)
    return panels[0].title;
  if (panels.length > 3)
    return panels.length + " timelines";
  const schedules = new Set(panels.map(panel => panel.schedule)), names = panels.map(panel => panel.name).join(" and ");
  return names + (schedules.size === 1 && !names.includes(panels[0].schedule) ? ", " + panels[0].schedule : "");
}

async function start() {
  await readPanels();
  byId("title").textContent = facts.title || titleOfPage();
  const advice = panels.filter(panel => panel.advice).map(panel => (panels.length > 1 ? panel.name + ": " : "") + panel.advice);
  byId("advice").hidden = !advice.length;
  byId("advice").textContent = advice.join("; ");
  [view.from, view.to] = facts.shown;
  view.width = document.documentElement.clientWidth;
  byId("memory").hidden = !facts.memory;
  chooseRowHeight();
  readColours();
  measureLabels();
  makeTools();
  makeSteps();
  makeGroups();
  makeLegend();
  makeRanking();
  makeTables();
  makeSearch();
  makeHelp();
  layOut();
  listenToKeys();
  listenToPointer();
  listenToOverview();
  listenToAddress();
  byId("fold-memory").onclick = event => {
    curves.hidden = !curves.hidden;
    event.currentTarget.setAttribute("aria-expanded", !curves.hidden);
    request("all");
  };
  addEventListener("scroll", () => {
    const before = view.scroll;
    measureScroll();
    if (view.scroll !== before)
      request("rows");
  }, {passive: true});
  addEventListener("resize", () => { view.width = document.documentElement.clientWidth; measureLabels(); layOut(); request("all"); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
  request("all");
  redraw();
  document.documentElement.dataset.ready = "yes";
}

start().catch(error => {
  const trouble = byId("trouble");
  trouble.hidden = false;
  trouble.textContent = "This page cannot be drawn: " + error.message + ". It needs a browser of 2023 or later.";
  throw error;
});
