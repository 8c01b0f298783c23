# One image for web servers, workers and commands (compose.yaml, docs/operations.md).
ARG PYTHON=3.11-slim-trixie

FROM docker.io/library/python:${PYTHON} AS build
# Comma-separated optional dependencies from pyproject.toml: embeddings, otel, sentry, onnx, s3.
ARG PACKAGES=""
RUN python -m venv /app
ENV PATH=/app/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY requirements-production.txt ./
RUN pip install --require-hashes --requirement requirements-production.txt
COPY . .
RUN pip install ".${PACKAGES:+[$PACKAGES]}" && python -m compileall -q /app

FROM docker.io/library/python:${PYTHON}
# For `backup` and `restore`. Must not be older than the database server in compose.yaml.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-client-17 && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home --home-dir /data memory
COPY --from=build /app /app
# Contains archives, unless RETENTION__S3_BUCKET is set, and chat answers that are not yet in the database.
VOLUME /data
WORKDIR /data
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DATA_DIR=/data
USER memory
EXPOSE 8000
CMD ["gunicorn", "--config", "python:memoryproject.gunicorn_conf", "--bind", "0.0.0.0:8000", "memoryproject.asgi"]
