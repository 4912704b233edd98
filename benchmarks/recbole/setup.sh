#!/bin/sh
# Makes the environment in which RecBole runs: benchmarks/recbole/setup.sh FOLDER; then race.py … --peer FOLDER/bin/python
set -eu
folder=${1:?where should the environment go?}
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$(dirname "$0")/requirements.txt"
"$folder/bin/python" -c 'import recbole; print("RecBole", recbole.__version__, "is ready")'
