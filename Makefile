# `make demo` and `make test` need Python 3.10 or newer and nothing else; everything goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.done

.PHONY: demo test slow lint docs bench clean

demo: $(SETUP)
	$(BIN)/latchwork demo

test: $(SETUP)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

slow: $(SETUP)
	$(BIN)/python -m pytest -m slow

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(SETUP) .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

bench: $(SETUP)
	for what in scan step decode memory scaling; do $(BIN)/latchwork bench $$what || exit 1; done

$(SETUP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,automata,test]'
	touch $(SETUP)

.venv/.docs: $(SETUP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch .venv/.docs

clean:
	rm -rf .venv .venv-wheel dist build site
