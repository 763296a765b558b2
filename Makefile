# Works with any Python 3.11 or newer: make test PYTHON=python3.13
PYTHON ?= python3
# The environment; recreated when it belongs to another version of Python.
VENV ?= .venv
# Number of parallel test processes; 0 runs all tests in the main process.
WORKERS ?= 2
# Which tests: "slow" for the slow ones only, "" for all.
MARKS ?= not slow
# Tests of one room, for example: make test ROOM=compiler
ROOM ?=
# Further options for pytest, for example: make pytest ARGS="tests/compiler -x"
ARGS ?=
# The tests start many processes, which should load compiled Python files whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

PLACES = $(if $(ROOM),$(wildcard jaxmech/$(ROOM) jaxmech/$(ROOM).py tests/$(ROOM) tests/test_$(ROOM).py))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test slow pytest lint docs format install hooks clean

RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --quiet --disable-pip-version-check
SHOW_VERSION := import sys; print("%d.%d" % sys.version_info[:2])
VERSION := $(shell $(PYTHON) -c '$(SHOW_VERSION)' 2>/dev/null)
# Empty files that mark a finished step, named by the version so that another Python starts over.
MADE := $(VENV)/.made-$(VERSION)
INSTALLED := $(VENV)/.installed-$(VERSION)
INSTALLED_DEV := $(VENV)/.installed-dev-$(VERSION)
INSTALLED_DOCS := $(VENV)/.installed-docs-$(VERSION)

help: ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: $(INSTALLED) ## run the study of configs/double_pendulum.toml
	$(RUN)/jaxmech ensemble configs/double_pendulum.toml --out runs/double_pendulum
	@echo "Done. See runs/double_pendulum: summary.txt and results.zarr; jaxmech report draws it"
	@echo "A page about it: $(RUN)/jaxmech report runs/double_pendulum"

test: $(if $(ROOM),,lint) pytest ## check the style and run the tests; of one room: ROOM=compiler

slow: ## run the slow tests, about half an hour on two cores
	@$(MAKE) --no-print-directory pytest MARKS=slow

pytest: $(INSTALLED_DEV) ## run the tests
	@$(RUN)/python -c 'import platform, jax; print("Python", platform.python_version(), "with jax", jax.__version__)'
	@test -z "$(ROOM)" -o -n "$(PLACES)" || { echo "There is no room $(ROOM) in jaxmech or tests" >&2; exit 1; }
	@$(RUN)/python -m pytest -n $(WORKERS) --dist loadfile -m '$(MARKS)' $(PLACES) $(ARGS)

lint: $(INSTALLED_DEV) ## check the style and the types
	@$(RUN)/ruff check --quiet .
	@$(RUN)/ruff format --quiet --check .
	@$(RUN)/mypy

docs: $(INSTALLED_DOCS) ## build the documentation site in docs/_build/html
	@rm -rf docs/reference/generated # pages of names that are gone
	@$(RUN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto docs docs/_build/html
	@echo "Done. Open docs/_build/html/index.html"

format: $(INSTALLED_DEV) ## apply fixes and formatting
	@$(RUN)/ruff check --quiet --fix . || true
	@$(RUN)/ruff format .

install: $(INSTALLED_DEV) ## set up the environment, with all development tools

hooks: $(INSTALLED_DEV) ## check style and types before every commit
	@$(RUN)/pre-commit install

clean: ## remove the environments and the caches
	rm -rf $(VENV) .venv-3.* build dist docs/_build docs/reference/generated .mypy_cache .pytest_cache .ruff_cache
	find jaxmech tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@test -n "$(VERSION)" || { \
	  echo "The command '$(PYTHON)' does not run; name a Python 3.11 or newer, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "jaxmech needs Python 3.11 or newer, but '$(PYTHON)' is Python $(VERSION); name a newer one, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	@test ! -e $(VENV) || test -e $(VENV)/pyvenv.cfg || { \
	  echo "'$(VENV)' exists but is not a Python environment; remove it or name another, as in: make $(MAKECMDGOALS) VENV=.venv-dev" >&2; \
	  exit 1; }
	@if [ "$$($(RUN)/python -c '$(SHOW_VERSION)' 2>/dev/null)" = "$(VERSION)" ]; \
	  then $(PYTHON) -m venv $(VENV); \
	  else echo "Making $(VENV) with Python $(VERSION)"; $(PYTHON) -m venv --clear $(VENV); fi
	@touch $@

$(INSTALLED): pyproject.toml $(MADE)
	@echo "Installing jaxmech in $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml $(MADE)
	@echo "Installing jaxmech in $(VENV), with the development tools"
	@$(PIP) install --editable '.[dev]'
	@touch $(INSTALLED) $@

$(INSTALLED_DOCS): pyproject.toml $(MADE)
	@echo "Installing jaxmech in $(VENV), with what the documentation site needs"
	@$(PIP) install --editable '.[docs]'
	@touch $(INSTALLED) $@
