#!/usr/bin/env bash
# What only a CUDA card can show, in one command and under six minutes: README.md beside this file.
#   tests/gpu/run.sh [--device cuda:0|cpu] [--scale 1.0] [--keep FOLDER]
# PYTHON: the interpreter; otherwise the checkout's .venv where it works, else python3.
# WHEELS: a folder of wheels, unpacked for this run alone; nothing is installed anywhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z "${PYTHON:-}" ]]; then
    PYTHON=python3
    if .venv/bin/python -c 'import torch, grpc' 2>/dev/null; then PYTHON=.venv/bin/python; fi
fi

descriptors=protos/python/moorage_protocol/descriptors.binpb
if [[ ! -s $descriptors ]]; then
    echo "$descriptors is missing: build it with 'pip install -e .' and carry it along, as git ignores it" >&2
    exit 2
fi

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [[ -n "${WHEELS:-}" ]]; then
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
        --target "$site" "$WHEELS"/*.whl
fi
export PYTHONPATH="$site:$PWD/server:$PWD/clients/python:$PWD/protos/python:$PWD"
export PYTHONUNBUFFERED=1

"$PYTHON" - <<'PACKAGES'
import importlib
import importlib.util
import sys

needed = """numpy grpc google.protobuf google.rpc.status_pb2 grpc_status grpc_health grpc_reflection msgspec pydantic
pydantic_settings psutil pynvml starlette uvicorn typer rich moorage moorage_client moorage_protocol"""
missing = [] if importlib.util.find_spec("torch") else ["torch"]  # seconds to import, and not needed here
for name in needed.split():
    try:
        importlib.import_module(name)
    except Exception as error:
        missing.append(f"{name} ({type(error).__name__}: {error})")
if missing:
    sys.exit("cannot be imported: " + ", ".join(missing) + "\ntests/gpu/README.md says how to carry packages along")
PACKAGES

# The checks bound themselves; this is for what can't be bound, such as a driver that hangs.
timeout --signal=TERM --kill-after=10 350 "$PYTHON" -P -m tests.gpu "$@"
