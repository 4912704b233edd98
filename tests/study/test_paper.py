"""The paper's numbers were copied right: its summary columns follow from its columns per data set."""

import pytest

from abaca.nn.outputs.spec import OutputSpec
from abaca.study.paper import MEANS, PER_SET, PaperResult, citation, dataset_names, paper_datasets, paper_results

ROWS = paper_results()
HALF_DIGIT = 0.00005 + 1e-9
"""The paper prints two digits of percent."""


def row_name(row: PaperResult) -> str:
    return f"{row.encoder} {row.output}"


def test_every_row_has_every_data_set() -> None:
    assert len(ROWS) == 19
    assert len(paper_datasets()) == 12
    assert len({row_name(row) for row in ROWS}) == 19
    for row in ROWS:
        assert set(row.values) == set(dataset_names())
        assert all(set(values) == set(PER_SET) for values in row.values.values())


def test_the_rows_are_spelled_as_abaca_spells_layers() -> None:
    for row in ROWS:
        assert str(OutputSpec.parse(row.output)) == row.output


@pytest.mark.parametrize("row", ROWS, ids=row_name)
@pytest.mark.parametrize("group", ["without", "with"])
@pytest.mark.parametrize("metric", PER_SET)
def test_the_means_of_a_group_follow_from_its_data_sets(row: PaperResult, group, metric: str) -> None:
    assert row.mean(metric, group) == pytest.approx(row.printed_means[group][metric], abs=HALF_DIGIT)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
@pytest.mark.parametrize("metric", MEANS)
def test_the_means_over_all_count_the_two_group_means_as_data_sets(row: PaperResult, metric: str) -> None:
    """Eight of fourteen parts, not seven of twelve: so the printed column follows, MRR's too."""
    without, with_, printed = (row.printed_means[group][metric] for group in ("without", "with", "all"))
    assert (without**8 * with_**6) ** (1 / 14) == pytest.approx(printed, abs=2 * HALF_DIGIT)


def test_the_mean_over_the_twelve_is_not_the_printed_one() -> None:
    softmax = ROWS[0]
    assert softmax.mean("ndcg@10") < softmax.printed_means["all"]["ndcg@10"] - 0.002


def test_hits_are_at_least_as_many_as_gains() -> None:
    """NDCG and MRR give a hit at most 1: two columns that were swapped would show."""
    for row in ROWS:
        assert all(values["ndcg@10"] < values["hr@10"] for values in row.values.values())
        assert all(means["mrr@10"] < means["ndcg@10"] < means["hr@10"] for means in row.printed_means.values())


def test_the_source_is_named() -> None:
    assert "WSDM 2024" in citation()
