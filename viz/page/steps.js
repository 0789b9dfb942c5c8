// The steps of training, where a timeline has several: a list of them, whose choice shows the time of a step.
let stepRanges = [];  // {step, from, to}

function findSteps() {
  const ranges = new Map();
  for (const {boxes} of panels)
    for (let i = 0; i < boxes.start.length; ++i) {
      const {step} = boxes, range = ranges.get(step[i]);
      if (!range)
        ranges.set(step[i], {step: step[i], from: boxes.start[i], to: boxes.end[i]});
      else {
        range.from = Math.min(range.from, boxes.start[i]);
        range.to = Math.max(range.to, boxes.end[i]);
      }
    }
  stepRanges = [...ranges.values()].sort((a, b) => a.step - b.step);
}

function showStep(index) {
  const range = stepRanges[index];
  if (!range)
    return show(0, facts.length);
  const room = (range.to - range.from) * 0.01;
  show(range.from - room, range.to + room);
}

// The step in the middle of the time shown: the latest that has begun.
function stepShown() {
  const middle = (view.from + view.to) / 2;
  return stepRanges.findLastIndex(range => range.from <= middle);
}

const moveStep = by => stepRanges.length > 1 && showStep(Math.min(Math.max(stepShown() + by, 0), stepRanges.length - 1));

function makeSteps() {
  findSteps();
  if (stepRanges.length < 2)
    return;
  const steps = group(), list = document.createElement("select");
  list.id = "steps";
  list.title = "show a step ([ and ])";
  list.setAttribute("aria-label", "step");
  list.add(new Option("all steps", -1));
  stepRanges.forEach((range, index) => list.add(new Option("step " + range.step, index)));
  list.onchange = () => showStep(+list.value);
  button(steps, "◂", "the step before ([)", () => moveStep(-1)).setAttribute("aria-label", "the step before");
  steps.append(list);
  button(steps, "▸", "the step after (])", () => moveStep(1)).setAttribute("aria-label", "the step after");
}

// What the list shows follows the picture.
function noteStep() {
  const list = byId("steps");
  if (!list)
    return;
  const range = stepRanges[stepShown()], whole = view.from <= 0 && view.to >= facts.length;
  list.value = whole || !range || view.to - view.from > 1.1 * (range.to - range.from) ? -1 : stepRanges.indexOf(range);
}
