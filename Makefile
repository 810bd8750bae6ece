# Two commands do everything: `make search` and `make test`. Both set up `.venv` first and skip that when it is current.

PYTHON ?= python3
TARGET ?= local
LATENCY_MS ?= 10
DATA ?= digits
BUDGET ?= 150s
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); test $$n -lt 4 && echo $$n || echo 4)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Nothing in a new .venv is compiled yet, and images of containers often forbid Python to keep what it compiles. Then each
# of the many processes that searches and tests start would compile all of torch again, for seconds.
export PYTHONDONTWRITEBYTECODE :=

# Where tests write: in memory where 8 GB of it may be used so. Files and studies are made to last (fsync), thousands of
# times in a suite, and each time takes milliseconds on a disk.
ROOM := $(shell test -w /dev/shm && test "$$(df -k --output=avail /dev/shm | tail -1)" -gt 8000000 && echo /dev/shm)
SCRATCH := $(or $(ROOM),$(TMPDIR),/tmp)

.DEFAULT_GOAL := help
.PHONY: help setup search check test test-fast clean

help:  ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(STAMP)  ## Make .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	@if command -v uv >/dev/null; then \
	    set -ex; \
	    uv venv --quiet --allow-existing --python '>=3.11' $(VENV); \
	    uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	        || { echo "Error: $(PYTHON) is older than 3.11" >&2; \
	             echo "hint: name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
	    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	        || { echo "Error: $(PYTHON) cannot make virtual environments" >&2; \
	             echo "hint: install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }; \
	    set -ex; \
	    $(PYTHON) -m venv $(VENV); \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'; \
	fi
	@touch $@

search: setup  ## Search a network: TARGET, LATENCY_MS, DATA and BUDGET can be set
	$(BIN)/nas search --target '$(TARGET)' --latency-ms '$(LATENCY_MS)' --data '$(DATA)' --budget '$(BUDGET)'

check: setup  ## Format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup  ## Every check beside the tests that can share the machine, then the tests that need it alone
	@scratch=$$(mktemp -d $(SCRATCH)/nas-XXXXXX) || exit 1; export TMPDIR=$$scratch; \
	checks=; trap 'kill $$checks 2>/dev/null; wait; rm -rf $$scratch' EXIT; \
	trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(MAKE) --no-print-directory check >$$scratch/check.log 2>&1 & checks=$$!; \
	$(BIN)/pytest -m 'not alone' --numprocesses $(JOBS) --dist loadgroup --durations=40; tests=$$?; \
	wait $$checks; checked=$$?; cat $$scratch/check.log; \
	test $$tests -eq 0 && test $$checked -eq 0
	$(BIN)/pytest -m alone --durations=5

test-fast: setup  ## The tests that take seconds
	$(BIN)/pytest -m 'not slow and not alone' --numprocesses $(JOBS) --dist loadgroup

clean:  ## Remove caches and the environment, but no run
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
