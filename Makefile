# `make demo` and `make test` create the virtual environment that they need.
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt
SETUP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
THREADS ?= 2

.PHONY: help setup dev demo serve test slow check bench docs wheel clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(SETUP)  ## a virtual environment with abaca, for the demo and its server

dev: $(DEV)  ## the same with all extras and the developers' tools

$(SETUP): pyproject.toml constraints.txt $(wildcard setup.py)
	python3 -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[demo,serve]'
	touch $@

$(DEV): $(SETUP)
	$(PIP) -e '.[dev]'
	touch $@

demo: $(SETUP)  ## train on grocery data, evaluate, and write a report
	$(VENV)/bin/abaca demo

serve: $(SETUP)  ## a web page on the models that `make demo` trained
	@test -d demo/default || { echo "there is no demo/default yet: make demo"; exit 2; }
	$(VENV)/bin/abaca serve demo/default demo/softmax --examples demo/sequences

test: $(DEV)  ## the tests, but for the slow ones
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(THREADS) -m "not slow"

slow: $(DEV)  ## the slow tests: pages run block by block, kills, long contracts
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(THREADS) --dist loadgroup -m slow

check: $(DEV)  ## lint and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(SETUP)  ## measure the speed of the loss
	$(VENV)/bin/abaca bench loss

docs: $(DEV)  ## build the documentation in site/, links checked, without the network
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

wheel: $(DEV)  ## build the wheel
	$(PYTHON) -m build --wheel

clean:  ## remove the virtual environment and everything built
	rm -rf $(VENV) build dist demo site src/*.egg-info
