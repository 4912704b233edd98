"""JSON, table and figure of the measurements."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from abaca.bench import report
from abaca.bench.loss import LossBench
from abaca.bench.measure import Measurement, Spent

FOUND = [
    Measurement("gemm", (Spent(0.010, 0.02, 100),), {"gemm": 1.0}, 5_000_000),
    Measurement("CPR:100", (Spent(0.025, 0.03, 100),), {"gemm": 2.5}, None),
]


def test_the_table_has_a_column_for_whatever_was_measured() -> None:
    lines = report.markdown("Loss", FOUND).splitlines()
    assert lines[0] == "# Loss"
    assert lines[4] == "| | CPU ms | wall ms | targets/s | peak MB | of gemm |"
    assert lines[6] == "| gemm | 10.0 | 20.0 | 10,000 | 5 | 1.00 |"
    assert lines[7] == "| CPR:100 | 25.0 | 30.0 | 4,000 |  | 2.50 |"
    assert "peak MB" not in report.markdown("Loss", FOUND[1:])


def test_the_longest_bar_is_the_slowest_contender() -> None:
    drawn = report.figure("Loss", FOUND)
    ET.fromstring(drawn)
    corners = [re.findall(r"([-\d.]+) [-\d.]+", path) for path in re.findall(r'<path d="M ([^"]*)z', drawn)]
    widths = [max(map(float, across)) - min(map(float, across)) for across in corners if len(across) in (4, 5)]
    assert any(abs(one / other - 2.5) < 0.01 for one in widths for other in widths)


def test_the_three_files_are_written(tmp_path: Path) -> None:
    paths = report.write(tmp_path / "new" / "folder", "loss", LossBench(rows=50), FOUND)
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["loss.json", "loss.md", "loss.svg"]
    document = json.loads(paths[0].read_text())
    assert document["settings"] == {"items": 50_000, "rows": 50, "dim": 64, "history": 50}
    assert [one["cpu_ms"] for one in document["results"]] == [10.0, 25.0]
    assert "processor" in document["machine"]
