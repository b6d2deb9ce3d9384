"""The one thing pyproject.toml cannot say yet: an extension that may fail to build without failing the install."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "recallatk.ranking._native",
            [f"src/recallatk/ranking/{name}.c" for name in ("_native", "_kernel", "_pack", "_count", "_find")],
            depends=["src/recallatk/ranking/_native.h"],
            extra_compile_args=["-O3", "-std=gnu11", "-fvisibility=hidden"],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "recallatk.ranking._levels",
            ["src/recallatk/ranking/_levels.c"],
            extra_compile_args=["-O3", "-std=gnu11"],
            py_limited_api=True,
            optional=True,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
