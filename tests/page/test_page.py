#!/usr/bin/env python3
"""Opens pages of timelines in Chromium and runs page_tests.js in them: test_page.py PIPEWRIGHT. The oracles are the trace
files and reports of the same plans. Exit status 77: there is no Chromium."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from browser import Browser, chromium  # noqa: E402

FOUR = """workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB, weights: 2 MB}
cluster:
  devices:
    - {name: "<img src=x onerror='window.broken=1'>", memory: 1 GB}
    - {memory: 1 GB, speed: 0.5}
    - {memory: 1 GB}
    - {memory: 1 GB}
  link: {bandwidth: 10 GB/s, latency: 10 us}
pipeline: {schedule: 1f1b, micro_batches: 8}
"""
MANY = """workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB}
cluster: {devices: 16, link: {bandwidth: 10 GB/s, latency: 10 us}}
pipeline: {schedule: zb-h1, micro_batches: 1000}
"""
PAIRS = """workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB}
cluster: {devices: 2, link: {bandwidth: 10 GB/s, latency: 10 us}}
pipeline: {schedule: dualpipe-v, micro_batches: 5, pair_exposed: 0.25}
"""

HOSTS = """workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB, output: 3 MB}
cluster: {hosts: 4, devices_per_host: 2, inside: {bandwidth: 100 GB/s, latency: 1 us}, between: {bandwidth: 10 GB/s, latency: 5 us}}
pipeline: {schedule: 1f1b, micro_batches: 8, replicas: 2}
"""
HUNDREDS = """workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms}
cluster: {devices: 300}
pipeline: {schedule: gpipe, micro_batches: 10}
"""


def main():
    if not chromium():
        print("skipped: no chromium; apt-get install chromium")
        sys.exit(77)
    binary = os.path.abspath(sys.argv[1])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)

        def run(*arguments):
            return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout

        for name, text in (("four.yaml", FOUR), ("many.yaml", MANY), ("pairs.yaml", PAIRS), ("hundreds.yaml", HUNDREDS),
                           ("hosts.yaml", HOSTS)):
            with open(name, "w") as file:
                file.write(text)
        report = json.loads(run("simulate", "four.yaml", "--explain", "--json", "--trace", "four.json", "--plot", "four.html"))
        run("simulate", "four.yaml", "--set", "pipeline.schedule=gpipe", "--trace", "gpipe.json")
        run("plot", "four.json", "gpipe.json", "-o", "two.html")
        run("simulate", "many.yaml", "--plot", "many.html")
        run("simulate", "pairs.yaml", "--plot", "pairs.html")
        run("run", "four.yaml", "--set", "run.backend=emulated", "--steps", "3", "--trace", "steps.json")
        run("plot", "steps.json", "--step", "all", "-o", "steps.html")
        run("simulate", "hundreds.yaml", "--plot", "hundreds.html")
        run("simulate", "hosts.yaml", "--plot", "hosts.html")
        with open("four.json") as file:
            trace = json.load(file)
        with open(os.path.join(HERE, "page_tests.js")) as file:
            script = file.read()
        with Browser(1200, 800) as browser:
            for page in ("four", "two", "steps", "pairs", "many", "hosts"):
                browser.open(page + ".html")
                browser.run(f"window.oracle = {json.dumps({'report': report, 'trace': trace})}; 0")
                results = browser.run(script + f"\nrunTests({json.dumps(page)})")
                for name, fault in results:
                    print(f"{page}: {name}: {fault or 'ok'}")
                    failed += bool(fault)
                for error in browser.errors():
                    print(f"{page}: {error['exception']['description']}")
                    failed += 1
            failed += input_tests(browser)
            failed += overview_tests(browser)
            failed += group_tests(browser)
            failed += chart_tests(browser, run)
    sys.exit(1 if failed else 0)


class Checks:
    """Expressions that have to be true in the page, and exceptions of its scripts."""

    def __init__(self, browser, group):
        self.browser, self.group, self.failed = browser, group, 0

    def expect(self, name, script):
        self.browser.frame()
        good = self.browser.run(script)
        print(f"{self.group}: {name}: {'ok' if good else 'FAILED ' + script}")
        self.failed += not good

    def failed_in_all(self):
        errors = self.browser.errors()
        for error in errors:
            print(f"{self.group}: {error['exception']['description']}")
        return self.failed + len(errors)


def input_tests(browser):
    """What needs a real pointer, keyboard and window."""
    checks = Checks(browser, "input")
    expect = checks.expect

    def centre(script):
        x, y = browser.run(f"""(() => {{ const place = {script}, box = stage.getBoundingClientRect();
            return [box.left + place.x + place.w / 2, box.top + place.y + place.h / 2]; }})()""")
        return x, y

    browser.theme("light")
    browser.open("four.html")
    task = "placeOf(panels[0], panels[0].rows[2].lanes[0].begin)"
    browser.mouse("mouseMoved", *centre(task))
    expect("a card of the task under the pointer", "!card.hidden && card.textContent.includes('2F0 · forward on device 2')")
    browser.mouse("mouseMoved", *centre("placeOfGap(panels[0], panels[0].rows[0].gaps.begin, panels[0].rows[0])"))
    expect("a card of idle time with its cause", "!card.hidden && card.textContent.startsWith('idle') && card.textContent.includes('dependency')")
    expect("names of devices are text", "!window.broken && card.textContent.includes('<img src=x')")
    x, y = centre(task)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    expect("the wheel alone does not zoom", "view.to - view.from === facts.length")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    expect("with Ctrl it does, at the pointer", f"view.to - view.from < facts.length && Math.abs(xOf(timeAt({x})) - {x}) < 1")
    browser.key("0")
    browser.run("stage.focus()")
    browser.key("ArrowDown")
    expect("the keyboard reaches a task, which is read out", "view.cursor.box >= 0 && live.textContent.includes('forward')")
    browser.key("Enter")
    expect("Enter shows its card", "!pinned.hidden && view.selected.box === view.cursor.box")
    browser.key("Escape")
    expect("Escape closes it", "pinned.hidden && !view.selected")
    browser.key("+")
    browser.key("ArrowRight")
    expect("+ zooms and an arrow moves", "view.from > 0 && view.to - view.from < facts.length")
    browser.key("Home")
    expect("Home shows the beginning", "view.from === 0")
    browser.key("/")
    expect("/ goes to the search", "document.activeElement.id === 'query'")
    for letter in "2F7":
        browser.key(letter)
    expect("which finds tasks", "byId('found').textContent === '1 task'")
    browser.run("document.activeElement.blur()")
    browser.theme("dark")
    expect("dark where the reader's system is", "unpack(colours.ground)[0] < 80 && getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)'")
    browser.resize(360, 640)
    expect("no sideways scrolling in a narrow window", "document.documentElement.scrollWidth <= 360 && view.width === 360")
    expect("cards are no taller than the window", "getComputedStyle(card).maxHeight !== 'none'")
    return checks.failed_in_all()


def overview_tests(browser):
    """The overview of rows that a window has no room for, in a plan whose times are known: 300 stages, GPipe, 10
    micro-batches. Forwards take 309 ms of 927 ms, and row k of the overview is busy from k ms on."""
    checks = Checks(browser, "overview")
    expect = checks.expect
    browser.resize(1200, 800)
    browser.theme("light")
    browser.open("four.html")
    expect("none where all rows are seen", "overview.hidden && view.right === kMargin")
    browser.open("hundreds.html")
    expect("next to rows that are cut", "!overview.hidden && overview.getBoundingClientRect().left >= view.width - view.right")
    browser.run("""window.at = (device, ms) => { const {width, height} = overview, pixel = overview.getContext("2d").getImageData(
        Math.floor((ms / 927) * width), Math.floor(panels[0].rows[device].item.top / view.height * height) + 1, 1, 1).data;
        return [...pixel.slice(0, 3)].join(); }; window.plain = letters => unpack(colours.ops[ops.findIndex(
        op => op.letters === letters)][0].plain).join(); 0""")
    expect("no task before the first message", "at(250, 100) === unpack(colours.track).join()")
    expect("backwards where they are", "at(200, 518) === plain('B')")
    box = "overview.getBoundingClientRect()"
    x, y = browser.run(f"[{box}.left + 48, {box}.top + {box}.height / 2]")
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
    expect("a press shows the rows pressed", "Math.abs(view.scroll + view.stage / 2 - view.height / 2) < 20")
    expect("and pins no card", "pinned.hidden")
    browser.run("zoomBy(0.1); 0")
    x = browser.run(f"{box}.left + 72")
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    expect("a press shows the time pressed", "Math.abs((view.from + view.to) / 2 / facts.length - 0.75) < 0.02")
    browser.mouse("mouseMoved", x - 48, y, button="left", buttons=1)
    expect("a drag goes on", "Math.abs((view.from + view.to) / 2 / facts.length - 0.25) < 0.02")
    browser.mouse("mouseReleased", x - 48, y, button="left", clickCount=1)
    browser.resize(420, 800)
    expect("none in a narrow window", "overview.hidden && view.right === kMargin")
    return checks.failed_in_all()


def group_tests(browser):
    """Groups of rows and the picture of messages, with a pointer and keys."""
    checks = Checks(browser, "groups")
    expect = checks.expect
    browser.resize(1200, 800)
    browser.theme("light")
    browser.open("hosts.html")
    heading = "view.items.find(item => item.group)"
    expect("a heading for each host", "view.items.filter(item => item.group).length === 4")
    x, y = browser.run(f"[60, stage.getBoundingClientRect().top + {heading}.top + kGroup / 2]")
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
    expect("a press on it folds the host", "panels[0].rows[0].item === null && panels[0].rows[2].item !== null")
    expect("and the address says so", "location.hash.includes('closed=0-0') || addressOf().includes('closed=0-0')")
    browser.run("select({panel: panels[0], row: panels[0].rows[1], box: panels[0].rows[1].lanes[0].begin}, true); 0")
    expect("a task that is gone to unfolds it", "panels[0].rows[1].item !== null")
    browser.key("g")
    expect("g groups by replica", "view.group === 'replica' && byId('groups').value === 'replica'")
    expect("in the address, too", "addressOf().includes('group=replica')")
    browser.key("g")
    expect("and then not at all", "view.items.every(item => item.row)")
    browser.run("madeTables.find(made => made.name.startsWith('Messages')).details.open = true; 0")
    browser.frame()
    canvas = "document.querySelector('.matrix canvas')"
    expect("the messages are a picture", f"{canvas} && {canvas}.getBoundingClientRect().width > 100")
    browser.run(f"{canvas}.scrollIntoView(); 0")
    x, y = browser.run(f"""(() => {{ const box = {canvas}.getBoundingClientRect(), cell = (box.width - 28) / 8;
        return [box.left + 26 + 2.5 * cell, box.top + 18 + 0.5 * cell]; }})()""")
    browser.mouse("mouseMoved", x, y)
    expect("whose cells are named", "document.querySelector('.matrix p').textContent.includes('device 0 to device 2: 11.44 MiB')")
    browser.resize(360, 640)
    expect("no sideways scrolling in a narrow window", "document.documentElement.scrollWidth <= 360")
    return checks.failed_in_all()


def chart_tests(browser, run):
    """Pages of charts against the JSON of the same sweep and search."""
    checks = Checks(browser, "chart")
    expect = checks.expect

    sweep = ["simulate", "four.yaml", "--set", "sweep={pipeline.micro_batches: [4, 8, 16], pipeline.schedule: [gpipe, zb-h1]}"]
    points = json.loads(run(*sweep, "--json"))["points"]
    run(*sweep, "--plot", "sweep.html")
    best = max(point["samples_per_second"] for point in points)
    browser.resize(1200, 800)
    browser.theme("light")
    browser.open("sweep.html")
    browser.run(f"window.best = {best}; window.rates = {[point['samples_per_second'] for point in points]}; 0")
    expect("every point is drawn at its rate",
           "rates.every(rate => stops.some(stop => Math.abs(stop.y / rate - 1) < 1e-6))")
    browser.run("canvas.focus()")
    browser.key("ArrowDown")
    expect("the keyboard begins at the highest point", "Math.abs(stop.y / best - 1) < 1e-6")
    expect("which is read out and has a tooltip", "live.textContent.includes('zb-h1') && chart.tooltip.opacity !== 0")
    for _ in range(20):
        browser.key("ArrowDown")
    expect("and ends at the lowest", "stop.y === Math.min(...stops.map(one => one.y))")
    browser.run("window.inTip = () => chart.tooltip.title.join() + chart.tooltip.body.map(part => part.lines.join()).join()")
    x, y = browser.run("""(() => { const top = alongAxis.y.at(-1), bounds = canvas.getBoundingClientRect();
        const {x, y} = chart.getDatasetMeta(top.datasetIndex).data[top.index]; return [bounds.left + x, bounds.top + y]; })()""")
    browser.mouse("mouseMoved", x, y)
    expect("the pointer names the best point", "inTip().includes('zb-h1') && inTip().includes('16')")
    browser.run("showPart({x: chart.chartArea.left, y: chart.chartArea.top}, "
                "{x: (chart.chartArea.left + chart.chartArea.right) / 2, y: chart.chartArea.bottom})")
    expect("a part is shown", "chart.scales.x.max < data.x.high")
    browser.key("Escape")
    expect("Escape shows all", "chart.scales.x.max === data.x.high")
    browser.theme("dark")
    expect("dark where the reader's system is", "Chart.defaults && chart.options.scales.x.ticks.color === theme('--muted') && isDark()")
    browser.resize(360, 640)
    expect("no sideways scrolling in a narrow window", "document.documentElement.scrollWidth <= 360")
    return checks.failed_in_all()


if __name__ == "__main__":
    main()
