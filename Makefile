# The two commands that matter: `make demo` and `make test`.  Each installs what it needs into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard src/squall/_kernels/*.cpp src/squall/_kernels/*.hpp src/squall/_kernels/CMakeLists.txt)

.PHONY: demo test slow lint bench fuzz clean

demo: $(VENV)/installed
	$(BIN)/squall demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 -m slow

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(filter %.cpp %.hpp,$(NATIVE))

bench: $(VENV)/installed-dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

fuzz: $(VENV)/installed-dev
	$(BIN)/python -m tests.fuzz

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Squall needs Python 3.11 or later; set PYTHON=" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	@echo "installing into $(VENV) and building the C++ kernels: some minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

# (not after the other: a build of the kernels takes minutes, and this one serves both)
$(VENV)/installed-dev: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	@echo "installing into $(VENV) with all that tests need, and building the C++ kernels: some minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(VENV)/installed $@
