"""How output layers are spelled: what is accepted comes back in one spelling, the rest is refused with a hint."""

import pytest

from abaca.errors import SpecError
from abaca.nn.outputs.spec import EXAMPLES, OutputSpec

from .cases import SPECS

PARTITIONS = ("", "+C", "+CP", "+R:5", "+R:1,2,30", "+CR:5", "+CR:1,20", "+CPR:100", "+CPR:20,100,500")
ENDINGS = ("", "+Mi", "+nodup", "+Mi+nodup")
CANONICAL = (
    *(
        f"{base}{partition}{end}"
        for base in ("softmax", "mos:3", "mos:12")
        for partition in PARTITIONS
        for end in ENDINGS
    ),
    *(f"{base}{end}" for base in ("mos-mix:3", "repeatnet") for end in ENDINGS),
)


@pytest.mark.parametrize("spec", sorted({*CANONICAL, *SPECS, *EXAMPLES}))
def test_round_trip(spec: str) -> None:
    assert str(OutputSpec.parse(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("softmax+Mi+CPR:100", "softmax+CPR:100+Mi"),
        ("softmax+nodup+Mi+CP", "softmax+CP+Mi+nodup"),
        ("repeatnet+nodup+Mi", "repeatnet+Mi+nodup"),
        (" softmax+C\n", "softmax+C"),
        ("mos:03+R:05,010", "mos:3+R:5,10"),
    ],
)
def test_other_spellings_become_canonical(spec: str, canonical: str) -> None:
    assert str(OutputSpec.parse(spec)) == canonical
    assert OutputSpec.parse(spec) == OutputSpec.parse(canonical)


def test_parts() -> None:
    assert OutputSpec.parse("softmax") == OutputSpec()
    assert OutputSpec.parse("mos:4+CPR:20,100+Mi+nodup") == OutputSpec("mos", 4, True, True, (20, 100), True, True)
    assert OutputSpec.parse("softmax+CR:7") == OutputSpec(copy=True, rerank=(7,))
    assert OutputSpec.parse("softmax+R:7") == OutputSpec(rerank=(7,))
    assert OutputSpec.parse("repeatnet+Mi") == OutputSpec("repeatnet", mix=True)
    assert OutputSpec.parse("mos-mix:3+nodup") == OutputSpec("mos-mix", 3, nodup=True)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "not one of softmax"),
        ("+C", "not one of softmax"),
        ("C", "not one of softmax"),
        ("Softmax", "not one of softmax"),
        ("softmaxx+CPR:100", "not one of softmax"),
        ("softmax:3", "takes no number"),
        ("repeatnet:3", "takes no number"),
        ("mos", "mos:3"),
        ("mos:", "not one of softmax"),
        ("mos:0", "mos:3"),
        ("mos:-1", "not one of softmax"),
        ("mos:3.5", "not one of softmax"),
        ("mos-mix", "mos-mix:3"),
        ("mos-mix:0+Mi", "mos-mix:3"),
        ("softmax+", "not one of C"),
        ("softmax++C", "not one of C"),
        ("softmax+:5", "not one of C"),
        ("softmax+X", "not one of C"),
        ("softmax+c", "not one of C"),
        ("softmax+mi", "not one of C"),
        ("softmax +C", "not one of softmax"),
        ("softmax+RC:5", "not one of C"),
        ("softmax+PC", "not one of C"),
        ("softmax+P", "CP"),
        ("softmax+PR:5", "CPR"),
        ("softmax+P:5", "CP"),
        ("softmax+R", "R:100"),
        ("softmax+CR", "CR:100"),
        ("softmax+CPR", "CPR:100"),
        ("softmax+C:5", "only R takes numbers"),
        ("softmax+CP:5", "only R takes numbers"),
        ("softmax+Mi:3", "not one of C"),
        ("softmax+R:", "not one of C"),
        ("softmax+R:5,", "not one of C"),
        ("softmax+R:1e2", "not one of C"),
        ("softmax+R:-5", "not one of C"),
        ("softmax+R:0", "positive and ascending"),
        ("softmax+R:0,5", "positive and ascending"),
        ("softmax+CPR:5,5", "positive and ascending"),
        ("softmax+CPR:500,100,20", "positive and ascending"),
        ("softmax+R:" + "9" * 5000, "not one of C"),
        ("softmax+R:" + ",".join(map(str, range(1, 18))), "at most 16 levels"),
        ("softmax+C+R:5", "one of C"),
        ("softmax+CP+CP", "one of C"),
        ("softmax+CPR:5+Mi+C", "one of C"),
        ("softmax+Mi+Mi", "twice"),
        ("softmax+nodup+C+nodup", "twice"),
        ("mos-mix:3+C", "takes Mi, nodup, habits, followers only"),
        ("mos-mix:3+R:5+Mi", "takes Mi, nodup, habits, followers only"),
        ("repeatnet+CPR:5", "takes Mi, nodup, habits, followers only"),
        ("repeatnet+Mi+CP", "takes Mi, nodup, habits, followers only"),
    ],
)
def test_refused_with_a_hint(spec: str, why: str) -> None:
    with pytest.raises(SpecError) as refusal:
        OutputSpec.parse(spec)
    message = str(refusal.value)
    assert f"output layer '{spec}'" in message
    assert why in message
    assert "did you mean" in message or "examples:" in message


@pytest.mark.parametrize("spec", ["softmaxx+CPR:100", "softmax+CPR", "mos", "softmax+mi", "repeatnets"])
def test_a_suggestion_is_itself_accepted(spec: str) -> None:
    with pytest.raises(SpecError, match=r"did you mean (\S+)\?") as refusal:
        OutputSpec.parse(spec)
    suggested = str(refusal.value).rsplit("did you mean ", 1)[1].removesuffix("?")
    assert str(OutputSpec.parse(suggested)) == suggested


@pytest.mark.parametrize(
    ("spec", "meant"),
    [("softmax+CPR", "softmax+CPR:100"), ("softmax+Mi+R", "softmax+Mi+R:100"), ("mos:3+CR+Mi", "mos:3+CR:100+Mi")],
)
def test_a_missing_number_is_suggested_where_it_belongs(spec: str, meant: str) -> None:
    with pytest.raises(SpecError) as refusal:
        OutputSpec.parse(spec)
    assert str(refusal.value).endswith(f"did you mean {meant}?")
    OutputSpec.parse(meant)
