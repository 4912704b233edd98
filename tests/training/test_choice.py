"""What a fit trains: the options that were given, and those that follow from them."""

import pytest

from abaca.training.choice import as_given


@pytest.mark.parametrize(("targets", "overlap", "window", "longest"), [(9, 5, 3, 14), (2, 1, 30, 30)])
def test_the_encoder_of_a_transformer_holds_the_longest_window(
    targets: int, overlap: int, window: int, longest: int
) -> None:
    given = {"targets": targets, "overlap": overlap, "window": window}
    choice, _, _ = as_given("sasrec", "softmax", given, auto=True)
    assert choice.run.encoder_options["window"] == longest
