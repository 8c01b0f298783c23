"""Serves embeddings: `python -m memoryproject.embeddings`."""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import argparse
from pathlib import Path

from memoryproject.embeddings.app import serve
from memoryproject.process_tree import die_with_parent, set_process_name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="port; 0: any free port")
    parser.add_argument("--model-folder", type=Path)
    parser.add_argument("--data-dir", type=Path, help="file to write the address to")
    arguments = parser.parse_args()
    die_with_parent()
    set_process_name("embeddings")
    serve(arguments.host, arguments.port, arguments.model_folder, arguments.data_dir)


if __name__ == "__main__":
    main()
