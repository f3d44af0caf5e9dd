"""A worker with two stepped models, for all tests of a module."""

from collections.abc import Iterator

import pytest

from moorage.domain.model import ModelKey
from tests.support.stepped_models import CUSTOM, RUNNING, code_of
from tests.support.stepped_worker import SteppedWorker


@pytest.fixture(scope="module")
def worker() -> Iterator[SteppedWorker]:
    with SteppedWorker() as started:
        yield started


@pytest.fixture(scope="module")
def running(worker: SteppedWorker, tmp_path_factory: pytest.TempPathFactory) -> ModelKey:
    return worker.load_python(tmp_path_factory.mktemp("running"), "running", code_of(RUNNING))


@pytest.fixture(scope="module")
def custom(worker: SteppedWorker, tmp_path_factory: pytest.TempPathFactory) -> ModelKey:
    return worker.load_python(tmp_path_factory.mktemp("custom"), "custom", code_of(CUSTOM))
