# make demo         what Forebay does, side by side, on a machine with only Python 3.11 or newer
# make pipeline-demo    the demo's traffic with the journal on, then all jobs of the pipeline (Java 17 too)
# make test         everything: lint, unit tests pure and compiled, deploy checks, integration tests (see .ci/toolchain)
# make lint | unit | compile-test | deploy-test | pipeline-test | integration | chaos-test    a part of it
# make client-suites  clients' own test suites, directly and through Forebay (ten minutes; KafkaJS too where Node.js is)
# make clean        remove what was built; distclean: downloads as well
# make chaos        faults on a real cluster, each by itself, then pairs for CHAOS_SECONDS=1800: docs/reliability.md
# make fuzz         bad bytes to every decoder and to the whole proxy, for FUZZ_SECONDS=600
# make bench        the tables of docs/performance.md, measured anew on this machine (about an hour)
# make bench-others fetches other proxies for bench f to compare with, and tries them (Shotover: nine minutes of CPU)
# Another Python:   make PYTHON=python3.13 …

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The `ci` profile has no deadline, since jobs share the machine, and the same examples every time; a bare `pytest`
# looks for new ones.
PYTEST := $(BIN)/python -m pytest -q -p tests.no_skips --hypothesis-profile=ci
UNIT := tests --ignore=tests/integration --ignore=tests/deploy --ignore=tests/chaos --ignore=tests/pipeline
SOURCES := $(shell find codecs policies proxy pipeline -name '*.py') hatch_build.py pyproject.toml constraints.txt
# Older makes (3.81 is still about) mix the lines of jobs; that is all they lose.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: bench bench-others chaos fuzz demo pipeline-demo test lint unit compile-test deploy-test pipeline-test \
    integration chaos-test kit clean distclean
.PRECIOUS: %/.pip
.DEFAULT_GOAL := test

demo: $(VENV)/.demo build/demo/.done
	@ls build/demo/forebay_codecs/*.so >/dev/null 2>&1 || \
	    echo "The codecs run as pure Python: no C compiler, or no Python headers, on this machine."
	@PYTHONPATH=$(CURDIR)/build/demo $(BIN)/forebay demo

PIPELINE_SECONDS ?= 120
pipeline-demo: $(VENV)/.dev kit
	@$(BIN)/python -m tests.kit.pipeline_demo --seconds $(PIPELINE_SECONDS)

test:
	@.ci/toolchain $(PYTHON)
	@$(MAKE) --no-print-directory $(VENV)/.dev
	@$(MAKE) --no-print-directory -j2 $(SYNC) kit lint unit compile-test deploy-test
	@$(MAKE) --no-print-directory pipeline-test
	@$(MAKE) --no-print-directory integration
	@$(MAKE) --no-print-directory chaos-test

lint: $(VENV)/.dev
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(PYTEST) $(UNIT)

# The same tests over the compiled modules, which stand outside the tree: beside the sources they would shadow edits.
compile-test: $(VENV)/.dev build/compiled/.done
	FOREBAY_REQUIRE_COMPILE=1 PYTHONPATH=$(CURDIR)/build/compiled $(PYTEST) -p no:cacheprovider $(UNIT)

deploy-test: $(VENV)/.dev kit
	$(BIN)/python -m tests.deploy.schemas
	$(PYTEST) tests/deploy

# Over a real Spark, once for all of them.
pipeline-test: $(VENV)/.dev kit
	$(PYTEST) tests/pipeline

integration: $(VENV)/.dev kit
	$(PYTEST) tests/integration

# Clients' own test suites, directly and through Forebay, and the scenarios of integration with more clients.
.PHONY: client-suites
client-suites: $(VENV)/.dev kit
	FOREBAY_TEST_ALL=1 $(PYTEST) tests/integration/parity
	$(BIN)/python -m tests.clients

# Each fault once and a few random pairs, four minutes.
chaos-test: $(VENV)/.dev kit
	$(PYTEST) tests/chaos

# The seed is printed with every pair; FOREBAY_TEST_SEED=N draws the same pairs again.
CHAOS_SECONDS ?= 1800
chaos: $(VENV)/.dev kit
	FOREBAY_TEST_SECONDS=$(CHAOS_SECONDS) FOREBAY_TEST_KEEP=1 $(PYTEST) -s tests/chaos

# Over the compiled codecs, as users have them.
bench: $(VENV)/.dev kit build/compiled/.done
	FOREBAY_REQUIRE_COMPILE=1 PYTHONPATH=$(CURDIR)/build/compiled $(BIN)/python -m bench --keep $(BENCH)

bench-others: $(VENV)/.dev kit
	$(BIN)/python -m bench.others_setup
	$(BIN)/python -m bench.others_check

# Led by coverage where atheris is to be had; the seed is printed, FUZZ='--seed N --only NAME' repeats a part of it.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev build/compiled/.done
	@$(PIP) install -c constraints.txt --group fuzz || echo "no atheris here: mutants are led by what is accepted" >&2
	$(BIN)/python -m tests.fuzz.compiled --python $(CURDIR)/build/compiled
	$(BIN)/python -m tests.fuzz --guided --seconds $(FUZZ_SECONDS) $(FUZZ)

# Kafka, old clients, toxiproxy, kubeconform and kcat into .cache/; quick where they are there.
kit: $(VENV)/.dev
	$(BIN)/python -m tests.kit.setup

# --group needs pip 25.1, --build-constraint 25.3.
%/.pip:
	$(PYTHON) -m venv $*
	$*/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.3'
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt --build-constraint constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt --build-constraint constraints.txt -e '.[demo,pipeline]' --group dev
	@touch $@

# The project as a user installs it, with the hot modules compiled: on PYTHONPATH it comes before the editable one.
# Built where nothing else is installed: a type that the compiler needs and does not find makes a pure-Python wheel.
build/compiled/.done: export FOREBAY_REQUIRE_COMPILE = 1
build/%/.done: $(SOURCES) | build/venv/.pip
	@rm -rf build/$*
	build/venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --target build/$* --build-constraint constraints.txt .
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find codecs policies proxy tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .cache
