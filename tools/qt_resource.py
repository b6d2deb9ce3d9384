"""Read a compiled Qt resource file (.rcc), versions 1 to 3, as far as it is not compressed with Zstandard.

The header names three tables: a tree of fixed-size nodes, the names (UTF-16), and the data. A node is a folder (number
and place of its children) or a file (place of its data). All numbers are big-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_COMPRESSED, _FOLDER, _ZSTANDARD = 1, 2, 4


def read_resources(data: bytes) -> dict[str, bytes]:
    """The files in a `.rcc` by their path ("/" between the parts, none in front).

    Raises:
        ValueError: not a resource file, or one that this reader does not know.
    """
    if data[:4] != b"qres":
        raise ValueError("not a Qt resource file: it does not begin with 'qres'")
    version, tree, content, names = struct.unpack_from(">4I", data, 4)
    if version not in (1, 2, 3):
        raise ValueError(f"a Qt resource file of version {version}; 1 to 3 are known")
    node_size = 14 if version == 1 else 22  # from version 2 on a node ends with the time of its last change

    def name_at(offset: int) -> str:
        (length,) = struct.unpack_from(">H", data, names + offset)
        start = names + offset + 6  # behind the length comes a hash
        return data[start : start + 2 * length].decode("utf-16-be")

    def content_at(offset: int, flags: int) -> bytes:
        (length,) = struct.unpack_from(">I", data, content + offset)
        start = content + offset + 4
        raw = data[start : start + length]
        if flags & _ZSTANDARD:
            raise ValueError("a resource is compressed with Zstandard, which this reader leaves out")
        return zlib.decompress(raw[4:]) if flags & _COMPRESSED else raw  # in front stands the size once unpacked

    def walk(node: int, folder: str) -> Iterator[tuple[str, bytes]]:
        at = tree + node * node_size
        name_offset, flags = struct.unpack_from(">IH", data, at)
        path = folder + name_at(name_offset) if node else ""  # the root has no name
        if flags & _FOLDER:
            count, first = struct.unpack_from(">II", data, at + 6)
            for child in range(first, first + count):
                yield from walk(child, f"{path}/" if path else "")
        else:
            _territory, _language, offset = struct.unpack_from(">HHI", data, at + 6)
            yield path, content_at(offset, flags)

    return dict(walk(0, ""))
