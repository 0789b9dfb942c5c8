#!/usr/bin/env python3
"""Measures the page of a timeline in headless Chromium: bench/page.py PIPEWRIGHT [--runs N] [--sizes 1e4,1e5,3e5,1e6]

Times are medians, in ms; `of CPU` is what the page's process computes for a redraw, on all threads, which other programs do
not disturb. `load` is from the navigation to the frame after the first drawing, `redraw` includes the
pixels (the canvas is read back), `hover` and `wheel` are from an input event to the end of the frame that shows it.
`heap` is of the script, `process` what the page's process holds more than an empty page. It also reads the pages of
versions before 0.2.0, which have a function render()."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from browser import Browser, chromium  # noqa: E402

CONFIG = """workload: {{model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB, weights: 2 MB}}
cluster: {{devices: {devices}, link: {{bandwidth: 10 GB/s, latency: 10 us}}}}
pipeline: {{schedule: 1f1b, micro_batches: {micro_batches}}}
"""
SIZES = {"1e4": (16, 110), "1e5": (64, 256), "3e5": (64, 768), "3e5w": (1000, 50), "1e6": (256, 660)}

PREPARE = """
window.old = typeof render === "function";
window.whole = old ? picture.length : facts.length;
window.surface = old ? canvas : base;
window.drawn = (from, to) => {
  const begun = performance.now();
  show(from, to);
  if (!old) redraw();
  surface.getContext("2d").getImageData(0, 0, 1, 1);
  if (!old) { curves.getContext("2d").getImageData(0, 0, 1, 1); over.getContext("2d").getImageData(0, 0, 1, 1); }
  return performance.now() - begun;
};
window.moved = width => new Promise(done => {  // the median time between frames while the view moves in every one
  const times = [];
  const step = now => {
    times.push(now);
    if (times.length > 61) return done(times.map((time, k) => time - times[k - 1]).slice(1).sort((a, b) => a - b)[30]);
    const from = (whole - width) * times.length / 62;
    show(from, from + width);
    if (!old) redraw();
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
});
window.reached = [];
for (const kind of ["pointermove", "wheel"])
  addEventListener(kind, event => requestAnimationFrame(() => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => reached.push(performance.now() - event.timeStamp);
    port2.postMessage(0);
  }), {capture: true});
"""


def renderers(browser):
    """The numbers of the pages' processes."""
    session, browser.session = browser.session, None
    processes = browser.call("SystemInfo.getProcessInfo")["processInfo"]
    browser.session = session
    return [process["id"] for process in processes if process["type"] == "renderer"]


def memory_of(browser):
    """Bytes that the pages' processes hold."""
    held = 0
    for process in renderers(browser):
        with open(f"/proc/{process}/status") as status:
            held += sum(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
    return held


def processor_time(browser):
    """Milliseconds that the pages' processes have computed, on all threads."""
    ticks = 0
    for process in renderers(browser):
        with open(f"/proc/{process}/stat") as stat:
            ticks += sum(int(field) for field in stat.read().rsplit(")", 1)[1].split()[11:13])
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def redraw(browser, times, script):
    """The median time of a redraw, and the processor's time of each."""
    begun = processor_time(browser)
    walls = [browser.run(script(number)) for number in range(times)]
    return statistics.median(walls), (processor_time(browser) - begun) / times


def reached_by(browser, act, times):
    """Times from an input to its frame."""
    browser.run("reached.length = 0")
    for number in range(times):
        act(number)
        browser.run("new Promise(done => setTimeout(done, 40))")
    return browser.run("reached")


def measure(path):
    with Browser(1600, 900) as browser:
        browser.open("/dev/null", ready="")
        empty = memory_of(browser)
        browser.open(path, ready="document.documentElement.dataset.ready || typeof render === 'function'")
        load = browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))")
        browser.run(PREPARE)
        browser.run("drawn(0, whole)")  # the first time compiles the script
        times = 20
        whole, whole_processor = redraw(browser, times, lambda k: "drawn(0, whole)")
        part, part_processor = redraw(browser, times, lambda k: f"drawn(whole * {0.2 + 0.02 * k}, whole * {0.21 + 0.02 * k})")
        frames = [browser.run(f"moved(whole * {share})") for share in (0.99, 0.1)]
        browser.run("drawn(0, whole)")
        hover = reached_by(browser, lambda k: browser.mouse("mouseMoved", 700 + 31 * k, 170 + 25 * (k % 4)), 7)
        wheel = reached_by(browser, lambda k: browser.mouse(
            "mouseWheel", 800, 200, deltaX=0, deltaY=-60 if k % 2 else 60, modifiers=2), 7)
        browser.call("HeapProfiler.collectGarbage")
        heap = browser.run("performance.memory.usedJSHeapSize")
        return {"load": load, "frame, 99 %": frames[0], "frame, 10 %": frames[1], "redraw all": whole, "of CPU": whole_processor, "redraw 1 %": part, "of CPU, 1 %": part_processor,
                "hover": statistics.median(hover), "wheel": statistics.median(wheel), "heap MB": heap / 1e6,
                "process MB": (memory_of(browser) - empty) / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipewright")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sizes", default="1e4,1e5,3e5,3e5w,1e6", help=f"of {', '.join(SIZES)}")
    arguments = parser.parse_args()
    if not chromium():
        sys.exit("chromium not found; apt-get install chromium")
    head = None
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sizes.split(","):
            devices, micro_batches = SIZES[name]
            config, page = os.path.join(folder, "config.yaml"), os.path.join(folder, name + ".html")
            with open(config, "w") as file:
                file.write(CONFIG.format(devices=devices, micro_batches=micro_batches))
            done = subprocess.run([arguments.pipewright, "simulate", config, "--plot", page], capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: {done.stderr.splitlines()[0]}")
                continue
            runs = [measure(page) for _ in range(arguments.runs)]
            tasks = 2 * devices * micro_batches + 4 * (devices - 1) * micro_batches + devices
            row = {"tasks": tasks, "devices x m": f"{devices} x {micro_batches}", "file MB": os.path.getsize(page) / 1e6}
            row |= {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            if not head:
                head = list(row)
                print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
            print("| " + " | ".join(f"{row[key]:.3g}" if isinstance(row[key], float) else str(row[key]) for key in head) + " |",
                  flush=True)


if __name__ == "__main__":
    main()
