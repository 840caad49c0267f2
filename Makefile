# Everything a fresh machine needs: `make train` and `make test`; each sets up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
NATIVE := $(wildcard src/actzip/kernels/csrc/*/*)

.PHONY: setup train test coverage lint docs results fuzz clean

setup: $(STAMP)

# torch goes first and pinned: as somebody else's dependency it would pull gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt scikit-build-core cmake ninja
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $(STAMP)

train: setup
	$(BIN)/actzip compare --quick

test: setup
	$(BIN)/pytest -n 2

# Which lines no test runs; takes half as long again.
coverage: setup
	$(BIN)/pytest -n 2 --cov --cov-report=term

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as a site, in site/; warnings are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# All that the docs show, measured again: many hours; stopped, it goes on where it was.
results: setup
	$(BIN)/python benchmarks/rerun.py

# The C++ encoders and decoders under sanitizers, fed with damaged bytes: SECONDS for each. Then
# random programs with and without actzip, SECONDS each for those with and without silent edits.
fuzz: setup
	$(MAKE) -C tests/native fuzz SECONDS=$(or $(SECONDS),20)
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(or $(SECONDS),20)
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(or $(SECONDS),20) --silent
	$(BIN)/python tests/codecs/payload_fuzzer.py --inputs $(or $(INPUTS),10000)

clean:
	rm -rf $(VENV) build
