"""Names and versions to what serves them."""

from pathlib import PurePath

import pytest

from moorage.domain.errors import ModelNotFound, ModelNotReady
from moorage.domain.model import ModelKey, ModelSpec
from moorage.engine.catalog import Catalog, Serving


def spec(version: int) -> ModelSpec:
    return ModelSpec("m", version, "python", (), (), PurePath("m"))


def catalog(*versions: int) -> Catalog:
    found = Catalog()
    for version in versions:
        found.put(Serving(found.new_key(spec(version)), spec(version)))
    return found


def test_the_latest_version_is_served_where_none_is_asked_for() -> None:
    assert catalog(1, 10, 9).resolve("m", "").key.version == 10
    assert catalog(1, 10, 9).resolve("m", "9").key.version == 9


def test_unknown_names_and_versions_are_not_found() -> None:
    with pytest.raises(ModelNotFound):
        catalog(1).resolve("other", "")
    with pytest.raises(ModelNotFound, match="version 2"):
        catalog(1).resolve("m", "2")


def test_a_broken_folder_says_why_until_it_is_mended() -> None:
    found = Catalog()
    found.broken["m"] = "no model.toml"
    with pytest.raises(ModelNotReady, match=r"no model\.toml"):
        found.resolve("m", "")
    found.put(Serving(found.new_key(spec(1)), spec(1)))
    assert found.resolve("m", "").key == ModelKey("m", 1, 0)
    assert not found.broken


def test_keys_are_never_used_twice() -> None:
    found = catalog(1)
    assert found.new_key(spec(1)) == ModelKey("m", 1, 1)
    assert found.new_key(spec(1)) == ModelKey("m", 1, 2)


def test_removing_what_was_replaced_meanwhile_changes_nothing() -> None:
    found = catalog(1)
    old = found.resolve("m", "")
    new = Serving(found.new_key(spec(1)), spec(1))
    found.put(new)
    found.remove(old)
    assert found.resolve("m", "") is new
    found.remove(new)
    assert found.versions_of("m") == []
