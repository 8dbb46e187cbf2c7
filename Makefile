# make demo: train an agent in a few minutes, with a curve and a film.   make test: lint, types and all tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test fast install renderer clean

demo: install renderer
	$(BIN)/pessimism demo

test: install renderer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

fast: install
	$(BIN)/pytest -m "not slow"

install: $(READY)

# torch comes first: with it in place at the tested version nothing later asks for another build of it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,report,tracking,dmc,cluster]'
	touch $@

# MuJoCo draws through EGL. Where the packages are missing and may be installed, they are; else this says how.
renderer:
	@ldconfig -p 2>/dev/null | grep -q libEGL.so.1 && ldconfig -p | grep -q libGL.so.1 || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends libegl1 libgl1 >/dev/null; } || \
	echo "no renderer: no videos and no tasks from pixels (apt-get install libegl1 libgl1)"

clean:
	rm -rf $(VENV) runs
