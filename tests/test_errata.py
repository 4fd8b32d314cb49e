"""The errata: every correction agrees with another road, every printed number does not, and the words are there."""

import pytest

from minirlhf.cli import errata as command
from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.errata import erratum
from minirlhf.errata.catalogue import errata, get
from minirlhf.errata.erratum import Found, sources

EVERY = errata()


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_the_text_is_wrong_and_the_correction_right(one):
    found = one.compute()
    assert found.holds, found


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_it_says_where_what_and_how(one):
    assert one.title and one.where.startswith(tuple(sources().values()))
    assert (
        len(one.says) > 20
        and len(one.truth) > 20
        and "return Found(" in one.code
        and "def " not in one.code.split("\n")[0]
    )


def test_every_text_has_its_computation_and_every_computation_its_text():
    assert list(EVERY) == list(erratum.texts()) and set(erratum.REGISTERED) == set(EVERY)


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (Found("", 1.0, 2.0, 2.0), True),
        (Found("", float("nan"), 2.0, 2.0), True),
        (Found("", 2.0, 2.0, 2.0), False),  # nothing is wrong
        (Found("", 1.0, 2.0, 3.0), False),  # the correction is wrong
        (Found("", 1.0, float("nan"), float("nan")), False),
    ],
)
def test_what_holds(found, holds):
    assert found.holds == holds


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="which_psi"):
        erratum.erratum("which_psi")(lambda: Found("", 0, 0, 0))


def test_the_command_lists_all_and_shows_one(capsys):
    assert main(["errata"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EVERY)
    assert main(["errata", "which_psi"]) == 0
    shown = capsys.readouterr().out
    assert get("which_psi").title in shown and "return Found(" in shown and "0.4304" in shown


def test_the_command_fails_when_one_does_not_hold(capsys, monkeypatch):
    monkeypatch.setattr(erratum.Found, "holds", property(lambda self: False))
    assert main(["errata"]) == 1
    assert capsys.readouterr().out.count("DOES NOT HOLD") == len(EVERY)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="which_psi"):
        get("wich_psi")
    assert command.__doc__
