"""The page of a profile in a browser without a network: its drawings and its reactions to clicks.

Chromium loads a copy of the page with a script at the end. The script clicks and adds its findings to the document.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.profiler import profile, record_function

BROWSERS = (
    "chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome",
)  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium: apt-get install chromium-headless-shell"
)

OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--window-size=1000,900", "--virtual-time-budget=5000",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",  # no network
]  # fmt: skip

WATCH = """
<script>
"use strict";
const errors = [];
addEventListener("error", e => errors.push(String(e.message)));
</script>
"""
CLICKS = """
<script>
"use strict"; { // a scope of its own
const boxes = () => [...document.querySelectorAll("#flame div")].map(box => {
  const r = box.getBoundingClientRect();
  return {text: box.textContent, title: box.title, left: r.left, right: r.right, top: r.top, color: getComputedStyle(box).backgroundColor};
});
const buttons = [...document.querySelectorAll("#choices button")];
const rows = () => [...document.querySelectorAll("#operators tr")].map(row => [...row.children].map(cell => cell.textContent));
const click = (where, text) => [...document.querySelectorAll(where)].find(e => e.textContent.startsWith(text)).click();
const where = () => document.getElementById("where").textContent;
const seen = {title: document.title, buttons: buttons.map(b => b.textContent), graphs: {}};
seen.first = buttons.filter(b => b.classList.contains("on")).map(b => b.textContent);
for (const button of buttons) {
  button.click();
  seen.graphs[button.textContent] = {boxes: boxes(), where: where(), on: buttons.filter(b => b.classList.contains("on")).length};
}
buttons[0].click();
click("#flame div", "Sequential");
seen.zoomed = boxes();
click("#flame div", "all");
seen.back = boxes();
document.querySelector("#flame div").dispatchEvent(new MouseEvent("mouseenter"));
seen.hovered = where();
const line = document.querySelector("#memory polyline");
seen.memory = {
  points: line && line.getAttribute("points"), text: document.getElementById("memory").textContent,
  width: line && line.getBoundingClientRect().width,
};
seen.rows = rows();
click("#operators th", "operator");
seen.by_name = rows();
click("#operators th", "calls");
seen.by_calls = rows();
seen.requests = performance.getEntriesByType("resource").map(e => e.name);
seen.errors = errors;
const left = document.createElement("pre");
left.id = "seen";
left.textContent = JSON.stringify(seen);
document.body.appendChild(left); }
</script>
</body>
"""


def browse(*options):
    # A sanitizer's runtime is for Python alone.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    browser = subprocess.Popen(
        [BROWSER, *OPTIONS, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = browser.communicate(timeout=300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(browser.pid, signal.SIGKILL)  # what it has started, too
    assert browser.returncode == 0, errors
    return output


def recorded(**options):
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.Adam(net.parameters())
    x, y = rabbet.randn(32, 64), rabbet.randint(0, 10, (32,))
    with profile(**options) as prof:
        for _ in range(5):
            optimizer.zero_grad()
            with record_function("forward"):
                loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
    return prof


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The path of a page and its data."""
    path = tmp_path_factory.mktemp("page") / "profile.html"
    prof = recorded(profile_memory=True, with_stack=True, with_modules=True, with_flops=True)
    prof.export_html(str(path), title="A <profile> & more")
    data = re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), flags=re.S)[1]
    return path, json.loads(data.replace("<\\/", "</"))


def clicked(path):
    """The findings of the script that clicks in a page."""
    text = path.read_text()
    copy = path.with_name(f"clicked_{path.name}")
    copy.write_text(text.replace("<body>", "<body>" + WATCH).replace("</body>", CLICKS))
    document = browse("--dump-dom", copy.as_uri())
    found = re.search(r'<pre id="seen">(.*?)</pre>', document, flags=re.S)
    assert found, "the clicks failed"
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text)


@pytest.fixture(scope="module")
def seen(page):
    return clicked(page[0])


def test_the_page_runs_without_errors_and_without_a_network(seen):
    assert seen["errors"] == [] and seen["requests"] == []
    assert seen["title"] == "A <profile> & more"


def test_each_flame_graph_can_be_chosen(seen, page):
    _, data = page
    assert seen["buttons"] == list(data["graphs"]) == ["modules", "calls", "source lines", "memory"]
    assert seen["first"] == ["modules"]
    for name, graph in seen["graphs"].items():
        assert graph["on"] == 1 and graph["boxes"][0]["text"] == "all"
        assert ("of tensors made and kept" if name == "memory" else "in calls and ranges") in graph[
            "where"
        ]


def names(node):
    return {node["n"]}.union(*(names(child) for child in node["c"]))


def test_boxes_of_a_flame_graph_lie_inside_those_they_are_part_of(seen, page):
    _, data = page
    for name, graph in seen["graphs"].items():
        boxes = graph["boxes"]
        (root,) = (b for b in boxes if b["top"] == boxes[0]["top"])
        assert root["right"] - root["left"] > 900 and len({b["color"] for b in boxes}) > 1
        assert {b["text"] for b in boxes} <= names(data["graphs"][name])
        for box in boxes[1:]:
            above = [b for b in boxes if 0 < box["top"] - b["top"] < 20]
            assert any(
                b["left"] - 0.1 <= box["left"] and box["right"] <= b["right"] + 0.1 for b in above
            ), box
        share = data["graphs"][name]["c"][0]
        first = next(b for b in boxes if b["text"] == share["n"])
        width = (root["right"] - root["left"]) * share["t"] / data["graphs"][name]["t"]
        assert first["right"] - first["left"] == pytest.approx(width, abs=1)


def test_a_click_shows_a_box_over_the_whole_width_and_another_goes_back(seen):
    before, zoomed = seen["graphs"]["modules"]["boxes"], seen["zoomed"]
    assert [b["text"] for b in zoomed[:2]] == ["all", "Sequential"]
    assert zoomed[1]["right"] - zoomed[1]["left"] > 900
    assert {"0 (Linear)", "2 (Linear)", "1 (ReLU)"} <= {b["text"] for b in zoomed}
    assert [b["text"] for b in seen["back"]] == [b["text"] for b in before]
    assert re.match(r"all: .* (ms|s|µs), 100\.0%", seen["hovered"])


def test_memory_is_drawn_over_time(seen, page):
    _, data = page
    points = [tuple(map(float, p.split(","))) for p in seen["memory"]["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert len(points) == 2 * len(data["memory"]) - 1 and seen["memory"]["width"] > 400
    most = max(size for _, size in data["memory"])
    assert min(y for _, y in points) == 10  # the peak
    unit, factor = ("KB", 1024) if most < 1024**2 else ("MB", 1024**2)
    assert f"peak {most / factor:.2f} {unit}" in seen["memory"]["text"]


def test_the_table_shows_the_top_operators_and_sorts_them(seen, page):
    _, data = page
    heads, *rows = seen["rows"]
    assert heads == ["operator", "calls", "self ▾", "total", "memory kept", "FLOPs"]
    expected = sorted(data["operators"], key=lambda row: -row["self"])
    assert [row[0] for row in rows] == [row["name"] for row in expected]
    linear = next(row for row in rows if row[0] == "aten::linear")
    flops = 5 * 2 * 32 * (64 * 128 + 128 * 10)
    assert linear[1] == "10" and float(linear[5]) == pytest.approx(flops, rel=1e-3)
    assert [row[0] for row in seen["by_name"][1:]] == sorted(row[0] for row in rows)
    calls = [int(row[1]) for row in seen["by_calls"][1:]]
    assert calls == sorted(calls, reverse=True) and seen["by_calls"][0][1] == "calls ▾"


def test_a_page_without_memory_says_so(tmp_path):
    path = tmp_path / "plain.html"
    recorded(with_modules=True).export_html(str(path))
    seen = clicked(path)
    assert seen["errors"] == [] and seen["buttons"] == ["modules", "calls"]
    assert seen["memory"]["points"] is None
    assert "profile(profile_memory=True) records it" in seen["memory"]["text"]


def test_the_picture_in_the_tutorial_can_be_made_again(page, tmp_path):
    picture = tmp_path / "page.png"
    browse(f"--screenshot={picture}", page[0].as_uri())
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 10_000
