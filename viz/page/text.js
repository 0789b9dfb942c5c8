// Numbers and names as the page shows them.
const kTimeUnits = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
const kByteUnits = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];
const kDecimalUnits = [["B", 1], ["kB", 1e3], ["MB", 1e6], ["GB", 1e9], ["TB", 1e12]];

// The units of the limits of memory, for all sizes of the page.
const byteUnits = () => panels.some(panel => panel.limits.some(limit => limit && limit % 1e4 === 0)) ? kDecimalUnits : kByteUnits;

// The largest unit of which `size` is at least one.
function unitFor(size, units) {
  return units.findLast(([, unit]) => size >= unit) || units[0];
}

function timeText(time) {
  const [name, unit] = unitFor(Math.abs(time), kTimeUnits);
  return +(time / unit).toPrecision(4) + " " + name;
}

// Every nanosecond of it, in the unit of `size`.
function exactTime(time, size = facts.length) {
  const [name, unit] = unitFor(size, kTimeUnits);
  return +(time / unit).toFixed(9) + " " + name;
}

function bytesText(bytes) {
  const [name, unit] = unitFor(bytes, byteUnits());
  return +(bytes / unit).toPrecision(4) + " " + name;
}


const percentText = part => (100 * part).toFixed(1) + " %";

// About `count` round steps of a range, 1, 2 or 5 times a power of ten.
function roundStep(range, count) {
  const raw = range / count, decade = 10 ** Math.floor(Math.log10(raw));
  return decade * ([1, 2, 5, 10].find(factor => factor * decade >= raw) || 10);
}

// Whether its micro-batches are cut into slices.
const isSliced = panel => panel.sliced ??= panel.boxes.slice.some(slice => slice > 0);

// The number of a task's micro-batch, with its slice: "7", "7.1".
const numberOf = (panel, box) =>
  panel.boxes.microbatch[box] + (isSliced(panel) ? "." + panel.boxes.slice[box] : "");

// "2F7", and of transfers "2SEND_F7>3".
function taskName(panel, box) {
  const {op, stage, peer} = panel.boxes, fact = ops[op[box]];
  const end = peer[box] >= 0 ? (fact.receive ? "<" : ">") + peer[box] : "";
  return stage[box] + fact.letters + numberOf(panel, box) + end;
}

function deviceName(panel, device) {
  const name = panel.names[device];
  return "device " + device + (name && name !== String(device) ? " (" + name + ")" : "");
}

const versionText = (panel, box) =>
  "v" + panel.boxes.version[box] + (panel.boxes.ahead[box] ? "+" + panel.boxes.ahead[box] : "");

// What a search asks for, as a test of boxes; null where it cannot be read.
function queryOf(text) {
  const words = text.trim().toLowerCase().replace(/[-_]/g, "");
  let found = words.match(/^(stage|device|microbatch|mb|step|version) ?(\d+)$/);
  if (found) {
    const column = {mb: "microbatch"}[found[1]] || found[1], wanted = +found[2];
    return boxes => boxes[column] && (i => boxes[column][i] === wanted);
  }
  found = words.match(/^(\d*)(sendf|sendb|recvf|recvb|offload|reload|[a-z])(\d*)(?:\.(\d+))?(?:[<>]\d+)?$/);
  const op = found ? ops.findIndex(fact => fact.letters.toLowerCase().replace("_", "") === found[2]) : -1;
  if (op < 0)
    return null;
  const [, stage, , microbatch, slice] = found;
  return boxes => i => boxes.op[i] === op && (stage === "" || boxes.stage[i] === +stage) &&
                       (microbatch === "" || boxes.microbatch[i] === +microbatch) &&
                       (slice === undefined || boxes.slice[i] === +slice);
}
