"""Builds the native row pass. It is optional: without a C compiler the install succeeds and torch does the work."""

import sys

from setuptools import Extension, setup  # type: ignore[import-untyped]
from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]

NATIVE = "src/abaca/nn/native"
SOURCES = (
    *("rowpass.c", "itemtiles.c", "ranking.c", "topk.c", "copies.c", "attention.c", "dropout.c", "gru.c", "mix.c"),
    *("reaching.c", "product.c", "portable.c", "avx2.c"),
)
HEADERS = ("rowpass.h", "topk.h", "primitives.h", "dropout.h", "copies.h", "mix.h")


class BuildLibrary(build_ext):  # type: ignore[misc]
    """A plain shared library: it is loaded by ctypes and has no module to initialise."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


setup(
    ext_modules=[
        Extension(
            "abaca.nn.native._rowpass",
            sources=[f"{NATIVE}/{source}" for source in SOURCES],
            depends=[f"{NATIVE}/{header}" for header in HEADERS],
            extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11", "-fvisibility=hidden"],
            libraries=[] if sys.platform == "win32" else ["m"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
)
