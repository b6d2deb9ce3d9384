"""No test reads or writes the user's own cache."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache_of_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALLATK_CACHE", str(tmp_path_factory.mktemp("cache")))
