"""Indexes of an item table, by faiss: which items have the highest product with a query."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abaca.durable import whole_file
from abaca.errors import ModelError
from abaca.training.checkpoint import IndexRecord

KINDS = ("ivf", "hnsw", "flat")
ITERATIONS = 6
"""Of the k-means that makes the cells of `ivf`."""

POINTS = 32
"""Items per cell that k-means samples."""

LINKS, CONSTRUCTION = 32, 80
"""hnsw: links of an item, and how widely they are looked for."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Index:
    """Finds the items with the highest products: surely (`flat`), or most of them, much faster (`ivf`, `hnsw`).

    `effort` is how many cells (ivf) or how many candidates (hnsw) a search visits.
    """

    def __init__(self, native: Any, kind: str, effort: int) -> None:
        self.native, self.kind, self.effort = native, kind, effort

    @property
    def exact(self) -> bool:
        """Whether nothing is ever missed."""
        return self.kind == "flat"

    @property
    def most(self) -> int:
        """The highest effort that makes a difference."""
        return 1 if self.exact else int(self.native.nlist if self.kind == "ivf" else self.native.ntotal)

    def find(self, queries: Floats, count: int, usual: int | None = None) -> Ints:
        """The best items (N, count) for queries (N, D), best first; −1 where fewer were found.

        The effort is enough for `usual` items a query; for more items more cells are searched.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if self.kind == "ivf":
            return self._find_in_cells(queries, count, math.ceil(self.effort * max(1, count / (usual or count))))
        parameters = None
        if self.kind == "hnsw":
            queries = np.pad(queries, ((0, 0), (0, 1)))
            parameters = load_faiss().SearchParametersHNSW(efSearch=max(self.effort, count))
        found: Ints = self.native.search(queries, count, params=parameters)[1]
        return found

    def _find_in_cells(self, queries: Floats, count: int, cells: int) -> Ints:
        """Search this number of cells, and more of them for queries that found too few items."""
        faiss = load_faiss()
        found = np.full((len(queries), count), -1, dtype=np.int64)
        short = np.arange(len(queries))
        while len(short):
            parameters = faiss.SearchParametersIVF(nprobe=min(cells, self.most))
            found[short] = self.native.search(queries[short], count, params=parameters)[1]
            short = short[found[short, -1] < 0] if cells < self.most else short[:0]
            cells *= 2
        return found

    def write(self, path: Path) -> None:
        """In faiss's own format: numbers, no code. A whole file or nothing."""
        faiss = load_faiss()
        with whole_file(path, ModelError) as part, part.open("wb") as file:
            faiss.write_index(self.native, faiss.PyCallbackIOWriter(file.write))  # its own writer may lose the end

    @classmethod
    def read(cls, record: IndexRecord, items: int, dim: int) -> "Index":
        """The index of a model directory, whose checksum was verified, if it is one of a table of this size."""
        try:
            native = _read(record.path)
            check_index(native, record.kind, items, dim)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise ModelError(f"{record.path} cannot be used ({error}); make it again with `abaca index`") from error
        return cls(native, record.kind, record.effort)


def _read(path: Path) -> Any:
    """Read an index; no list in it may be larger than the file, whatever size it states."""
    faiss = load_faiss()
    limit = getattr(faiss, "set_deserialization_vector_byte_limit", None)  # faiss 1.14 and later
    if limit is not None:
        before = faiss.get_deserialization_vector_byte_limit()
        limit(path.stat().st_size + (1 << 20))
    try:
        return faiss.read_index(str(path))
    finally:
        if limit is not None:
            limit(before)


def check_index(native: Any, kind: str, items: int, dim: int) -> None:
    """Refuse an index of another kind, of another table, or one that could name what is no item."""
    faiss = load_faiss()
    types = {"flat": "IndexFlatIP", "ivf": "IndexIVFScalarQuantizer", "hnsw": "IndexHNSWFlat"}
    named = type(native).__name__
    if named not in (types[kind], "IndexFlat" if kind == "flat" else ""):
        raise ValueError(f"it is {named} where {kind} is {types[kind]}")
    wide = dim + (kind == "hnsw")
    if (native.ntotal, native.d) != (items, wide):
        raise ValueError(f"it has {native.ntotal} vectors of {native.d} numbers, the model {items} of {wide}")
    metric = faiss.METRIC_L2 if kind == "hnsw" else faiss.METRIC_INNER_PRODUCT
    if native.metric_type != metric:
        raise ValueError("it compares vectors in another way")
    if kind == "ivf":
        _check_cells(faiss, native, items, dim)
    if kind == "hnsw":
        _check_links(faiss, native.hnsw, items)


def _check_cells(faiss: Any, native: Any, items: int, dim: int) -> None:
    """Every item must be in one cell, and every cell have a centre."""
    lists, found = native.invlists, []
    if native.quantizer.d != dim or native.quantizer.ntotal != native.nlist or lists.nlist != native.nlist:
        raise ValueError("its cells do not fit together")
    for cell in range(native.nlist):
        if size := lists.list_size(cell):
            found.append(faiss.rev_swig_ptr(lists.get_ids(cell), size).copy())
    numbers = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
    if not np.array_equal(numbers, np.arange(items)):
        raise ValueError("the items of its cells are not those of the catalogue")


def _check_links(faiss: Any, graph: Any, items: int) -> None:
    """Every link must lead to an item, and every item have its place among the links."""
    links, offsets = faiss.vector_to_array(graph.neighbors), faiss.vector_to_array(graph.offsets).astype(np.int64)
    levels, wide = faiss.vector_to_array(graph.levels), faiss.vector_to_array(graph.cum_nneighbor_per_level)
    if len(levels) != items or len(offsets) != items + 1 or not -1 <= graph.entry_point < items:
        raise ValueError("its graph is not one of the catalogue's items")
    if items and not (levels.min() >= 1 and levels.max() < len(wide) and graph.max_level < levels.max()):
        raise ValueError("its graph has other levels than its items")
    if not np.array_equal(np.diff(offsets), wide[levels]) or offsets[0] != 0 or offsets[-1] != len(links):
        raise ValueError("its links do not fit together")
    if len(links) and not (links.min() >= -1 and links.max() < items):
        raise ValueError("a link of its graph leads to no item")


def build(table: Floats, kind: str, seed: int = 0) -> Index:
    """Index an item table (V, D); the effort is the least there is."""
    table = np.ascontiguousarray(table, dtype=np.float32)
    make = {"flat": _flat, "ivf": _ivf, "hnsw": _hnsw}[kind]
    return Index(make(table, seed), kind, 1)


def _flat(table: Floats, seed: int) -> Any:
    native = load_faiss().IndexFlatIP(table.shape[1])
    native.add(table)
    return native


def _ivf(table: Floats, seed: int) -> Any:
    """Cells by distance, as k-means makes them; cells are looked up by product, as items are, in half precision."""
    faiss = load_faiss()
    items, dim = table.shape
    cells = cell_count(items)
    means = faiss.Kmeans(
        dim, cells, niter=ITERATIONS, seed=seed, min_points_per_centroid=1, max_points_per_centroid=POINTS
    )
    means.train(table)
    quantizer = faiss.IndexFlatIP(dim)
    quantizer.add(means.centroids)
    half = faiss.ScalarQuantizer.QT_fp16
    native = faiss.IndexIVFScalarQuantizer(quantizer, dim, cells, half, faiss.METRIC_INNER_PRODUCT, False)
    native.is_trained = True
    nearest = np.ascontiguousarray(means.index.search(table, 1)[1][:, 0])
    numbers = np.arange(items, dtype=np.int64)  # named, since a pointer does not keep it alive
    native.add_core(items, faiss.swig_ptr(table), faiss.swig_ptr(numbers), faiss.swig_ptr(nearest))
    native.own_fields = True
    quantizer.this.disown()
    return native


def cell_count(items: int) -> int:
    """About 8 √V cells, a power of two, with 8 items each at least."""
    return int(max(1, min(1 << round(np.log2(8 * items**0.5)), items // 8)))


def _hnsw(table: Floats, seed: int) -> Any:
    """One more dimension makes all items equally long, so that the nearest item has the highest product."""
    faiss = load_faiss()
    squares = np.square(table, dtype=np.float64).sum(axis=1)
    rest = np.sqrt(squares.max() - squares).astype(np.float32)
    native = faiss.IndexHNSWFlat(table.shape[1] + 1, LINKS, faiss.METRIC_L2)
    native.hnsw.efConstruction = CONSTRUCTION
    native.add(np.concatenate([table, rest[:, None]], axis=1))
    return native


def load_faiss() -> Any:
    """The library, which only searching with an index needs."""
    try:
        import faiss
    except ImportError as error:
        raise ModelError(
            "a search index needs faiss: pip install 'abaca[index]'; or search without it: "
            "`abaca recommend --exact`, abaca.load(folder, exact=True)"
        ) from error
    return faiss
