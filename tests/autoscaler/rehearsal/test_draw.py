"""The picture of a rehearsal is sound SVG and shows what happened."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import NodeType
from autoscaler.rehearsal.draw import LEFT, PLOT, svg
from autoscaler.rehearsal.rehearse import Result, rehearse
from autoscaler.rehearsal.trace import Fault, Groups, Offered, Tasks, Trace

_SVG = "{http://www.w3.org/2000/svg}"


def rehearsed(trace: Trace) -> Result:
    kinds = (NodeType("head", {"CPU": 1}), NodeType("small <1>", {"CPU": 4}, max_workers=20))
    return rehearse(AutoscalerConfig("c", "c", kinds, "head", 20, idle_timeout_s=60.0), trace)


BUSY = Trace(
    name="a & b",
    tasks=[Tasks(count=200, resources={"CPU": 1 + kind / 10}, duration_s=[5.0, 60.0]) for kind in range(10)],
    groups=[Groups(bundles=[{"CPU": 2}] * 3, duration_s=60.0)],
    faults=[
        Fault(kind="node_death", at_s=150.0, count=1),
        Fault(kind="stockout", at_s=10.0, until_s=60.0),
        Fault(kind="quota", at_s=1e6),
    ],
    offers={"small <1>": [Offered(price=0.5)]},
)


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{_SVG}text")]


def test_three_panels_with_axes_and_a_legend() -> None:
    root = ET.fromstring(svg(rehearsed(BUSY)))
    said = texts(root)
    for word in ("a & b", "workers", "waiting", "cost so far", "small <1>", "{CPU: 1.9}"):
        assert word in said
    assert any(word.startswith("time (") for word in said)
    assert sum(1 for word in said if word.endswith(" others")) == 1, (
        "ten shapes and a group are too many for a legend"
    )
    assert said[said.index("what went wrong:") - 2 :][:2] == ["stockout", "node death"]
    assert [
        shade.attrib["fill-opacity"] for shade in root.iter(f"{_SVG}rect") if "fill-opacity" in shade.attrib
    ]


def test_nothing_is_drawn_outside_its_panel() -> None:
    root = ET.fromstring(svg(rehearsed(BUSY)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    shapes = [*root.iter(f"{_SVG}polygon"), *root.iter(f"{_SVG}polyline")]
    assert len(shapes) > 5
    for shape in shapes:
        corners = [tuple(map(float, corner.split(","))) for corner in shape.attrib["points"].split()]
        assert all(LEFT - 0.1 <= x <= LEFT + PLOT + 0.1 and 0 <= y <= height for x, y in corners)
        assert width > LEFT + PLOT


def test_an_empty_rehearsal_can_be_drawn() -> None:
    said = texts(ET.fromstring(svg(rehearsed(Trace(until_s=10.0)))))
    assert said.count("none") == 2
    assert "no prices are known" in said


def test_a_long_rehearsal_makes_no_long_picture() -> None:
    long = Trace(tasks=[Tasks(count=40, duration_s=[10.0, 300.0], every_s=300.0, times=60)])
    result = rehearsed(long)
    assert len(result.samples) > 1000
    assert len(result.thinned(100)) <= 200
    assert len(svg(result)) < 150_000
