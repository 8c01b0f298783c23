# One image for everything in one container, and for web servers, workers and commands (docs/operations.md).
ARG PYTHON=3.11-slim-trixie

FROM docker.io/library/python:${PYTHON} AS build
# Comma-separated optional dependencies from pyproject.toml: embedded, embeddings, otel, sentry, onnx, s3.
ARG PACKAGES="embedded,embeddings"
RUN python -m venv /app
ENV PATH=/app/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY requirements-production.txt ./
RUN pip install --require-hashes --requirement requirements-production.txt
COPY . .
# The optional dependencies have the locked versions too. pip can't check their hashes, because the folder has none.
RUN sed -e '/^ *--hash/d' -e 's/ *\\$//' requirements-dev.txt > versions.txt \
    && pip install --constraint versions.txt ".${PACKAGES:+[$PACKAGES]}" && python -m compileall -q /app

FROM docker.io/library/python:${PYTHON}
# The client is for `backup` and `restore`, and must not be older than the database server in compose.yaml. tini is process
# 1, because the kernel treats this process differently: signals don't end it by default, and it must reap orphans.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-client-17 tini && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home --home-dir /data memory
COPY --from=build /app /app
# Contains the embedded database, archives, the generated secret key, and chat answers that are not yet in the database.
VOLUME /data
WORKDIR /data
# Temporary files, such as those of exports and restores, can be larger than the memory.
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DATA_DIR=/data TMPDIR=/data
# A number, so Kubernetes can check that it isn't root.
USER 10001
EXPOSE 8000
ENTRYPOINT ["tini", "--"]
# Everything in one container. Without DATABASE_URL, this needs the optional dependency `embedded`.
CMD ["memory-platform", "run", "--host", "0.0.0.0", "--no-demo"]
