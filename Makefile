# make demo         what Forebay does, side by side; needs only make, Python 3.11 or newer with venv, and PyPI
# make pipeline-demo    the demo's traffic with the journal on, then all jobs of the pipeline (Java 17 too)
# make test         lint, unit tests pure or compiled, deploy checks, integration tests, faults (see .ci/toolchain)
# make test-all     the same with nothing left out: whole matrices, every unit test pure and compiled, coverage, all faults, fuzzing
# make lint | unit | coverage | compile-test | deploy-test | pipeline-test | oldest-spark-test | integration | chaos-test    a part of it
# make client-suites  clients' own test suites, directly and through Forebay (ten minutes; KafkaJS too where Node.js is)
# make vendor-check   whether the page's JavaScript is what npm has; make picture: the README's screenshot anew
# make clean        remove what was built; distclean: downloads as well
# make chaos        faults on a real cluster, each by itself, then pairs for CHAOS_SECONDS=1800: docs/reliability.md
# make soak         fault after fault under one load for SOAK_SECONDS=3600 of each kind of timeouts, every record accounted for
# make exactly-once clients that send once, while brokers' answers get lost (RECORDS=1000000 each): docs/reliability.md
# make sbom         what Forebay is made of (CycloneDX): build/sbom/forebay.cdx.json
# make docs         the documentation as a site, with references made of the code: build/docs/html/latest
# make fuzz         bad bytes to every decoder and to the whole proxy, for FUZZ_SECONDS=600
# make bench        the tables of docs/performance.md, measured anew on this machine (about an hour)
# make instructions the instructions of each path a request, counted by valgrind: a table of docs/performance.md
# make bench-short  each bench in seconds: whether it works, for `make test-all`
# make bench-others fetches other proxies for bench f to compare with, and tries them (Shotover: nine minutes of CPU)
# Another Python:   make PYTHON=python3.13 …    (after `make clean`, where there are environments of another one)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := python -m pip --disable-pip-version-check --quiet
# No bytecode of what nobody may import.
INSTALL := install --no-compile -c constraints.txt --build-constraint constraints.txt
# The `ci` profile has no deadline, since jobs share the machine, and the same examples every time; a bare `pytest`
# looks for new ones.
# WHOLE=1 takes what is marked `whole`, too.
WHOLE ?=
PYTEST = $(BIN)/python -m pytest -q -p tests.no_skips --hypothesis-profile=ci --durations=20 --durations-min=4 $(if $(WHOLE),,-m 'not whole')
# Two at once, each with files and ports of its own; what is left of one's work the other takes over. Not for tests
# under faults: they need the machine for themselves.
TWO := -n 2 --dist=worksteal
COMPILED := FOREBAY_REQUIRE_COMPILE=1 PYTHONPATH=$(CURDIR)/build/compiled
UNIT := tests --ignore=tests/integration --ignore=tests/deploy --ignore=tests/chaos --ignore=tests/pipeline
SOURCES := $(shell find codecs policies proxy pipeline -name '*.py') hatch_build.py pyproject.toml constraints.txt

.PHONY: bench bench-short bench-others chaos fuzz demo pipeline-demo test test-all lint unit coverage compile-test deploy-test \
    pipeline-test integration chaos-test kit clean distclean
# Only where a Python is asked for: an environment that is there keeps its own, and would be used in silence.
ifneq ($(origin PYTHON),file)
VERSION := -c 'import sys; print("%d.%d" % sys.version_info[:2])'
OLD := $(foreach each,$(wildcard $(VENV) build/demo),$(if $(filter-out $(shell $(PYTHON) $(VERSION)),$(shell $(each)/bin/python $(VERSION))),$(each)))
ifneq ($(if $(filter clean distclean,$(MAKECMDGOALS)),,$(strip $(OLD))),)
$(error $(strip $(OLD)) was made with another Python than $(PYTHON): first `make clean`)
endif
endif

.PRECIOUS: %/.pip
.DEFAULT_GOAL := test

demo: build/demo/.done
	@ls build/demo/lib/python3.*/site-packages/forebay_codecs/*.so >/dev/null 2>&1 || \
	    echo "Forebay runs as pure Python: no C compiler, or no Python headers, on this machine."
	@build/demo/bin/forebay demo

PIPELINE_SECONDS ?= 120
pipeline-demo: $(VENV)/.dev kit
	@$(BIN)/python -m tests.kit.pipeline_demo --seconds $(PIPELINE_SECONDS)

# What all but the compiler wait for, $(VENV)/.dev, is made beside it: either by itself leaves a core idle.
STAGES := 'kit lint build/compiled/.done unit' 'compile-test deploy-test' pipeline-test integration chaos-test

test: export ONCE = 1
test:
	@.ci/toolchain $(PYTHON)
	@$(PYTHON) .ci/stages $(MAKE) $(STAGES)

test-all: export WHOLE = 1
test-all: export FUZZ_SECONDS = 120
test-all:
	@.ci/toolchain $(PYTHON)
	@$(PYTHON) .ci/stages $(MAKE) $(STAGES) oldest-spark-test coverage fuzz client-suites bench-short instructions-check docs sbom

lint: $(VENV)/.dev
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/lint-imports
	$(BIN)/mypy

# With ONCE=1 without those that compile-test runs, too.
unit: $(VENV)/.dev
	$(PYTEST) $(TWO) $(UNIT) $(if $(ONCE),$$($(BIN)/python -m tests.kit.compiled --ignore))

# Codecs and policies by their own tests: there it has a floor. They take twice as long under it and more, which is for
# `make test-all`.
coverage: $(VENV)/.dev
	$(PYTEST) $(TWO) --cov --cov-report=term tests/codecs tests/policies

# Over the compiled modules, which stand outside the tree: beside the sources they would shadow edits. Their own tests
# and those of the whole proxy; all unit tests with WHOLE=1.
compile-test: $(VENV)/.dev build/compiled/.done
	$(COMPILED) $(PYTEST) $(TWO) -p no:cacheprovider \
	    $(if $(WHOLE),$(UNIT),$$($(BIN)/python -m tests.kit.compiled))

# With ports of its own: `make test` makes it beside compile-test.
deploy-test: $(VENV)/.dev kit
	$(BIN)/python -m tests.deploy.schemas
	FOREBAY_TEST_PORTS=30000-32699 $(PYTEST) tests/deploy

# Over two real Sparks, each for all the files that it is given: mostly one thread plans, and the tasks are small.
pipeline-test: $(VENV)/.dev kit
	$(PYTEST) -n 2 --dist=loadfile tests/pipeline

# The same over Spark 3.5, but what needs S3 (its file system belongs to another Hadoop), HDFS or a catalog. Java 17 as
# well, but Python 3.11: that Spark knows no newer.
.PHONY: oldest-spark-test
oldest-spark-test: export WHOLE = 1
oldest-spark-test: $(VENV)/.dev kit
	PYTHONPATH=$(CURDIR)/.cache/spark-3.5 $(PYTEST) -n 2 --dist=loadfile tests/pipeline \
	    --ignore=tests/pipeline/test_object_store.py --ignore=tests/pipeline/test_cluster.py \
	    --ignore=tests/pipeline/test_hdfs.py --ignore=tests/pipeline/test_iceberg_catalog.py

# Two at once, each with clusters of its own, file by file (conftest.py): they mostly wait for brokers and clients. Three
# at once get into each other's way, and take longer.
integration: $(VENV)/.dev kit
	$(PYTEST) -n 2 tests/integration

# Clients' own test suites, directly and through Forebay, and the scenarios of integration with more clients.
.PHONY: client-suites
client-suites: $(VENV)/.dev kit
	FOREBAY_TEST_ALL=1 $(PYTEST) tests/integration/parity
	$(BIN)/python -m tests.clients

# The most telling faults, each once, and a pair that is the same every time, as examples are for unit tests: it found
# clients that cost others the loop. With WHOLE=1 every fault and two new pairs, a quarter of an hour and more.
# Over the compiled modules, as users have them.
chaos-test: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) $(if $(WHOLE),,FOREBAY_TEST_SEED=$${FOREBAY_TEST_SEED:-736524}) $(PYTEST) tests/chaos

# The seed is printed with every pair; FOREBAY_TEST_SEED=N draws the same pairs again.
CHAOS_SECONDS ?= 1800
chaos: export WHOLE = 1
chaos: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) FOREBAY_TEST_SECONDS=$(CHAOS_SECONDS) FOREBAY_TEST_KEEP=1 $(PYTEST) -s tests/chaos

# Over the compiled modules, as users have them. SOAK=short or SOAK=default: with those timeouts only.
.PHONY: soak
SOAK_SECONDS ?= 3600
soak: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) $(BIN)/python -m tests.chaos.soak $(SOAK_SECONDS) $(SOAK)

# Over the compiled modules, as users have them; half an hour.
.PHONY: exactly-once
RECORDS ?= 1000000
exactly-once: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) $(BIN)/python -m tests.chaos.exactly_once $(RECORDS)

# Over the compiled codecs, as users have them.
bench: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) $(BIN)/python -m bench --keep $(BENCH)

# Numbers of a few seconds say nothing: what is asked is that each has some.
bench-short: $(VENV)/.dev kit build/compiled/.done
	$(COMPILED) $(BIN)/python -m bench --short $(BENCH)

# Forebay's instructions a request, which do not depend on who else uses the machine. Needs valgrind.
.PHONY: instructions instructions-check
instructions: $(VENV)/.dev build/compiled/.done
	$(COMPILED) $(BIN)/python -m bench.instructions

instructions-check: $(VENV)/.dev build/compiled/.done
	$(COMPILED) $(BIN)/python -m bench.instructions --check

bench-others: $(VENV)/.dev kit
	$(BIN)/python -m bench.others_setup
	$(BIN)/python -m bench.others_check

# Led by coverage where atheris is to be had; the seed is printed, FUZZ='--seed N --only NAME' repeats a part of it.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev build/compiled/.done
	@$(BIN)/$(PIP) $(INSTALL) --group fuzz || echo "no atheris here: mutants are led by what is accepted" >&2
	$(BIN)/python -m tests.fuzz.compiled --python $(CURDIR)/build/compiled
	$(BIN)/python -m tests.fuzz --guided --seconds $(FUZZ_SECONDS) $(FUZZ)

# The documentation as a site: build/docs/html/X.Y of this version, and the same as latest. A link that leads nowhere
# fails it.
.PHONY: docs
docs: $(VENV)/.dev
	@$(BIN)/$(PIP) $(INSTALL) --group docs
	$(BIN)/python -m docs.site.sources build/docs/source
	@rm -rf build/docs/html
	$(BIN)/sphinx-build -q -W -n --keep-going -b html -c docs/site build/docs/source build/docs/html/latest
	@cp -r build/docs/html/latest build/docs/html/$$($(BIN)/python -m docs.site.sources --version)
	@cp docs/site/index.html build/docs/html/

# What `pip install .` brings, with versions, licences and who needs whom: CycloneDX, in build/sbom/forebay.cdx.json.
.PHONY: sbom
sbom: $(VENV)/.dev
	@rm -rf build/sbom
	@$(BIN)/$(PIP) $(INSTALL) --group sbom
	$(PYTHON) -m venv --without-pip build/sbom/venv
	FOREBAY_NO_COMPILE=1 $(BIN)/$(PIP) --python build/sbom/venv/bin/python $(INSTALL) .
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o build/sbom/forebay.cdx.json \
	    build/sbom/venv/bin/python
	$(BIN)/python -m tests.kit.sbom build/sbom/forebay.cdx.json

# The page's libraries against npm, byte for byte, and a new picture of the page for the README.
.PHONY: vendor-check picture
vendor-check: $(VENV)/.dev
	$(BIN)/python -m tests.kit.vendored

picture: $(VENV)/.dev kit
	$(BIN)/python -m tests.kit.picture

# Kafka, old clients, toxiproxy, kubeconform, helm and kcat into .cache/; quick where they are there.
kit: $(VENV)/.dev
	$(BIN)/python -m tests.kit.setup

# --group needs pip 25.1, --build-constraint 25.3.
%/.pip:
	$(PYTHON) -m venv $*
	$*/bin/$(PIP) install --upgrade 'pip>=25.3'
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml constraints.txt
	$(BIN)/$(PIP) $(INSTALL) -e '.[demo,otlp,pipeline,top]' --group dev
	@touch $@

# What a user gets from `pip install '.[demo]'`, but for half of the compiler's work: codecs and policies only, at
# -O1. Forebay takes a quarter more CPU by that, of which the demo leaves it plenty.
build/demo/.done: $(SOURCES) | build/demo/.pip
	FOREBAY_COMPILE=codecs,policies FOREBAY_OPT_LEVEL=1 build/demo/bin/$(PIP) $(INSTALL) '.[demo]'
	@touch $@

# The same without its dependencies: on PYTHONPATH it comes before the editable one. Built for an environment where
# nothing else is installed: a type that the compiler needs and does not find makes a pure-Python wheel.
build/compiled/.done: $(SOURCES) | $(VENV)/.pip
	@rm -rf build/compiled build/venv
	@$(PYTHON) -m venv --without-pip build/venv
	FOREBAY_REQUIRE_COMPILE=1 $(BIN)/$(PIP) --python build/venv/bin/python $(INSTALL) --no-deps --target build/compiled .
	@touch $@

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find codecs policies proxy tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .cache
