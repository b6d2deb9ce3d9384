"""`recallatk cache`: the embeddings that are kept from run to run."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from pathlib import Path
from typing import Literal

from recallatk.wording import counted


def cache(action: Literal["info", "clear", "path"] = "info", /, *, cache_dir: Path | None = None) -> None:
    """The cache of embeddings: what it holds, emptied, or where it is.

    Args:
        action: info, clear or path.
        cache_dir: the folder of the cache; by default RECALLATK_CACHE, or the user's cache folder.
    """
    from recallatk.cache import cache_folder, cache_info, clear_cache

    if action == "path":
        print(cache_folder(cache_dir))
        return
    held = cache_info(cache_dir) if action == "info" else clear_cache(cache_dir)
    if action == "info":
        print(f"folder: {held.folder}")
        print(f"embeddings: {held.rows:,}")
        print(f"encoders, preprocessings and decode policies: {held.settings:,}")
        print(f"folders of rows and rankings from clusters: {held.folders:,}")
        print(f"size: {held.size / 1e6:,.1f} MB")
    else:
        folders = f" and {counted(held.folders, 'folder')} of rows and rankings from clusters" if held.folders else ""
        print(f"removed {counted(held.rows, 'embedding')}{folders}, {held.size / 1e6:,.1f} MB, from {held.folder}")
