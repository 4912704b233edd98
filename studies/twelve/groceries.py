"""The groceries of the demo as a log of this study: FOLDER/groceries/inter.parquet.

python studies/twelve/groceries.py FOLDER
"""

import sys
from pathlib import Path

from abaca.study.groceries import groceries


def main(folder: Path) -> None:
    log = groceries().log.rename(columns={"user": "user_id", "item": "item_id", "time": "timestamp"})
    path = folder / "groceries/inter.parquet"
    path.parent.mkdir(exist_ok=True)
    log.to_parquet(path, index=False)
    print(f"{path}: {len(log):,} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
