# make demo: train an agent in about a minute, with a curve and a film.   make test: lint, types and all tests.
# make docs: the documentation as a site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= auto

.PHONY: demo test fast docs torture mutants install renderer browser clean

demo: install renderer
	$(BIN)/pessimism demo

test: install renderer browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" -n $(JOBS)
	$(BIN)/pytest -m slow -n $(JOBS) --dist loadgroup

fast: install
	$(BIN)/pytest -m "not slow" -n $(JOBS)

# The site in site/. It opens as files; search needs a server: python -m http.server -d site
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Kills, flipped bits, bad environments and bad commands: about five minutes, with a summary of what was tried.
torture: install
	$(BIN)/python tests/torture.py

# Makes known faults in a copy of the package, one by one; each must be noticed by its tests.
mutants: install
	$(BIN)/python tests/mutants.py

install: $(READY)

# torch comes first: with it in place at the tested version nothing later asks for another build of it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs,report,tracking,dmc,cluster,sb3,onnx,tune,minari]'
	touch $@

# MuJoCo draws through EGL. Where the packages are missing and may be installed, they are; else this says how.
renderer:
	@ldconfig -p 2>/dev/null | grep -q libEGL.so.1 && ldconfig -p | grep -q libGL.so.1 || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends libegl1 libgl1 >/dev/null; } || \
	echo "no renderer: no videos and no tasks from pixels (apt-get install libegl1 libgl1)"

# Tests of the report's page and of the docs open them in Chromium. Where it is missing and may be installed, it is;
# else they are skipped and say so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || \
	echo "no browser: the report's page and the docs are not opened (apt-get install chromium)"

clean:
	rm -rf $(VENV) runs site
