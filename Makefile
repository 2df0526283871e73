# `make` lists the targets. Every target begins with `setup`, which is quick when there is nothing to do.
# Java is the one that set-up chose, whatever JAVA_HOME says. Extra options for pytest: make test ARGS="-k ranges".

VENV := .venv/bin
JAVA = JAVA_HOME="$$(cat .venv/java_home)"

.DEFAULT_GOAL := help
.PHONY: help setup test-servers demo test test-long refusals test-real test-slow test-browser test-clusters mutations random-histories lint types imports definitions docs dist image check bench dev lock protobuf clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv; finds Python 3.12+ and Java 17 or 21 by itself
	@bash scripts/setup
	@$(JAVA) bash scripts/class_archive
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "Next: $(VENV)/retention init (or make demo)")

demo: setup ## Plan the retention of the sample repository; deletes nothing
	@sh scripts/demo

test-servers: ## Install the object stores that some tests talk to; without one its tests are skipped
	@bash scripts/test_servers

# Two workers: each that meets Spark starts a JVM (1 GB), and more would only share the same cores. A file stays on one
# worker, so that what its tests share (a placed repository, a server) is made once; so do files that share a plan (the
# sets in tests/conftest.py). The folders with long tests come first in the alphabet: begun first, they leave no worker
# idle at the end.
PYTEST = $(JAVA) $(VENV)/python -m pytest
REAL := lakefs_server or clusters or browser

test: setup ## Run the tests (ARGS="…" goes to pytest; LONG=yes: also those of test-long). Without test-servers, some are skipped
	@rm -rf .refusals
	REFUSALS=.refusals $(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "not ($(if $(LONG),,long or )slow or $(REAL))" $(ARGS)

test-long: setup ## Run the tests that take more than a few seconds each, such as a plan and its sweep
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "long and not (slow or $(REAL))" $(ARGS)

refusals: setup ## Show which of the package's refusals the last `make test LONG=yes` did not provoke, and which say too little
	$(VENV)/python -m tests.refusals .refusals

test-real: setup ## Run the tests on a real lakeFS server, on Spark clusters and in Chromium, where these are there
	$(PYTEST) -n 2 --dist loadfile -m "($(REAL)) and not slow" $(ARGS)

test-slow: setup ## Run the tests that take minutes, with more random examples
	$(PYTEST) -n 2 --dist loadfile -m slow --timeout 1800 --hypothesis-profile thorough $(ARGS)

test-clusters: setup ## Run the whole graph on a standalone Spark cluster and on a Spark Connect server (about 10 minutes)
	$(PYTEST) -m clusters --timeout 1800 $(ARGS)

test-browser: setup ## Run the tests that look at pages in Chromium (Debian: chromium and chromium-driver)
	$(PYTEST) -m browser $(ARGS)

mutations: setup ## Break the package in many ways, one by one, and show which test notices (ARGS="part of a name")
	$(JAVA) $(VENV)/python -m tests.mutations.run $(ARGS)

random-histories: setup ## Run random histories on a real lakeFS server (ROUNDS=100 SEED=1; needs `lakefs` on PATH)
	$(JAVA) $(VENV)/python -m tests.random_histories $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))

lint: setup ## Check style and formatting
	$(VENV)/ruff check
	$(VENV)/ruff format --check

types: setup ## Check the types of the package, and the calls in the tests
	$(VENV)/mypy

imports: setup ## Check that imports point down
	$(VENV)/lint-imports

definitions: setup ## Check that Dagster can load the definitions
	$(JAVA) $(VENV)/dagster definitions validate

docs: setup ## Build the documentation site into .site; fails on a broken link
	$(VENV)/mkdocs build --quiet --strict

dist: setup ## Build the source archive and the wheel into dist/
	$(VENV)/python -m build --no-isolation

image: ## Build the container image of the code location (ARGS="…" goes to podman or docker)
	@bash scripts/image $(ARGS)

check: LONG = yes
check: lint types imports definitions docs dist test refusals test-real ## Everything that CI runs

bench: setup ## Run the benchmarks
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(JAVA) $(VENV)/python "$$benchmark" || exit 1; done

dev: setup ## Start Dagster's UI and daemon on http://127.0.0.1:3000
	@$(VENV)/retention demo --prepare
	$(JAVA) $(VENV)/dagster dev

lock: setup ## Rebuild requirements.lock from pyproject.toml (ARGS=--upgrade for newer versions)
	$(VENV)/uv pip compile --quiet --universal --python-version 3.12 --extra dev --extra docs --generate-hashes \
		--no-header --no-emit-index-url --no-emit-find-links --output-file requirements.lock $(ARGS) pyproject.toml

PROTO := retention_assets/lakefs/formats/lakefs
protobuf: setup ## Generate lakefs_pb2.py from lakefs.proto
	$(VENV)/uv run --quiet --no-project --with grpcio-tools==1.71.2 \
		python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTO).proto
	@for file in $(PROTO)_pb2.py $(PROTO)_pb2.pyi; do \
		{ echo '# Generated from lakefs.proto by `make protobuf`.'; cat $$file; } > $$file.new && mv $$file.new $$file; done

clean: ## Remove what make made; run history and ledgers (.dagster, warehouses) stay
	rm -rf .venv .servers .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .refusals spark-warehouse dist .site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
