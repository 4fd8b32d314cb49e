"""Evidence: a study is written with what it depends on, and a claim holds only by three standard deviations between seeds."""

import json

import pytest

from minirlhf import evidence
from minirlhf.core.errors import UserError

NUMBERS = {0: {"high": 1.0, "low": 0.1}, 1: {"high": 1.1, "low": 0.0}, 2: {"high": 0.9, "low": -0.1}}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The script of a study that measures :data:`NUMBERS`, as the command line would run it."""
    result = tmp_path / "studies" / "made_up.json"
    result.parent.mkdir()

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["made_up.py", *arguments])
        evidence.run_study(lambda seed: NUMBERS[seed % 3], result, modules=["minirlhf.core.masking"], seeds=3)
        return result

    return run


def test_a_study_writes_every_seed_and_its_command(study, capsys):
    found = json.loads(study().read_text())
    assert found["seeds"] == {str(seed): numbers for seed, numbers in NUMBERS.items()}
    assert found["command"] == "python studies/made_up.py" and not evidence.is_stale(found)
    assert "1.0000 ± 0.1000 between seeds, 0.9000 to 1.1000" in capsys.readouterr().out
    assert json.loads(study("--seeds", "4").read_text())["command"] == "python studies/made_up.py --seeds 4"


def test_a_claim_holds_by_three_standard_deviations(study):
    seen = evidence.Seen(study())  # the deviation of both is 0.1
    assert seen and seen.values("high") == [1.0, 1.1, 0.9]
    assert seen.holds("high", above=0.69) and not seen.holds("high", above=0.71)
    assert seen.holds("high", below=1.31) and not seen.holds("high", below=1.29)
    assert not seen.holds("high", above=0.69, below=1.29)
    with pytest.raises(ValueError, match="neither above nor below"):
        seen.holds("high")


def test_two_numbers_are_compared_seed_by_seed(study):
    seen = evidence.Seen(study())  # differences 0.9, 1.1, 1.0
    assert seen.exceeds("high", "low") and not seen.exceeds("low", "high")
    assert not seen.exceeds("high", "high")


def test_where_only_the_package_is_installed_nothing_is_refused_and_a_lost_file_is_an_error(study, tmp_path):
    nowhere = evidence.Seen(tmp_path / "elsewhere" / "made_up.json")
    assert not nowhere and nowhere.values("high") == []
    assert nowhere.holds("high", above=100.0) and nowhere.exceeds("low", "high")
    study()
    with pytest.raises(UserError, match="no such evidence"):
        evidence.Seen(tmp_path / "studies" / "another.json")
