# make install | demo | quick | test | chaos | flower | check | size | docs | bench: everything is set up on first use, in .venv
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
SIZE ?= full

.PHONY: install demo quick quick-tests test chaos flower check size docs bench clean

# Rooms whose tests take seconds: what one runs after each edit.
QUICK := core estimation selector rules optimization/test_drift_plus_penalty.py policies/test_rbcs_f.py policies/test_beliefs.py \
	test_catalogue.py lab/test_federated.py test_public_names.py test_queues.py test_selector.py test_simulation.py
NOT_QUICK := core/test_sources.py selector/test_hostile_files.py selector/test_guard.py

install: .venv/.dev

# demo: what the comparison needs; dev: everything.  `requirements/lock` writes the lists.
.venv/.demo .venv/.dev: .venv/.%: requirements/%.txt requirements/nvidia.txt requirements/install pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python requirements/install $*
	touch $@

demo: .venv/.demo
	$(BIN)/fedroster compare --task digits-logistic --coupling 0.9 --out runs/demo
	$(BIN)/fedroster compare --task digits-logistic --coupling 0.9 --memory --free-places --policy by-speed,random --out runs/demo-places

test: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

quick: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory quick-tests

# Alone for `.ci/fresh`, which has environments of its own: BIN=... OPTIONS=...
quick-tests:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(OPTIONS) $(addprefix tests/,$(QUICK)) $(addprefix --ignore=tests/,$(NOT_QUICK))

chaos: install
	PYTHONPATH=tests $(BIN)/python -m chaos --size $(SIZE)

flower:
	PYTHON=$(PYTHON) .ci/flower

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src tests benchmarks examples
	.ci/size

size:
	@.ci/size

docs: install
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/run_examples.py README.md docs

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv docs/_build runs
