# Every target sets itself up: a virtual environment in .venv, installed with constraints.txt.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Modules are compiled when they are first imported: compiling all of torch, most of which is
# never imported, takes as long as installing it.
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
# Some containers forbid writing compiled modules. Then each of the hundreds of processes that the
# tests start compiles torch again, which takes as long as everything else it does.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all lint docs figures clean

help:
	@echo "make demo     train GRAND on the embedded dataset and show what comes out"
	@echo "make test     the fast test suite"
	@echo "make test-all every test, those that take minutes too"
	@echo "make lint     ruff and mypy"
	@echo "make docs     build the documentation into docs/_build/html"
	@echo "make figures  measure the accuracies of docs/findings.md anew (hours; resumes)"
	@echo "make clean    remove the environment, the demo's output and the built documentation"

demo: $(VENV)/installed
	@rm -rf runs/demo
	@$(BIN)/dropnode train digits --out runs/demo

# One thread a process: tests side by side beat threads side by side on graphs this small. One
# process more than cores: a quarter of the time goes into waiting for other processes.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist worksteal -n $$(( $$(nproc) + 1 ))

test: $(VENV)/installed-dev
	$(PYTEST)

test-all: $(VENV)/installed-dev
	$(PYTEST) -m "slow or not slow"

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A warning is an error: a broken link or a name that does not exist should not go unnoticed.
docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W --keep-going -n -q -j auto -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

figures: $(VENV)/installed
	$(BIN)/dropnode reproduce presets --out results/presets
	$(BIN)/python studies/digits.py

clean:
	rm -rf $(VENV) runs/demo docs/_build

$(BIN)/python:
	@echo "Setting up $(VENV); the first time takes some minutes ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --editable ".[docs]"
	@touch $@
