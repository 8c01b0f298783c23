# `make run`, `make quick` and `make test` are all one needs; each sets up what is missing.
PYTHON ?= python3
PORT ?= 8000
DATA_DIR ?= .data
export DATA_DIR
# The commands here make a database where there is none.
export MEMORY_NEW_DATABASE = 1
# Tests start many processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests install all extras, unless told otherwise: `EXTRAS= make quick` tests the core alone, but for what is slow.
ALL_EXTRAS = importers,lab,oauth,scale
quick shuffle test: export EXTRAS ?= $(ALL_EXTRAS)

.PHONY: run quick shuffle test core types checks docs package image clients typescript frameworks looks pictures bench bench-all bench-answers bench-recall lean trust house size lock

run: .venv/installed
	.venv/bin/python manage.py run --port $(PORT)

# While one works: a test of each behavior, without browsers, servers and processes (docs/contributing.md).
quick: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" --ignore tests/browser \
		--durations 15 --durations-min 1

# The same in another order: a test that rests on one before it fails.
shuffle: SEED ?= $(shell date +%s)
shuffle: .venv/installed-dev
	.venv/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" --ignore tests/browser --shuffle $(SEED)

# Before one pushes: everything, as continuous integration runs it. What reads the code alone goes first, on two cores.
test: .venv/installed-dev
	$(MAKE) --no-print-directory --jobs 2 types checks
	.venv/bin/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
	$(MAKE) --no-print-directory core TESTS='--numprocesses 2 -m "not slow" $(SAMPLE)'

# The core's tests without any extra. `make test` runs a sample of them, with a test of each face and of each kind of memory.
SAMPLE = $(addprefix tests/moments_app/,context/test_kept_layers.py interfaces/test_api.py interfaces/test_prompts.py \
	interfaces/test_retractions.py jobs/test_process.py moments/test_build.py operator/test_prompt.py operator/test_rights.py \
	provenance/test_declared.py provenance/test_erase.py provenance/test_export.py provenance/test_retract.py \
	reports/test_housekeeping.py) tests/sessions_app/api/test_contract.py tests/sessions_app/transcript/test_append.py
core: export EXTRAS =
core: TESTS ?= tests/moments_app tests/sessions_app
core: .venv/installed-dev
	.venv/bin/python -m pytest --numprocesses 3 --dist loadfile $(TESTS)

# Takes a core as long as `checks` does, whose tests make what all tests need: the database that theirs are copied from.
types: .venv/installed-dev
	.venv/bin/mypy .

checks: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	$(MAKE) --no-print-directory docs
	SECRET_KEY=only-for-this-check-$$(date +%s)-0123456789abcdefghijklmnopqrstuvwxyz HTTPS=true \
		.venv/bin/python manage.py check --deploy --fail-level WARNING
	.venv/bin/python -m tests.support.chromium
	.venv/bin/python -m pytest --quiet --durations 0 --durations-min 9 tests/support/test_fresh_database.py

# Builds the pages as a site, in dist/site. A link or an anchor that leads nowhere fails it.
docs: .venv/installed-dev
	rm -rf dist/pages && mkdir -p dist/pages
	cp -r README.md CHANGELOG.md CONTRIBUTING.md CODE_OF_CONDUCT.md SECURITY.md LICENSE docs examples dist/pages && rm -r dist/pages/docs/site
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml

# Builds the image of compose.yaml; needs docker, or BUILDER="buildah bud".
image: BUILDER ?= docker build
image:
	$(BUILDER) --tag memory-platform --build-arg PACKAGES=$(PACKAGES) .

# Builds the wheel, installs it into an empty environment without the embedded database, and starts it there, and
# the project of somebody else's that has the apps.
package: .venv/installed-dev
	rm -rf build dist
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	.venv/bin/python -m uv venv --quiet dist/empty
	.venv/bin/python -m uv pip install --quiet --python dist/empty/bin/python --constraint requirements-production.txt dist/*.whl
	cd dist && env -u DATA_DIR DATABASE_URL=postgres://nobody@localhost/nothing empty/bin/memory-platform check
	cd examples/host_project && env -u DATA_DIR SECRET_KEY=only-for-this-check DATABASE_URL=postgres://nobody@localhost/nothing \
		../../dist/empty/bin/python manage.py check

# Makes the blocking Python client of the one with `await`, and the wheel that has the client alone.
clients: .venv/bin/ruff
	.venv/bin/python -m tests.support.blocking_client
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist clients/python

# Makes the TypeScript client of the API's description, compiles it strictly, and uses it against a site; needs node and npm.
typescript: .venv/installed-dev
	.venv/bin/python manage.py spectacular --format openapi-json --file clients/typescript/schema.json
	cd clients/typescript && npm ci --silent && npm run --silent schema && npm run --silent build
	mkdir -p dist
	cd clients/typescript && npm pack --silent --pack-destination $(CURDIR)/dist
	TYPESCRIPT_CLIENT=clients/typescript .venv/bin/python -m pytest -n0 tests/clients/test_typescript.py

# Runs the code of docs/frameworks.md with the frameworks as they are today.
frameworks: .venv/installed-dev
	.venv/bin/python -m uv venv --quiet --clear dist/frameworks
	.venv/bin/python -m uv pip install --quiet --python dist/frameworks/bin/python \
		openai-agents "pydantic-ai-slim[openai]" langgraph langchain-core llama-index-core "httpx2<3"
	FRAMEWORKS_PYTHON=dist/frameworks/bin/python .venv/bin/python -m pytest -n0 -k framework \
		tests/moments_app/interfaces/chat/test_first_steps.py tests/clients/test_frameworks.py

# Judges every page in light and dark, on a desktop and on a phone; `make test` takes one of the four by turns.
looks: .venv/installed-dev
	.venv/bin/python -m tests.support.chromium
	EVERY_LOOK=1 .venv/bin/python -m pytest -n0 -k policy tests/browser/test_every_page.py

# Retakes the pictures of docs/admin.md from a new site with the demonstration.
pictures: .venv/installed-dev
	.venv/bin/python -m tests.support.pictures

# Draws the rooms and what imports what into docs/architecture.md.
house: .venv/installed-dev
	.venv/bin/python -m tests.support.house

# Prints lines, modules, migrations, words of docs and settings.
size:
	$(PYTHON) -m benchmarks.size

# The main table, in some minutes, beside the run that was kept; KEEP=1 keeps this one in its place.
bench: .venv/installed-dev
	.venv/bin/python -m benchmarks main --json $(DATA_DIR)/bench.json $(if $(KEEP),--keep)

# Everything that is measured, which takes most of an hour.
bench-all: .venv/installed-dev
	EVERY_TOPIC=1 .venv/bin/python -m pytest -n0 -k topics tests/test_benchmarks.py
	.venv/bin/python -m benchmarks

# CONVERSATIONS is a folder of them, LIMIT the most questions of each; docs/benchmarks.md describes the files.
bench-recall: .venv/installed-dev
	.venv/bin/python -m benchmarks.recall_quality "$${CONVERSATIONS:?names a folder: make bench-recall CONVERSATIONS=…}" \
		$(if $(LIMIT),--limit $(LIMIT))

# A model answers from contexts alone, and another judges; docs/benchmarks.md describes the folders and READER_MODEL.
bench-answers: .venv/installed-dev
	.venv/bin/python -m benchmarks.answers "$${CONVERSATIONS:?names a folder: make bench-answers CONVERSATIONS=…}" \
		--out "$${OUT:?names a folder for the results: make bench-answers OUT=…}" \
		$(if $(LIMIT),--limit $(LIMIT)) $(if $(CONTEXTS_ONLY),--contexts-only)

# CPU and memory of each process of an idle site, in eight minutes; KEEP=1 compares later runs with this one.
lean: .venv/installed-dev
	.venv/bin/python -m benchmarks.lean $(if $(KEEP),--keep)

# Attacks an installation of its own and writes the figures into docs/trust.md. For a release:
# make trust MINUTES=10 KILLS=200 FUZZ=50000 EXAMPLES=200 OUTAGE=300
trust: export MINUTES ?= 1
trust: export KILLS ?= 3
trust: export FUZZ ?= 2000
trust: export EXAMPLES ?= 10
trust: export OUTAGE ?= 30
trust: .venv/installed-dev
	EVERY_KILL=1 EXTRAS=$(ALL_EXTRAS) .venv/bin/python -m pytest -n0 -s -k killed tests/memoryproject/test_killed_commands.py \
		tests/sessions_app/retention tests/memory_extras/scale/test_s3.py tests/moments_app/jobs/test_worker.py
	.venv/bin/python -m drill.trust

# Writes the hashed, locked lists from the short ones in pyproject.toml.
lock: .venv/installed-dev
	.venv/bin/python -m uv pip compile pyproject.toml --extra embedded --extra embeddings --universal --generate-hashes --no-header -o requirements.txt
	.venv/bin/python -m uv pip compile pyproject.toml --universal --generate-hashes --no-header \
		--constraint requirements.txt --no-annotate -o requirements-production.txt
	.venv/bin/python -m uv pip compile pyproject.toml --extra embedded --extra embeddings --extra otel --extra sentry --extra onnx --extra s3 --extra dev --universal --generate-hashes --no-header -o requirements-dev.txt

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed.")'
	$(PYTHON) -m venv .venv

# One tool alone. uv takes a sixth of pip's time, but reads no pip.conf. If that names another index, pip gets the packages.
.venv/bin/uv .venv/bin/ruff: .venv/bin/python
	sed -n '/^$(@F)==/,/[^\\]$$/p' requirements-dev.txt > .venv/$(@F).txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/$(@F).txt
	touch $@

INSTALL = .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r $(1) \
	|| .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)

.venv/installed: .venv/bin/uv requirements.txt
	$(call INSTALL,requirements.txt)
	touch $@

.venv/installed-dev: .venv/bin/uv requirements-dev.txt
	$(call INSTALL,requirements-dev.txt)
	touch .venv/installed $@
