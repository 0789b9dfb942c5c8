#!/usr/bin/env python3
"""Makes the site of a build and checks it: test_site.py BUILD. Links, contents, next and previous, then in Chromium,
from disk and without a network: widths, search, live pages of the gallery. Exit status 77: there is no Sphinx or no
Chromium."""
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import Browser, chromium  # noqa: E402

WORDS = {"stragglers": "docs/answers.html", "safetensors": "docs/checkpoints.html", "columnwidth": "docs/papers.html",
         "torch.profiler": "docs/import.html"}


FOUND = """new Promise(done => {
  const look = () => document.querySelector("#search-results p")?.textContent.includes("found")
    ? done([...document.querySelectorAll("#search-results li a")].map(link => link.href)) : setTimeout(look, 20);
  look(); })"""


class Links(HTMLParser):
    """The links, anchors and next page of a page."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.loaded, self.anchors, self.twice, self.next = [], [], {""}, [], None
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        name = given.get("id") or ""
        if name and name in self.anchors:
            self.twice.append(name)
        self.anchors.add(name)
        if tag == "a" and "href" in given:
            self.targets.append(given["href"])
            if given.get("rel") == "next":
                self.next = given["href"]
        elif given.get("src") or tag == "link" and given.get("rel") == "stylesheet":
            self.loaded.append(given.get("src") or given["href"])


def pages_of(site):
    return [page for page in sorted(site.rglob("*.html")) if page.parent.name != "gallery"]


def place(page, target):
    """Returns the file that a link of a page leads to, and the anchor in it."""
    path, _, anchor = unquote(target).partition("#")
    path = path.partition("?")[0]
    return (page.parent / path).resolve() if path else page, anchor


def link_faults(site):
    links = {page: Links(page) for page in pages_of(site)}
    for page, found in links.items():
        name = page.relative_to(site)
        if found.twice:
            yield f"{name} has two elements with each of the names {found.twice}"
        for target in found.loaded + found.targets:
            if re.match(r"https?://", target):
                if target in found.loaded:
                    yield f"{name} loads {target}"
                continue
            file, anchor = place(page, target)
            if target.startswith(("/", "file:")) or not file.is_file():
                yield f"{name}: no file for {target}"
            elif file in links and anchor not in links[file].anchors:
                yield f"{name}: no anchor for {target}"
    index, reached = site / "index.html", []
    at = index
    while at not in reached:
        reached.append(at)
        at = place(at, links[at].next)[0] if links[at].next else at
    for page in set(links) - set(reached) - {site / "search.html"}:
        yield f"{page.relative_to(site)} is not reached by next"
    for page in (ROOT / "docs").glob("*.md"):
        if not (site / "docs" / page.with_suffix(".html").name).exists():
            yield f"no page for docs/{page.name}"


def width_faults(browser, site, page):
    name, live = page.relative_to(site), page.parent.name == "gallery"
    browser.resize(360, 740)
    browser.open(page, **({} if live else {"ready": ""}))
    for width in (360, 1440):
        browser.resize(width, 900)
        browser.frame()
        if (needed := browser.run("document.documentElement.scrollWidth")) > width:
            yield f"{name} is {needed} pixels wide in a window of {width}"
    for error in browser.errors():
        yield f"{name}: {error.get('exception', {}).get('description', error['text'])}"


def search_faults(browser, site):
    for word, page in WORDS.items():
        browser.open(site / "docs" / "config.html", ready="")
        browser.events = []
        browser.run(f"document.querySelector('[type=search]').value = {word!r}; document.forms[0].submit()")
        browser.wait_for("Page.loadEventFired")
        found = browser.run(FOUND)
        if not any(link.partition("#")[0].partition("?")[0].endswith(page) for link in found[:5]):
            yield f"a search for {word} finds {found[:5]}, not {page}"


def main():
    build = Path(sys.argv[1]).resolve()
    site = build / "site"
    made = subprocess.run([ROOT / "scripts" / "site", "--strict", "--build", build, site], check=False)
    if made.returncode:
        sys.exit(made.returncode)
    faults = list(link_faults(site))
    if chromium():
        with Browser(1440, 900) as browser:
            browser.call("Network.enable")
            browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                         uploadThroughput=-1)
            for page in sorted(site.rglob("*.html")):
                faults += width_faults(browser, site, page)
            faults += search_faults(browser, site)
    print("\n".join(faults) or f"{len(pages_of(site))} pages", flush=True)
    if faults:
        sys.exit(1)
    if not chromium():
        print("not opened, no chromium: apt-get install chromium")
        sys.exit(77)


if __name__ == "__main__":
    main()
