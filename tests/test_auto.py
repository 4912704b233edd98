"""Options that suit a log: the rules of docs/choose.md, and that what is given stays."""

from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest

from abaca.auto import Shape, suited, suited_encoder
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.errors import SpecError
from abaca.recommender import Recommender

SHORT, MIDDLE, LONG = (Shape(1000, 12_000, 1000 * length, 0.2) for length in (7, 40, 121))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """Histories of 98 training items on average."""
    folder: Path = tmp_path_factory.mktemp("long") / "sequences"
    with read_log(synthetic_log("copy-after-repeat", users=12, items=50, length=100, seed=1)) as log:
        return prepare(log, folder)


def test_the_encoder_depends_on_the_length_of_histories() -> None:
    assert [suited_encoder(shape) for shape in (SHORT, MIDDLE, LONG)] == ["sasrec", "sasrec", "hstu"]


def test_short_histories_get_more_dropout_and_larger_vectors() -> None:
    found = [suited("sasrec", shape, sampled=True) for shape in (SHORT, MIDDLE, LONG)]
    assert [options["dropout"] for options in found] == [0.6, 0.3, 0.2]
    assert [options["dim"] for options in found] == [128, 64, 64]


def test_targets_that_come_soon_are_for_short_histories_without_repeats() -> None:
    shapes = [replace(shape, repeats=repeats) for shape in (SHORT, MIDDLE, LONG) for repeats in (0.0, 0.04)]
    assert [suited("sasrec", shape, sampled=True)["ahead"] for shape in shapes] == [0.3, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_item_vectors_decay_where_histories_are_short_and_repeats_few() -> None:
    shapes = [replace(shape, repeats=repeats) for shape in (SHORT, MIDDLE, LONG) for repeats in (0.04, 0.2)]
    assert [suited("sasrec", shape, sampled=True)["weight_decay"] for shape in shapes] == [0.4, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_the_share_of_repeats_is_that_of_training_rows(tmp_path: Path) -> None:
    """Training rows are a a b a, c d a and d c y: two of ten are repeats."""
    rows = [(user, item) for user, items in enumerate(("aabaxx", "cdaxx", "dcyyy")) for item in items]
    log = pyarrow.table({"user": [u for u, _ in rows], "item": [i for _, i in rows], "time": list(range(len(rows)))})
    with read_log(log) as opened:
        assert Shape.of(prepare(opened, tmp_path / "s")).repeats == pytest.approx(2 / 10)


@pytest.mark.parametrize(("items", "share"), [(5_000, 1.0), (10_000, 0.2), (1_000_000, 0.05)])
def test_the_loss_of_a_large_catalogue_reads_a_part_of_it(items: int, share: float) -> None:
    shape = Shape(1000, items, 10_000, 0.2)
    assert suited("sasrec", shape, sampled=True)["share"] == share
    assert suited("sasrec", shape, sampled=False)["share"] == 1.0


def test_a_log_of_long_histories_is_trained_with_its_encoder(long: Sequences) -> None:
    made = Recommender(output="softmax", epochs=1, dim=8).fit(long)
    assert made.encoder == "hstu"
    assert made.encoder_options["dim"] == 8
    assert made.saved is not None
    assert made.saved.encoder == "hstu"


def test_an_option_of_the_other_encoder_keeps_that_encoder(long: Sequences) -> None:
    made = Recommender(output="softmax", epochs=1, dim=8, blocks=1, inner=8).fit(long)
    assert made.encoder == "sasrec"
    assert made.encoder_options["blocks"] == 1


def test_fixed_options_have_a_fixed_encoder(long: Sequences) -> None:
    assert Recommender(output="softmax", options="fixed", epochs=1, dim=8).fit(long).encoder == "sasrec"


def test_a_given_encoder_stays(long: Sequences) -> None:
    assert Recommender("sasrec", "softmax", epochs=1, dim=8).fit(long).encoder == "sasrec"
    with pytest.raises(SpecError, match="is not one of"):
        Recommender("best")
