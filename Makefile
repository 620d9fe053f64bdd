# One menu. Every target sets up what it needs (tools/setup); nothing has to be installed by hand first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin

# Tests of many processes or transactions at once, which need half the machine each: two files at a time. All others run
# three at a time, however few the processors: most of them wait for servers, processes and answers.
LARGE := tests/chaos/test_kill.py tests/chaos/test_mill.py tests/chaos/test_rabbitmq_kill.py \
  tests/chaos/test_crash_loop.py tests/systems/ledger/test_under_load.py
# Files of the others, and of their servers, lie in memory where there is plenty of it. A process that is killed loses no
# more there than on a disk, and nobody waits for a disk to confirm. Transactions meet less often, so not of the large ones.
PLENTY := 8000000
MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > $(PLENTY) {print "TMPDIR=/dev/shm"}')

.PHONY: help demo test check chaos planted mutants bench servers format clean

help:  ## Show this menu
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(VENV)/.product: pyproject.toml constraints.txt tools/setup
	@tools/setup product

$(VENV)/.develop: pyproject.toml constraints.txt tools/setup
	@tools/setup develop

demo: $(VENV)/.product  ## Run the main job on the embedded default: no server needed
	$(BIN)/headway demo

test: $(VENV)/.develop servers  ## Everything a change must pass, real servers included (under 15 minutes)
	@$(MAKE) --no-print-directory lint
	$(MEMORY) $(BIN)/pytest -q -n 3 --dist worksteal $(LARGE:%=--ignore=%)
	$(BIN)/pytest -q -n 2 --dist loadfile $(LARGE)

check: $(VENV)/.develop lint  ## Lint, types, import contracts, core tests (under a minute)
	$(BIN)/pytest -q tests/unit

.PHONY: lint
lint: $(VENV)/.develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/ratchet.py

chaos: $(VENV)/.develop servers  ## Fault tests at full size, with a summary for docs/promises.md
	$(BIN)/pytest -q -m chaos --chaos

planted: $(VENV)/.develop servers  ## Plant known bugs one by one, and show that a test finds each
	$(MEMORY) $(BIN)/python tools/planted.py

mutants: $(VENV)/.develop  ## Change what decides in 1,200 small places, and show that tests find them (about 15 minutes)
	@tools/setup mutants
	$(MEMORY) $(BIN)/python tools/mutants.py

bench: $(VENV)/.develop servers  ## Benchmarks against the peers, in one run
	@tools/setup bench
	$(BIN)/python -m benchmarks

servers: $(VENV)/.develop
	@tools/setup servers

format: $(VENV)/.develop  ## Rewrite the code in the house format
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
