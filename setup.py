"""Builds the native library of `abaca.nn.ops`. It is optional: without a C compiler plain torch does the work."""

import sys

from setuptools import Extension, setup  # type: ignore[import-untyped]
from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]

NATIVE = "src/abaca/nn/ops/native"
SOURCES = [
    f"{NATIVE}/{name}.c"
    for name in ("rowpass", "itemtiles", "ranking", "topk", "attention", "dropout", "gru", "portable", "avx2")
]
HEADERS = [f"{NATIVE}/{name}.h" for name in ("rowpass", "topk", "primitives", "dropout")]


class BuildLibrary(build_ext):  # type: ignore[misc]
    """A plain shared library: it is loaded by ctypes and has no module to initialise."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


setup(
    ext_modules=[
        Extension(
            "abaca.nn.ops._native",
            sources=SOURCES,
            depends=HEADERS,
            extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11", "-fvisibility=hidden"],
            libraries=[] if sys.platform == "win32" else ["m"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
)
