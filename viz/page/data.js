"use strict";
// What the page holds: the columns of viz/page/timeline_page.cpp as typed arrays, and look-ups in them.
const facts = JSON.parse(document.getElementById("facts").textContent);
const ops = facts.ops;
let panels = [];

async function unpacked(text) {
  const binary = atob(text), packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i)
    packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Reads columns one after the other (viz/page/columns.h).
function columnReader(bytes) {
  let at = 0;
  return (column, Type) => {
    const values = new Type(column.count);
    if (!column.bytes)
      return column.same ? values.fill(column.same) : values;
    let value = 0;
    for (let i = 0; i < column.count; ++i) {
      let byte = bytes[at++], number = byte & 127;
      for (let shift = 7; byte > 127 && shift < 28; shift += 7) {
        byte = bytes[at++];
        number |= (byte & 127) << shift;
      }
      if (byte < 128) {
        value += number & 1 ? -(number >> 1) - 1 : number >> 1;
      } else {  // more than whole numbers of 31 bits
        for (let scale = 2 ** 28; byte > 127; scale *= 128) {
          byte = bytes[at++];
          number += (byte & 127) * scale;
        }
        value += number % 2 ? -(number + 1) / 2 : number / 2;
      }
      values[i] = value;
    }
    return values;
  };
}

const SEND = 254, RECEIVE = 255;  // lanes of transfers
const kTypes = {start: Float64Array, duration: Float64Array, bytes: Float64Array, slack: Float64Array,
                op: Uint8Array, chunk: Uint8Array, critical: Uint8Array, back: Int32Array};

// A lane is a range of boxes sorted by start; `reach` has the latest end so far, by which a search by time goes.
function laneOf(begin, end, start, finish) {
  let monotone = true;
  for (let i = begin + 1; i < end && monotone; ++i)
    monotone = finish[i] >= finish[i - 1];
  let reach = finish.subarray(begin, end);
  if (!monotone) {
    reach = Float64Array.from(reach);
    for (let i = 1; i < reach.length; ++i)
      reach[i] = Math.max(reach[i], reach[i - 1]);
  }
  return {begin, end, start, finish, reach};
}

function readPanel(panel, index, read) {
  const boxes = {};
  for (const [name, column] of Object.entries(panel.boxes))
    boxes[name] = read(column, kTypes[name] || Int32Array);
  boxes.end = boxes.duration;
  for (let i = 0; i < boxes.end.length; ++i)
    boxes.end[i] += boxes.start[i];
  const gapCounts = read(panel.gaps.counts, Int32Array), gaps = {
    start: read(panel.gaps.start, Float64Array), end: read(panel.gaps.duration, Float64Array),
    cause: read(panel.gaps.cause, Uint8Array), waitsFor: read(panel.gaps.waits_for, Int32Array),
    equal: read(panel.gaps.equal, Float64Array)};
  for (let i = 0; i < gaps.end.length; ++i)
    gaps.end[i] += gaps.start[i];
  const samples = read(panel.memory.counts, Int32Array);
  const memory = {time: read(panel.memory.time, Float64Array), bytes: read(panel.memory.bytes, Float64Array)};
  const made = {...panel, index, boxes, gaps, memory, rows: [], folded: false, lit: null};
  boxes.device = new Uint16Array(boxes.start.length);
  boxes.lane = new Uint8Array(boxes.start.length);
  let at = 0, gapAt = 0, memoryAt = 0;
  panel.rows.forEach((counts, device) => {
    const take = (count, lane) => {
      boxes.device.fill(device, at, at + count);
      boxes.lane.fill(lane, at, at + count);
      at += count;
      return laneOf(at - count, at, boxes.start, boxes.end);
    };
    const row = {panel: made, device, folded: false, label: panel.labels[device], lanes: counts.lanes.map(take)};
    row.sends = take(counts.sends, SEND);
    row.receives = take(counts.receives, RECEIVE);
    gapAt += gapCounts[device];
    row.gaps = laneOf(gapAt - gapCounts[device], gapAt, gaps.start, gaps.end);
    memoryAt += samples[device];
    row.memory = {begin: memoryAt - samples[device], end: memoryAt};
    made.rows.push(row);
  });
  return made;
}

async function readPanels() {
  const holder = document.getElementById("columns");
  const read = columnReader(await unpacked(holder.textContent));
  holder.remove();
  panels = facts.panels.map((panel, index) => readPanel(panel, index, read));
  for (const name of [panel => panel.label, panel => panel.schedule, panel => panel.label + ", " + panel.schedule])
    if (new Set(panels.map(name)).size === panels.length)
      return panels.forEach(panel => { panel.name = name(panel); });
}

// The first number from `low` on for which `is` holds; `high` if there is none.
function firstWhere(low, high, is) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The boxes of a lane that a time range meets: from the first to before the last.
function boxesIn(lane, from, to) {
  const first = firstWhere(lane.begin, lane.end, i => lane.reach[i - lane.begin] >= from);
  return [first, firstWhere(first, lane.end, i => lane.start[i] > to)];
}

// The box of a lane at a time, or the nearest one that is less than `near` away; -1: none.
function boxAt(lane, time, near) {
  const [first, last] = boxesIn(lane, time - near, time + near);
  let best = -1, least = Infinity;
  for (let i = first; i < last; ++i) {
    const away = Math.max(lane.start[i] - time, time - lane.finish[i], 0);
    if (away < least || (away === least && lane.finish[i] - lane.start[i] < lane.finish[best] - lane.start[best])) {
      least = away;
      best = i;
    }
  }
  return best;
}

// By micro-batch the numbers of its boxes, made when it is first asked for.
function boxesOfMicrobatch(panel, microbatch) {
  if (!panel.byMicrobatch) {
    const numbers = panel.boxes.microbatch, most = numbers.reduce((a, b) => Math.max(a, b), 0);
    const begin = new Int32Array(most + 2);
    for (const number of numbers)
      ++begin[number + 1];
    for (let i = 1; i < begin.length; ++i)
      begin[i] += begin[i - 1];
    const next = begin.slice(), order = new Int32Array(numbers.length);
    numbers.forEach((number, i) => { order[next[number]++] = i; });
    panel.byMicrobatch = {begin, order};
  }
  const {begin, order} = panel.byMicrobatch;
  return order.subarray(begin[microbatch], begin[microbatch + 1]);
}

const isTransfer = (panel, box) => ops[panel.boxes.op[box]].transfer;

// The task before (step -1) or after (step 1) a task on its device; -1 if there is none.
function neighbour(panel, box, step) {
  const {start, device} = panel.boxes, isLater = i => start[i] > start[box] || (start[i] === start[box] && i > box);
  const found = panel.rows[device[box]].lanes.flatMap(({begin, end}) => {
    const i = step > 0 ? firstWhere(begin, end, isLater) : firstWhere(begin, end, k => k === box || isLater(k)) - 1;
    return i >= begin && i < end ? [i] : [];
  });
  return found.sort((a, b) => step * (start[a] - start[b] || a - b))[0] ?? -1;
}

// The lanes of tasks of a row are parts of its height: the first one all of it, the others equal parts.
const partOf = (panel, lane) => lane === 0 ? [0, 1] : [(lane - 1) / panel.lanes, lane / panel.lanes];

// The boxes that a box waited for last: its message or input, and the task before it on its device.
function predecessors(panel, box) {
  const {back, lane} = panel.boxes;
  const found = back && back[box] ? [box - back[box]] : [];
  if (lane[box] < SEND && neighbour(panel, box, -1) >= 0)
    found.push(neighbour(panel, box, -1));
  return found;
}

// The boxes that wait for a box last, and the task after it on its device.
function successors(panel, box) {
  const {back, lane} = panel.boxes, found = [];
  if (back) {
    if (!panel.readers) {
      const begin = new Int32Array(back.length + 1), order = new Int32Array(back.length);
      back.forEach((far, i) => { if (far) ++begin[i - far + 1]; });
      for (let i = 1; i < begin.length; ++i)
        begin[i] += begin[i - 1];
      const next = begin.slice();
      back.forEach((far, i) => { if (far) order[next[i - far]++] = i; });
      panel.readers = {begin, order};
    }
    found.push(...panel.readers.order.subarray(panel.readers.begin[box], panel.readers.begin[box + 1]));
  }
  if (lane[box] < SEND && neighbour(panel, box, 1) >= 0)
    found.push(neighbour(panel, box, 1));
  return found;
}
