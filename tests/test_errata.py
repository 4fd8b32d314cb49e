"""The errata: every correction agrees with an independent computation, every printed number does not, and the words are there."""

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_cli import main
from minirlhf_course.errata import erratum
from minirlhf_course.errata.catalogue import errata, get
from minirlhf_course.errata.erratum import Found, editions, sources

EVERY = errata()


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_erratum_correction_is_right_and_its_source_wrong(one):
    found = one.compute()
    assert found.holds, found
    assert one.title and one.says and one.correction and one.where.startswith(tuple(sources().values()))
    assert "return Found(" in one.code and "def " not in one.code.split("\n")[0]


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_erratum_says_whether_it_stands_in_the_edition_that_was_read_again(one):
    text = erratum.texts()[one.name]
    assert (text["source"] == "T") == (text["today"] != "unread")
    assert one.today == editions()[text["today"]]


def test_errata_have_texts_and_computations_alike():
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
def test_erratum_found_holds_only_if_the_correction_alone_agrees(found, holds):
    assert found.holds == holds


def test_erratum_name_given_twice_is_refused():
    with raises(ValueError, argument="erratum", value="which_psi", problem="duplicate"):
        erratum.erratum("which_psi")(lambda: Found("", 0, 0, 0))


def test_errata_command_lists_all_and_shows_one(capsys):
    assert main(["verify", "errata"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EVERY)
    assert main(["verify", "errata", "which_psi"]) == 0
    shown = capsys.readouterr().out
    assert get("which_psi").title in shown and "return Found(" in shown and "0.4304" in shown


def test_errata_command_fails_when_one_does_not_hold(capsys, monkeypatch):
    monkeypatch.setattr(erratum.Found, "holds", property(lambda self: False))
    assert main(["verify", "errata"]) == 1
    assert len(capsys.readouterr().out.splitlines()) >= len(EVERY)


def test_errata_get_of_unknown_name_gives_the_nearest():
    with raises(UserError, argument="erratum", value="wich_psi", expected="which_psi"):
        get("wich_psi")
