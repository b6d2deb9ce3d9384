"""The one thing pyproject.toml cannot say yet: an extension that may fail to build without failing the install."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "recallatk.ranking._native",
            ["src/recallatk/ranking/_native.c"],
            extra_compile_args=["-O3", "-std=gnu11"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
