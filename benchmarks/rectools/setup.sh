#!/bin/sh
# Makes the environment in which RecTools runs: benchmarks/rectools/setup.sh FOLDER; then race.py run … --peer FOLDER/bin/python
set -eu
folder=${1:?where should the environment go?}
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$(dirname "$0")/requirements.txt"
"$folder/bin/python" -c 'import rectools; print("RecTools", rectools.__version__, "is ready")'
