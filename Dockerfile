# One image for all processes: a container is the web server, the worker, or a command (compose.yaml, docs/operations.md).
ARG PYTHON=3.11-slim-trixie

FROM docker.io/library/python:${PYTHON} AS build
# Optional packages of pyproject.toml, separated by commas: embeddings, otel, sentry, onnx, s3.
ARG PACKAGES=""
RUN python -m venv /app
ENV PATH=/app/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY requirements-production.txt ./
RUN pip install --require-hashes --requirement requirements-production.txt
COPY . .
RUN pip install ".${PACKAGES:+[$PACKAGES]}" && python -m compileall -q /app

FROM docker.io/library/python:${PYTHON}
# For backup and restore: not older than the database of compose.yaml.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-client-17 && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home --home-dir /data memory
COPY --from=build /app /app
# Archives and rounds that wait to be stored: a volume, if no storage elsewhere is set (RETENTION__S3_BUCKET).
VOLUME /data
WORKDIR /data
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DATA_DIR=/data
USER memory
EXPOSE 8000
CMD ["gunicorn", "--config", "python:memoryproject.gunicorn_conf", "--bind", "0.0.0.0:8000", "memoryproject.asgi"]
