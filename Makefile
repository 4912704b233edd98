# Everything a newcomer needs: `make demo` and `make test` set up by themselves.
VENV := .venv
PYTHON := $(VENV)/bin/python
SETUP := $(VENV)/.installed
THREADS ?= 2

.PHONY: help setup demo serve test check bench docs wheel clean

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(SETUP)  ## a virtual environment with abaca and all its extras

$(SETUP): pyproject.toml constraints.txt $(wildcard setup.py)
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(SETUP)  ## the main job on grocery data, start to end
	$(VENV)/bin/abaca demo

serve: $(SETUP)  ## the page on the models that `make demo` trained
	@test -d demo/cpr || { echo "there is no demo/cpr yet: make demo"; exit 2; }
	$(VENV)/bin/abaca serve demo/cpr demo/softmax --examples demo/sequences

test: $(SETUP)  ## all tests, the slow ones too
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(THREADS)

check: $(SETUP)  ## lint and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(SETUP)  ## how fast the loss is here
	$(VENV)/bin/abaca bench loss

docs: $(SETUP)  ## build the documentation in site/, links checked, without the network
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

wheel: $(SETUP)  ## build the wheel
	$(PYTHON) -m build --wheel

clean:  ## forget the virtual environment and what was built
	rm -rf $(VENV) build dist demo site src/*.egg-info
