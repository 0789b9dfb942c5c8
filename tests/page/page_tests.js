// Tests of the script of a page of timelines: each returns nothing, or what is wrong.
const equal = (a, b, what) => a === b ? "" : `${what}: ${a} instead of ${b}`;
const firstOf = faults => faults.find(fault => fault) || "";

const pageTests = {
  four: {
    "columns are the tasks of the trace file"() {
      const {boxes} = panels[0], key = (op, stage, mb, peer, start, end) => [op, stage, mb, peer, start, end].join(" ");
      const own = Array.from(boxes.op, (op, i) =>
        key(ops[op].letters, boxes.stage[i], boxes.microbatch[i], boxes.peer[i], boxes.start[i], boxes.end[i])).sort();
      const events = oracle.trace.traceEvents.filter(event => event.ph === "X").map(({args}) =>
        key(args.op, args.stage, args.microbatch, args.peer, args.start_ns, args.end_ns)).sort();
      return equal(own.join("\n"), events.join("\n"), "tasks");
    },
    "columns are differences in bytes of seven bits"() {  // the numbers of tests/viz/test_page.cpp
      const bytes = Uint8Array.of(10, 5, 0x90, 3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 1, 2);
      const read = columnReader(bytes), values = read({count: 4, bytes: 10}, Float64Array);
      return equal([...values].join(), [5, 2, 202, 202 + 2 ** 40].join(), "values") ||
             equal([...read({count: 2, bytes: 2}, Int32Array)].join(), "-1,0", "the next column") ||
             equal([...read({count: 3, same: 7}, Uint8Array)].join(), "7,7,7", "equal values");
    },
    "idle time by cause is that of --explain"() {
      const panel = panels[0], keys = {"warm-up": ["warm_up_ns"], "cool-down": ["cool_down_ns"], lane: ["lane_ns"], data: ["data_ns"],
                                       dependency: ["dependency_ns", "imbalance_ns"], "copy of a send": ["send_memory_ns"]};
      return firstOf(panel.rows.flatMap((row, device) => Object.entries(keys).map(([title, names]) => {
        let sum = 0;
        for (let i = row.gaps.begin; i < row.gaps.end; ++i)
          sum += panel.causes[panel.gaps.cause[i]].title === title ? panel.gaps.end[i] - panel.gaps.start[i] : 0;
        const idle = oracle.report.explanation.idle[device];
        return equal(sum, names.reduce((all, name) => all + idle[name], 0), `device ${device}, ${title}`);
      })));
    },
    "tasks and idle time fill every row"() {
      return firstOf(panels[0].rows.map(row => {
        let sum = 0;
        for (const lane of [...row.lanes, row.gaps])
          for (let i = lane.begin; i < lane.end; ++i)
            sum += lane.finish[i] - lane.start[i];
        return equal(sum, panels[0].length, "device " + row.device);
      }));
    },
    "the critical path is as long as the step"() {
      const {critical, start, end, op} = panels[0].boxes, links = oracle.report.explanation.critical_links;
      let sum = links.reduce((all, link) => all + link.time_ns, 0);
      critical.forEach((is, i) => { sum += is && !ops[op[i]].transfer ? end[i] - start[i] : 0; });
      return equal(sum, panels[0].length, "length");
    },
    "slack is 0 on the critical path"() {
      return firstOf([...panels[0].boxes.critical].map((is, i) => is ? equal(panels[0].boxes.slack[i], 0, taskName(panels[0], i)) : ""));
    },
    "what is at the middle of a box is that box"() {
      return firstOf(panels[0].rows.flatMap(row => row.lanes.flatMap(lane => {
        const faults = [];
        for (let i = lane.begin; i < lane.end; ++i) {
          const {x, y, w, h} = placeOf(panels[0], i);
          if (w > 2)
            faults.push(equal(whatIsAt(x + w / 2, y + h / 2)?.box, i, taskName(panels[0], i)));
        }
        return faults;
      })));
    },
    "a box has its colour"() {
      const draw = base.getContext("2d"), {boxes} = panels[0];
      return firstOf(["F", "B"].map(letters => {
        const box = boxes.op.findIndex(op => ops[op].letters === letters), {x, y, w} = placeOf(panels[0], box);
        const [r, g, b] = draw.getImageData(Math.round(x + w / 2), Math.round(y + 2), 1, 1).data;
        return equal(css([r, g, b]), css(rgb(ops[boxes.op[box]].colour)), letters);
      }));
    },
    "a message leads from the task before it to the one after it"() {
      const panel = panels[0], {boxes} = panel;
      const find = text => boxes.op.findIndex((_, i) => taskName(panel, i) === text);
      const names = predecessors(panel, find("1F3")).map(box => taskName(panel, box));
      const receive = predecessors(panel, find("1RECV_F3<0")).map(box => taskName(panel, box));
      const send = successors(panel, find("0F3")).map(box => taskName(panel, box));
      return equal(names[0], "1RECV_F3<0", "1F3") || equal(receive[0], "0SEND_F3>1", "1RECV_F3") ||
             equal(send.includes("0SEND_F3>1"), true, "0F3");
    },
    "searches find stages, micro-batches, tasks and transfers"() {
      const count = text => { searchFor(text); return search.found.length / 2; };
      const faults = [equal(count("2F7"), 1, "2F7"), equal(count("f7"), 4, "f7"), equal(count("stage 3"), 17, "stage 3"),
                      equal(count("micro-batch 5"), 8, "micro-batch 5"), equal(count("B"), 32, "B"), equal(count("device 1"), 17, "device 1"),
                      equal(count("nonsense"), 0, "nonsense"), equal(panels[0].lit, null, "lit")];
      searchFor("");
      return firstOf(faults);
    },
    "a folded row is lower and has no tasks to point at"() {
      const before = view.height;
      foldRow(panels[0].rows[0]);
      const after = view.height;
      foldRow(panels[0].rows[0]);
      return equal(after < before, true, "lower") || equal(view.height, before, "height");
    },
    "keys of the browser stay its own"() {
      const event = new KeyboardEvent("keydown", {key: "+", ctrlKey: true, bubbles: true, cancelable: true});
      stage.dispatchEvent(event);
      return equal(event.defaultPrevented, false, "prevented");
    },
    "the axis has a unit that suits it"() {
      const texts = ticks().map(tick => tick.text);
      return equal(texts[0].split(" ")[1], "ms", texts[0]) || equal(timeText(16e9), "16 s", "16 s") || equal(timeText(830), "830 ns", "830 ns");
    },
    "numbers have units"() {
      return equal(bytesText(1536), "1.536 kB", "bytes") || equal(roundStep(100, 8), 20, "step") || equal(roundStep(1, 5), 0.2, "step");
    },
    "the table of tasks has the tasks of the trace file, and sorts"() {
      const {rows} = taskTable(), events = oracle.trace.traceEvents.filter(event => event.ph === "X");
      const made = madeTables[0];
      made.details.open = true;
      made.order = [7, -1];  // the longest first
      refreshTable(made);
      const durations = events.map(({args}) => args.end_ns - args.start_ns), shown = made.details.querySelectorAll("tbody tr");
      const first = shown[0].cells[7].textContent;
      made.details.open = false;
      return equal(rows.length, events.length, "rows") || equal(shown.length, Math.min(events.length, kMostRows), "shown") ||
             equal(first, timeText(Math.max(...durations)), "longest");
    },
    "the table of tasks has what the search finds in the time shown"() {
      searchFor("F");
      show(0, 4e6);
      const {boxes} = panels[0], rows = taskTable().rows.length;
      const found = [...boxes.op].filter((op, i) => ops[op].letters === "F" && boxes.start[i] <= 4e6).length;
      searchFor("");
      show(0, facts.length);
      return equal(rows, found, "rows");
    },
    "messages between devices are those of the trace file"() {
      const sums = {};
      for (const {args} of oracle.trace.traceEvents.filter(event => event.ph === "X" && event.args.op.startsWith("RECV"))) {
        const key = [args.peer, args.stage, args.op === "RECV_B" ? "gradients" : "activations"];  // stage k is on device k
        (sums[key] ||= [...key, 0, 0, 0])[3] += 1;
        sums[key][4] += args.bytes;
        sums[key][5] += args.end_ns - args.start_ns;
      }
      const text = rows => rows.map(row => row.join(" ")).sort().join("\n");
      return equal(text(messageTable().rows), text(Object.values(sums)), "messages");
    },
    "tables sort by numbers with their units"() {
      return equal(["2 ms", "900 us", "1.5 s", "", "abc"].sort(compareTexts).join(), "900 us,2 ms,1.5 s,,abc", "times") ||
             equal(["1 GiB", "900 MiB", "2 kB"].sort(compareTexts).join(), "2 kB,900 MiB,1 GiB", "sizes") ||
             equal(csvOf([["a,b", 'c"d', 1]]), '"a,b","c""d",1\n', "csv");
    },
    "an address shows the same picture"() {
      show(1e6, 5e6);
      toggles.critical();
      select({panel: panels[0], row: panels[0].rows[2], box: panels[0].rows[2].lanes[0].begin});
      const address = addressOf(), selected = view.selected.box;
      toggles.critical();
      select(null);
      show(0, facts.length);
      const plain = addressOf();
      location.hash = address;
      readAddress();
      const faults = [equal(plain, "", "plain"), equal([view.from, view.to].join(), "1000000,5000000", "time"),
                      equal(view.critical, true, "critical"), equal(view.selected?.box, selected, "task")];
      toggles.critical();
      select(null);
      show(0, facts.length);
      location.hash = "time=9-3&task=7.99999&folded=8&critical=x&%";
      readAddress();
      return firstOf(faults) || equal([view.from, view.to].join(), "0," + facts.length, "a wrong address");
    },
    "a single step has no list of steps"() { return equal(byId("steps"), null, "list"); },
    "the limit of memory is shown"() {
      return equal(limitsOf().join(), "1000000000", "limits");
    },
  },
  two: {
    "the table of plans is sorted by step time and can be sorted anew"() {
      const first = () => byId("ranking").tBodies[0].rows[0].dataset.panel, head = byId("ranking").tHead.rows[0].cells[1];
      const times = panels.map(panel => panel.length), fastest = String(times.indexOf(Math.min(...times)));
      const before = equal(first(), fastest, "first");
      head.firstChild.click();
      const after = equal(head.getAttribute("aria-sort"), "descending", "order");
      head.firstChild.click();
      return before || after;
    },
    "panels fold"() {
      const before = view.items.length;
      foldPanel(panels[0]);
      const after = view.items.length;
      foldPanel(panels[0]);
      return equal(after, before - 4, "items");
    },
    "rows of one device can be below each other"() {
      toggles.paired();
      const rows = view.items.filter(item => item.row).map(item => item.row.device).join();
      toggles.paired();
      return equal(rows, "0,0,1,1,2,2,3,3", "devices");
    },
    "a trace file has causes, too"() {
      return equal(panels.every(panel => panel.gaps.start.length > 0 && panel.boxes.critical), true, "gaps");
    },
  },
  steps: {
    "every step has its causes and a critical path as long as the step"() {
      const {gaps, rows, boxes} = panels[0];
      return firstOf([0, 1, 2].flatMap(step => {
        const of = [...boxes.step].flatMap((each, i) => each === step ? [i] : []);
        const from = Math.min(...of.map(i => boxes.start[i])), to = Math.max(...of.map(i => boxes.end[i]));
        return rows.map(row => {
          let busy = 0;
          of.forEach(i => { busy += boxes.device[i] === row.device && !ops[boxes.op[i]].transfer ? boxes.end[i] - boxes.start[i] : 0; });
          for (let i = row.gaps.begin; i < row.gaps.end; ++i)
            busy += gaps.start[i] >= from && gaps.end[i] <= to ? gaps.end[i] - gaps.start[i] : 0;
          return equal(busy, to - from, `step ${step}, device ${row.device}`);
        }).concat(equal(of.some(i => boxes.critical[i]), true, `critical tasks of step ${step}`));
      }));
    },
    "the list of steps shows each"() {
      const {boxes} = panels[0], list = byId("steps");
      const faults = [equal([...list.options].map(option => option.text).join(), "all steps,step 0,step 1,step 2", "options"),
                      equal(list.value, "-1", "at first")];
      for (const step of [0, 1, 2]) {
        list.value = step;
        list.onchange();
        redraw();
        const of = [...boxes.step].flatMap((each, i) => each === step ? [i] : []);
        const from = Math.min(...of.map(i => boxes.start[i])), to = Math.max(...of.map(i => boxes.end[i]));
        faults.push(equal(view.from <= from && view.to >= to && view.to - view.from < 1.03 * (to - from), true, "step " + step),
                    equal(list.value, String(step), "list"));
      }
      moveStep(-1);
      redraw();
      faults.push(equal(list.value, "1", "the step before"));
      show(0, facts.length);
      redraw();
      return firstOf(faults) || equal(list.value, "-1", "all");
    },
  },
  pairs: {
    "what is at the middle of a box is that box"() { return pageTests.four["what is at the middle of a box is that box"](); },
    "the tasks of a pair share the height, and others have all of it"() {
      const {boxes, rows} = panels[0], heights = new Map();
      boxes.start.forEach((start, i) => {
        if (!ops[boxes.op[i]].transfer && boxes.end[i] > start) {
          const key = [boxes.device[i], start].join();
          heights.set(key, [...heights.get(key) || [], placeOf(panels[0], i).h]);
        }
      });
      const all = [...heights.values()], height = rows[0].item.tasks;
      return equal(all.some(each => each.length === 2), true, "pairs") ||
             firstOf(all.map(each => equal(each.reduce((a, b) => a + b), height, each.length + " boxes")));
    },
    "boxes of pairs do not hide others"() {
      redraw();
      const draw = base.getContext("2d"), {boxes} = panels[0];
      return firstOf([...boxes.op].map((op, i) => {
        const place = ops[op].transfer ? null : placeOf(panels[0], i);
        if (!place || place.w < 6)
          return "";
        const [r, g, b] = draw.getImageData(Math.round(place.x + 3), Math.round(place.y + place.h / 2), 1, 1).data;
        const [red, green, blue] = unpack(colours.ops[op][boxes.chunk[i]].plain);
        return equal(css([r, g, b]), css([red, green, blue]), taskName(panels[0], i));
      }));
    },
    "keys go through all tasks of a device by time"() {
      const {start} = panels[0].boxes, first = panels[0].rows[1].lanes.map(lane => lane.begin).sort((a, b) => start[a] - start[b])[0];
      let count = 1, last = first;
      for (let next = neighbour(panels[0], first, 1); next >= 0; next = neighbour(panels[0], last = next, 1), ++count)
        if (start[next] < start[last] || neighbour(panels[0], next, -1) !== last)
          return taskName(panels[0], next);
      return equal(count, panels[0].rows[1].lanes.reduce((sum, lane) => sum + lane.end - lane.begin, 0), "tasks");
    },
  },
  hosts: {  // 4 hosts of 2 devices, 2 replicas of 4 stages, 4 micro-batches each, messages of 3 MB
    "groups are the hosts and the replicas"() {
      const names = kind => panels[0].groups.find(each => each.kind === kind)?.groups.map(({name, rows}) =>
        name + ": " + rows.map(({device}) => device).join(" ")).join(", ");
      return equal(names("host"), "host 0: 0 1, host 1: 2 3, host 2: 4 5, host 3: 6 7", "hosts") ||
             equal(names("replica"), "replica 0: 0 2 4 6, replica 1: 1 3 5 7", "replicas");
    },
    "rows follow their heading"() {
      return equal(view.items.map(item => item.group ? "|" : item.row.device).join(""), "|01|23|45|67", "rows");
    },
    "a folded host is a lane of its mean colours"() {
      const [host] = shownGroups(panels[0]), {width} = base.getBoundingClientRect();
      const line = meanLine(host.rows, 1000, 0, facts.length), forward = colours.ops[ops.findIndex(op => op.letters === "F")];
      const device = panels[0].rows[0].lanes[0].begin, at = Math.round(1000 * panels[0].boxes.end[device] / 2 / facts.length);
      const half = unpack(forward[0].plain);  // both compute
      return firstOf(unpack(line[at]).map((value, k) => Math.abs(value - half[k]) > 1 ? `${value} instead of ${half[k]}` : "")) ||
             equal(width > 0, true, "canvas");
    },
    "the picture of messages has the sums of the table"() {
      matrix.quantity = 0;
      const {rows} = messageTable(), [{sums, size, most}] = matricesOf(rows);
      let all = 0;
      for (let from = 0; from < size; ++from)
        for (let to = 0; to < size; ++to) {
          const near = Math.abs(from - to) === 2;  // the devices of a stage follow each other
          all += sums[from * size + to];
          if (sums[from * size + to] !== (near ? 12e6 : 0))
            return `${from} to ${to}: ${sums[from * size + to]}`;
        }
      return equal(most, 12e6, "most") || equal(all, rows.reduce((sum, row) => sum + row[4], 0), "sum");
    },
  },
  many: {
    "boxes thinner than a pixel make no stripes"() {
      show(0, facts.length);
      let most = 0;
      for (const right of [20, 47, 74, 101, 128]) {
        redraw();
        view.right = right;
        drawRows(ticks());
        const left = Math.round(view.left), columns = Math.round(plotWidth()), y = Math.round(panels[0].rows[3].item.top), h = view.row;
        const {data} = base.getContext("2d").getImageData(left + Math.round(columns * 0.3), y, 200, h);
        for (let line = 1; line < h - 1; ++line)  // neighbours in the steady part are alike, but for the edges of bands
          for (let x = 1; x < 200; ++x) {
            const at = 4 * (line * 200 + x);
            most = Math.max(most, Math.abs(data[at] - data[at - 4]) + Math.abs(data[at + 1] - data[at - 3]));
          }
      }
      return most > 24 ? `neighbours differ by ${most}` : "";
    },
    "parts of the time are right"() {
      const row = panels[0].rows[0], lane = row.lanes[0], columns = 100, scale = columns / facts.length;
      view.from = 0;
      view.to = facts.length;
      const {kept, share} = sharesOf(lane, panels[0], lane.begin, lane.end, scale, columns);
      const forward = ops.findIndex(op => op.letters === "F");
      let exact = 0;
      const from = 49.5 / scale, to = 52.5 / scale;
      for (let i = lane.begin; i < lane.end; ++i)
        if (panels[0].boxes.op[i] === forward)
          exact += Math.max(0, Math.min(lane.finish[i], to) - Math.max(lane.start[i], from)) / (to - from);
      const mean = (share(2 * forward, 49) + share(2 * forward, 50) + share(2 * forward, 51) + share(2 * forward, 52)) / 4;
      return kept.length < 3 || Math.abs(mean - exact) > 0.02 ? `${mean} instead of ${exact}` : "";
    },
    "a search by time finds the boxes of a range"() {
      const lane = panels[0].rows[5].lanes[0], [first, last] = boxesIn(lane, 100e6, 200e6);
      for (let i = lane.begin; i < lane.end; ++i)
        if ((lane.finish[i] >= 100e6 && lane.start[i] <= 200e6) !== (i >= first && i < last))
          return "box " + i;
      return "";
    },
    "only rows on the canvas are drawn"() {
      const items = itemsIn(view.scroll, view.scroll + view.stage);
      return equal(items.every(item => item.top < view.scroll + view.stage && item.top + item.height > view.scroll), true, "items");
    },
  },
};

function runTests(page) {
  return Object.entries(pageTests[page]).map(([name, test]) => {
    try {
      return [name, test() || ""];
    } catch (error) {
      return [name, error.stack];
    }
  });
}
