# Everything a person or CI does here. `make` alone lists the targets.
# A fresh machine needs Python 3.11 or later, make, gcc and git; the rest is installed into .venv from the lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements/lock.txt
# The product alone, without extras, tests and tools, in the versions of the lock: `make up` installs it.
PRODUCT := requirements/product
PRODUCT_STAMP := $(VENV)/.product
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
# Tests generate a client from the OpenAPI document. That generator needs an older typer than ours, so it is not in .venv.
GENERATOR := requirements/generator
# Only `make lock` needs it, so it stays out of .venv.
UV := uv==0.13.7
# More than there are cores: many tests wait for a process, a socket or a clock.
WORKERS ?= 3
# The tests of `make coverage`, and the least share of lines and branches in per cent: of core, and of all of Paceline.
COVERED ?= tests/core tests/steps tests/contract tests/differential tests/shells/api
CORE_FLOOR ?= 100
FLOOR ?= 60
# The tests start the command line hundreds of times, so Python keeps its compiled files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install up browser pictures test quick check format lint types contracts bench bench-full coverage coverage-core test-on image-test functions site licences lock clean

help:  ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' Makefile

install: $(STAMP)  ## virtual environment with every extra, exactly as locked

$(STAMP): $(LOCK) $(GENERATOR).txt pyproject.toml client/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(VENV)/generator/bin/python || $(PYTHON) -m venv $(VENV)/generator
	$(VENV)/generator/bin/python -m pip install --disable-pip-version-check --quiet -r $(GENERATOR).txt
	$(PIP) -r $(LOCK)
	$(PIP) --no-deps --no-build-isolation -e . -e client
	@touch $(PRODUCT_STAMP) $@

$(PRODUCT_STAMP): $(PRODUCT).txt pyproject.toml client/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -r $(PRODUCT).txt
	$(PIP) --no-deps --no-build-isolation -e . -e client
	@touch $@

up: $(PRODUCT_STAMP)  ## the demo, in the foreground (ARGS="--port 8081" is passed on)
	@exec $(BIN)/paceline up --demo $(ARGS)

browser:  ## Chromium, promtool and nginx for the tests that need them, where they can be installed
	@scripts/install-browser
	@scripts/install-promtool
	@scripts/install-nginx

test: $(STAMP) browser  ## the whole test suite (ARGS="-k cron" is passed on, WORKERS=2 for fewer at a time)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

pictures: $(STAMP) browser  ## the pictures of the README and the docs, taken from the demo in a browser
	PACELINE_PICTURES=$(CURDIR)/docs/images $(BIN)/python -m pytest -q tests/shells/dashboard/test_pictures.py

quick: $(STAMP)  ## while you work: format, lint, types, and the tests of core, steps and the store on SQLite
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy & types=$$!; \
	PACELINE_TEST_PROFILE=quick $(BIN)/python -m pytest -q -n $(WORKERS) -m "not aws and not slow" tests/core tests/steps tests/contract $(ARGS); \
	tests=$$?; wait $$types && exit $$tests

test-on:  ## core, steps, the store on SQLite, the API and the client on another Python: make test-on PYTHON=python3.13
	$(PYTHON) -m venv build/on/$(notdir $(PYTHON))
	build/on/$(notdir $(PYTHON))/bin/python -m pip install --disable-pip-version-check --quiet -r $(LOCK)
	build/on/$(notdir $(PYTHON))/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e . -e client
	build/on/$(notdir $(PYTHON))/bin/python -m pytest -q -n $(WORKERS) -m "not aws and not slow" tests/core tests/steps tests/contract tests/adapters tests/shells/api tests/client $(ARGS)

image-test: $(STAMP)  ## build the container image, run it, and run the systemd units in it: needs root, takes minutes
	@scripts/install-image-tools
	PACELINE_IMAGE_BASE="$${PACELINE_IMAGE_BASE:-build/image/base.tar}" $(BIN)/python -m pytest -q tests/deploy/test_image.py tests/deploy/test_units.py $(ARGS)

coverage: $(STAMP)  ## which lines and branches the tests reach without AWS; fails below the floors
	rm -rf build/coverage
	$(BIN)/python -m coverage run -m pytest -q -n $(WORKERS) -m "not aws" $(COVERED) $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --include "src/paceline/core/*" --skip-covered --show-missing --fail-under $(CORE_FLOOR)
	$(BIN)/python -m coverage report --skip-covered --fail-under $(FLOOR)

coverage-core: export PACELINE_TEST_PROFILE := quick
coverage-core: export COVERAGE_FILE := $(CURDIR)/build/coverage-core/data
coverage-core: $(STAMP)  ## fails unless the tests of core alone reach each of its lines and branches
	rm -rf build/coverage-core
	$(BIN)/python -m coverage run --source src/paceline/core -m pytest -q -n $(WORKERS) -m "not slow" tests/core $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --show-missing --fail-under $(CORE_FLOOR)

check: $(STAMP)  ## all that CI runs: format, lint, types, import contracts, tests
	$(BIN)/ruff format --check
	$(MAKE) --no-print-directory -j 2 --output-sync=target lint types contracts
	$(MAKE) --no-print-directory test

format: $(STAMP)  ## rewrite the files as the formatter wants them
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: $(STAMP)  ## ruff, and codespell for typing errors
	$(BIN)/ruff check
	$(BIN)/codespell

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

contracts: $(STAMP)  ## who may import whom
	$(BIN)/lint-imports

bench: $(STAMP)  ## the benchmarks, quick form
	$(BIN)/python -m bench $(ARGS)

bench-full: $(STAMP)  ## the benchmarks with peers and larger sizes; writes docs/benchmarks.md
	$(BIN)/python -m bench --full $(ARGS)

functions: $(STAMP)  ## the package of deploy/aws, for its own Python (ARGS="--python 3.12" is passed on)
	$(BIN)/python scripts/build-functions $(ARGS)

site: $(STAMP)  ## the documentation as a site in build/site, made offline
	$(BIN)/python -m docsite $(ARGS)

licences: $(STAMP)  ## docs/licences.md, from the lock and the metadata of each package
	$(BIN)/python -m docsite.licences

lock:  ## resolve the dependencies again into requirements/lock.txt
	$(PYTHON) -m venv --clear build/uv
	build/uv/bin/python -m pip install --disable-pip-version-check --quiet $(UV)
	build/uv/bin/uv pip compile pyproject.toml client/pyproject.toml --no-emit-package paceline-client --all-extras --universal --python-version 3.11 --upgrade \
	  --quiet --no-annotate --no-header --no-emit-index-url --output-file $(LOCK)
	build/uv/bin/uv pip compile pyproject.toml client/pyproject.toml --no-emit-package paceline-client --extra build --constraint $(LOCK) --universal --python-version 3.11 --upgrade \
	  --quiet --no-annotate --no-header --no-emit-index-url --output-file $(PRODUCT).txt
	build/uv/bin/uv pip compile $(GENERATOR).in --universal --python-version 3.11 --upgrade \
	  --quiet --no-annotate --no-header --no-emit-index-url --output-file $(GENERATOR).txt

clean:  ## remove what was built, but not the store
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
