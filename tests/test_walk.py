"""The files that one interaction passes on its way to the loss are those that docs/design.md lists."""

import re
import subprocess
import sys
from pathlib import Path

DESIGN = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
MOST = 43

PROGRAM = """
import sys, threading
from pathlib import Path
import abaca
from abaca.training.trainer import Trainer

root, log, seen = Path(abaca.__file__).parent, Path(sys.argv[1]), set()
log.write_text("user,item,time\\n" + "".join(f"u{u},i{(u * t) % 7},{t}\\n" for u in range(9) for t in range(8)))

class Done(Exception):
    pass

def stop(self, batch, step=Trainer._step):
    step(self, batch)
    raise Done

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(str(root)) and code.co_name != "<module>":
        seen.add(str(Path(code.co_filename).relative_to(root).as_posix()))

Trainer._step = stop
recommender = abaca.Recommender("sasrec", "softmax+CPR:100+Mi", dim=8)
threading.setprofile(note)
sys.setprofile(note)
try:
    recommender.fit(log)
except Done:
    sys.setprofile(None)
print("\\n".join(sorted(seen)))
"""


def listed(after: str, before: str) -> set[str]:
    """The files that the tables of a part of the page name."""
    part = DESIGN[DESIGN.index(after) : DESIGN.index(before)]
    return {name for line in part.splitlines() if line.startswith("|") for name in re.findall(r"`([\w/]+\.\w+)`", line)}


def test_the_walk_is_the_one_that_the_design_lists(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "log.csv")], capture_output=True, text=True, check=True
    )
    traced = set(done.stdout.split())
    walk = listed("## Path of one interaction", "The files below set up the run")
    native = {name for name in walk if name.endswith((".c", ".h"))}
    set_up = listed("The files below set up the run", "A history in a request to the server")
    assert traced == (walk - native) | set_up
    assert not walk & set_up
    assert len(walk) <= MOST
    assert f"Those are {len(walk)} files" in DESIGN
