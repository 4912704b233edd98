"""The trained models of a study with the time of the query known: a line of now.jsonl for each.

    python studies/now.py studies/twelve/study.toml FOLDER [SET ...]          FOLDER/gowalla-1k/inter.parquet and so on

It reads the models that `abaca compare` left in `work/` beside the study, for the sets whose times are real (by default
SETS). It writes now.jsonl there, and skips what that already holds.
"""

import json
import sys
from pathlib import Path

from abaca import load
from abaca.memory import keep_memory
from abaca.study.environment import environment
from abaca.study.plan import read_study
from abaca.study.work import Work

SETS = ("gowalla-1k", "foursquare-lbsn3", "uci-online-retail", "ml-1m", "groceries")


def main(study: Path, data: Path, names: list[str]) -> None:
    work = Work(read_study(study, data), study.parent)
    results = study.with_name("now.jsonl")
    done = [json.loads(line)["id"] for line in results.read_text().splitlines()] if results.exists() else []
    sets = {each.name: each for each in work.study.data if each.name in (names or SETS)}
    for row in work.study.rows():
        for run in work.state.seeds(row) if row.data in sets else ():
            folder = work.workspace.path / "runs" / run.folder
            if run.id in done or not (folder / "model.json").exists():
                continue
            found = load(folder).evaluate(work.workspace.sequences(sets[row.data]), now=True)
            entry = {"id": run.id, **row._asdict(), "seed": run.seed, **found.to_json(), "environment": environment()}
            with results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
            print(row.data, row.encoder, row.output, run.seed, f"{found.mean('ndcg@10'):.4f}", flush=True)


if __name__ == "__main__":
    keep_memory()
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
