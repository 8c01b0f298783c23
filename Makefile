# The main targets are `make run`, `make quick` and `make test`. Each of them installs missing packages first.
PYTHON ?= python3
PORT ?= 8000
# If there is no database, commands create the embedded database without asking.
export MEMORY_NEW_DATABASE = 1
# Tests start many processes. Without bytecode files, each process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# If a step fails, make deletes its target, so the next run repeats the step.
.DELETE_ON_ERROR:

# By default, tests run with all extras. `EXTRAS= make quick` runs the core's fast tests without extras.
ALL_EXTRAS = importers,lab,oauth,scale
quick shuffle test: export EXTRAS ?= $(ALL_EXTRAS)

.PHONY: run quick shuffle test core types checks docs package helm image clients typescript repository release-check frameworks looks pictures bench bench-all bench-answers bench-recall lean walk quickstart trust house size lock

run: .venv/installed
	.venv/bin/python manage.py run --port $(PORT)

# Run this before each commit. It skips slow tests, such as those with a browser, a server or another process.
quick: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" --ignore tests/browser \
		--durations 15 --durations-min 1

# Runs the tests of `make quick` in random order, to find tests that depend on other tests.
shuffle: SEED ?= $(shell date +%s)
shuffle: .venv/installed-dev
	.venv/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" --ignore tests/browser --shuffle $(SEED)

# Run this before each push. It runs the same checks and tests as CI.
test: .venv/installed-dev
	$(MAKE) --no-print-directory --jobs 2 types checks
	.venv/bin/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
	$(MAKE) --no-print-directory core TESTS='--numprocesses 2 -m "not slow" $(SAMPLE)'

# Runs the core's tests without extras. `make test` runs only SAMPLE, which covers each interface and each kind of memory.
SAMPLE = $(addprefix tests/moments_app/,context/test_cached_layers.py interfaces/test_api.py interfaces/test_prompts.py \
	interfaces/test_retractions.py jobs/test_process.py moments/test_build.py operator/test_prompt.py operator/test_rights.py \
	provenance/test_declared.py provenance/test_erase.py provenance/test_export.py provenance/test_retract.py \
	reports/test_housekeeping.py) tests/sessions_app/api/test_contract.py tests/sessions_app/transcript/test_append.py
core: export EXTRAS =
core: TESTS ?= tests/moments_app tests/sessions_app
core: .venv/installed-dev
	.venv/bin/python -m pytest --numprocesses 3 --dist loadfile $(TESTS)

# `make test` runs mypy in parallel with `checks`, which takes about as long and creates the template of the test databases.
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

# Builds the docs site in dist/site. Fails if a link or an anchor is broken.
docs: .venv/installed-dev
	rm -rf dist/pages && mkdir -p dist/pages
	cp -r README.md CHANGELOG.md CONTRIBUTING.md CODE_OF_CONDUCT.md SECURITY.md LICENSE docs examples dist/pages && rm -r dist/pages/docs/site
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml

# Builds the image with Docker. PACKAGES are the optional dependencies. BUILDER="buildah bud" uses Buildah instead.
image: BUILDER ?= docker build
image: PACKAGES ?= embedded,embeddings
image:
	$(BUILDER) --tag memory-platform --build-arg PACKAGES=$(PACKAGES) .

# Lints and renders the Helm chart, and checks the result with Kubernetes' schemas. Downloads the two tools (250 MB) once.
helm: .venv/installed-dev dist/helm
	PYTHONPATH=dist/helm .venv/bin/python -m pytest -n0 tests/test_helm.py

dist/helm:
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ \
		helm-python-sdk==0.2.2 kubernetes-validate==1.37.0 importlib-resources==6.5.2

# Builds the wheel and installs it into an empty environment, without the embedded database. Then runs `check` for the
# platform and for examples/host_project, a project that hosts the apps.
package: .venv/installed-dev
	rm -rf build dist/empty dist/*.whl
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	.venv/bin/python -m uv venv --quiet dist/empty
	.venv/bin/python -m uv pip install --quiet --python dist/empty/bin/python --constraint requirements-production.txt dist/*.whl
	cd dist && env -u DATA_DIR DATABASE_URL=postgres://nobody@localhost/nothing empty/bin/memory-platform check
	cd examples/host_project && env -u DATA_DIR SECRET_KEY=only-for-this-check DATABASE_URL=postgres://nobody@localhost/nothing \
		../../dist/empty/bin/python manage.py check

# Generates the blocking Python client from the one with `await`, and builds the client's own wheel.
clients: .venv/bin/ruff
	.venv/bin/python -m tests.support.blocking_client
	cp LICENSE clients/python
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist clients/python

# Generates the TypeScript client from the OpenAPI schema, compiles it, and tests it with a site. Needs node and npm.
typescript: .venv/installed-dev
	.venv/bin/python manage.py spectacular --format openapi-json --file clients/typescript/schema.json
	cd clients/typescript && npm ci --silent && npm run --silent schema && npm run --silent build
	mkdir -p dist
	cp LICENSE clients/typescript
	cd clients/typescript && npm pack --silent --pack-destination $(CURDIR)/dist
	TYPESCRIPT_CLIENT=clients/typescript .venv/bin/python -m pytest -n0 tests/clients/test_typescript.py

# Writes the repository's URL into the packages' metadata. npm rejects a release by the workflow of another repository.
repository:
	cd clients/typescript && npm pkg set repository.type=git repository.url="git+$(URL).git" repository.directory=clients/typescript
	grep -q '^.project.urls' pyproject.toml || printf '\n[project.urls]\nRepository = "%s"\n' "$(URL)" | tee -a pyproject.toml >> clients/python/pyproject.toml

# Builds and checks in dist/release what a release publishes: wheels, the npm package, and lists of their dependencies (SBOM).
# .github/workflows/release.yml runs this target with the TAG of the release, such as v1.0.0.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' memoryproject/__init__.py)
release-check: .venv/installed-dev
	@test "$${TAG:-v$(VERSION)}" = "v$(VERSION)" || { echo "TAG is not the version in memoryproject/__init__.py." >&2; exit 1; }
	rm -rf dist/release dist/*.tgz
	@test -z "$$GITHUB_REPOSITORY" || $(MAKE) --no-print-directory repository URL="https://github.com/$$GITHUB_REPOSITORY"
	$(MAKE) --no-print-directory package clients typescript
	mkdir dist/release && cp dist/*.whl dist/*.tgz dist/release
	.venv/bin/python -m uv venv --quiet --clear dist/tools
	.venv/bin/python -m uv pip install --quiet --python dist/tools/bin/python twine==7.0.0 cyclonedx-bom==7.5.0
	dist/tools/bin/twine check --strict dist/release/*.whl
	dist/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-file dist/tools/sbom.json dist/empty/bin/python
	sed 's/"name": "memory-platform",/& "version": "$(VERSION)",/' dist/tools/sbom.json > dist/release/memory-platform.cdx.json
	cd clients/typescript && npm sbom --omit=dev --sbom-format=cyclonedx > $(CURDIR)/dist/release/memory-platform-client-npm.cdx.json

# What Open WebUI needs to run filters. All of its dependencies would be gigabytes.
OF_FILTERS = aiohttp aiosqlite alembic beautifulsoup4 cryptography fastapi "httpx2<3" markdown orjson pillow pydantic \
	python-mimeparse python-socketio "sqlalchemy[asyncio]" typer uvicorn

# Runs the code of docs/frameworks.md, LangGraph's own tests and the plugin in Codex with the latest releases. Needs npm.
frameworks: .venv/installed-dev
	.venv/bin/python -m uv venv --quiet --clear dist/frameworks
	.venv/bin/python -m uv pip install --quiet --python dist/frameworks/bin/python \
		openai-agents "pydantic-ai-slim[openai]" langgraph langgraph-checkpoint-conformance langchain-core litellm llama-index-core \
		"httpx2<3" pytest pytest-asyncio pytest-mock
	.venv/bin/python -m uv venv --quiet --clear dist/open_webui
	.venv/bin/python -m uv pip install --quiet --python dist/open_webui/bin/python --no-deps open-webui
	.venv/bin/python -m uv pip install --quiet --python dist/open_webui/bin/python $(OF_FILTERS)
	.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary langgraph-checkpoint \
		--dest dist/frameworks/sources langgraph-checkpoint
	cd dist/frameworks/sources && tar -xzf langgraph_checkpoint-*.tar.gz
	npm install --silent --no-audit --no-fund --prefix dist/codex @openai/codex
	FRAMEWORKS_PYTHON=dist/frameworks/bin/python OPEN_WEBUI_PYTHON=dist/open_webui/bin/python \
		CODEX=dist/codex/node_modules/.bin/codex LANGGRAPH_SOURCES=dist/frameworks/sources .venv/bin/python -m pytest -n0 -k framework \
		tests/moments_app/interfaces/chat/test_first_steps.py tests/clients/test_frameworks.py

# Checks every page in four looks: desktop and phone, light and dark. `make test` checks each page in only one of them.
looks: .venv/installed-dev
	.venv/bin/python -m tests.support.chromium
	EVERY_LOOK=1 .venv/bin/python -m pytest -n0 -k policy tests/browser/test_every_page.py

# Retakes the screenshots in docs/admin.md on a new site with the demonstration.
pictures: .venv/installed-dev
	.venv/bin/python -m tests.support.pictures

# Updates the diagram of imports in docs/architecture.md.
house: .venv/installed-dev
	.venv/bin/python -m tests.support.house

# Counts lines of code, modules, migrations, words in the docs, and settings.
size:
	$(PYTHON) -m benchmarks.size

# Runs the main benchmarks in a few minutes, and compares them with the saved run. KEEP=1 saves this run instead.
bench: .venv/installed-dev
	.venv/bin/python -m benchmarks main --json .data/bench.json $(if $(KEEP),--keep)

# Runs all benchmarks, which takes almost an hour.
bench-all: .venv/installed-dev
	EVERY_TOPIC=1 .venv/bin/python -m pytest -n0 -k topics tests/test_benchmarks.py
	.venv/bin/python -m benchmarks

# CONVERSATIONS is a folder of conversations (docs/benchmarks.md). LIMIT is the maximum number of questions about each
# conversation.
bench-recall: .venv/installed-dev
	.venv/bin/python -m benchmarks.recall_quality "$${CONVERSATIONS:?must be a folder: make bench-recall CONVERSATIONS=…}" \
		$(if $(LIMIT),--limit $(LIMIT))

# One model answers questions from contexts alone, and another model judges the answers. docs/benchmarks.md describes
# the folders and READER_MODEL.
bench-answers: .venv/installed-dev
	.venv/bin/python -m benchmarks.answers "$${CONVERSATIONS:?must be a folder: make bench-answers CONVERSATIONS=…}" \
		--out "$${OUT:?must be a folder for the results: make bench-answers OUT=…}" \
		$(if $(LIMIT),--limit $(LIMIT)) $(if $(CONTEXTS_ONLY),--contexts-only)

# Measures CPU time and memory of an idle site's processes in eight minutes. KEEP=1 saves the results for comparisons.
lean: .venv/installed-dev
	.venv/bin/python -m benchmarks.lean $(if $(KEEP),--keep)

# Lists how many files and functions run for a message, a build, a context and a retraction.
walk: .venv/installed-dev
	.venv/bin/python -m benchmarks.walk

# Measures how long a new user of each client and framework needs until the first remembered answer. Takes about ten
# minutes, and needs node and npm.
quickstart: .venv/installed-dev
	.venv/bin/python -m benchmarks.quickstart

# Creates an installation, attacks it, and writes the figures into docs/trust.md. Before a release, run more attacks:
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

# Locks the dependencies of pyproject.toml in requirements*.txt, with hashes.
lock: .venv/installed-dev
	.venv/bin/python -m uv pip compile pyproject.toml --extra embedded --extra embeddings --universal --generate-hashes --no-header -o requirements.txt
	.venv/bin/python -m uv pip compile pyproject.toml --universal --generate-hashes --no-header \
		--constraint requirements.txt --no-annotate -o requirements-production.txt
	.venv/bin/python -m uv pip compile pyproject.toml --extra embedded --extra embeddings --extra otel --extra sentry --extra onnx --extra s3 --extra dev --universal --generate-hashes --no-header -o requirements-dev.txt

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed.")'
	@echo "Installing the packages in the folder .venv …"
	@$(PYTHON) -m venv .venv

# Installs a single tool, in its locked version.
.venv/bin/uv .venv/bin/ruff: .venv/bin/python
	@sed -n '/^$(@F)==/,/[^\\]$$/p' requirements-dev.txt > .venv/$(@F).txt
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/$(@F).txt
	@touch $@

# uv takes a sixth of pip's time, but ignores pip.conf. If uv can't reach its package index, pip installs the packages.
INSTALL = .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r $(1) \
	|| .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)

.venv/installed: .venv/bin/uv requirements.txt
	@$(call INSTALL,requirements.txt)
	@touch $@

.venv/installed-dev: .venv/bin/uv requirements-dev.txt
	@$(call INSTALL,requirements-dev.txt)
	@touch .venv/installed $@
