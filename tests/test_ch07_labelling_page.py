"""Labelling on a page without a kernel: what it computes is what Python computes, by mouse and by keyboard."""

import json
import sys

import pytest
from browser import Browser
from pages import served

from minirlhf.core import provenance
from minirlhf_cli import dispatch
from minirlhf_course.chapters.ch07_preference_data import reader

EXT = provenance.ROOT / "book" / "_ext"


@pytest.fixture(scope="module")
def page(tmp_path_factory, system_tool):
    """The form alone on a page, in a browser."""
    sys.path.insert(0, str(EXT))
    try:
        import labelling
    finally:
        sys.path.remove(str(EXT))
    folder = tmp_path_factory.mktemp("labelling")
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>label</title>{labelling.html()}</html>'
    (folder / "index.html").write_text(text, encoding="utf-8")
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as browser, served(folder) as base:
        assert browser.open(base + "index.html").complaints == []
        yield browser


VOTES = {
    "the stand-in": [reader.stand_in(item.shown) for item in reader.items()],
    "always the first": ["a"] * len(reader.items()),
    "ties and neither": ["tie", "both bad", "a", "b"] * (len(reader.items()) // 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VOTES)
def test_labelling_page_computes_the_reward_of_python(name, page):
    votes = VOTES[name]
    found, want = page.ask(f"labelling.judge({json.dumps(votes)})"), reader.judge(votes)
    assert found["weights"] == pytest.approx(want.reward.weights.tolist(), abs=1e-4)
    assert found["errors"] == pytest.approx(want.reward.errors.tolist(), abs=1e-4)
    counts = {name: getattr(want, name) for name in ("same", "twice", "first", "decided")}
    assert {name: found[name] for name in counts} == counts
    assert found["favourite"] == want.favourite(0)[0].text


@pytest.mark.slow
def test_labelling_page_votes_by_button_and_key_and_writes_a_file(page, tmp_path, capsys):
    page.ask("document.querySelector('[data-vote=b]').click()")
    page.ask("document.querySelector('[data-part=undo]').click()")
    assert page.ask("labelling.votes.length") == 0
    for number in range(len(reader.items())):
        if number % 2:
            page.ask("document.querySelector('[data-vote=a]').click()")
        else:
            page.ask("document.querySelector('.labelling').dispatchEvent(new KeyboardEvent('keydown', {key: 'b'}))")
    assert page.ask("labelling.votes.join(' ')").split() == ["b", "a"] * (len(reader.items()) // 2)
    assert not page.ask("document.querySelector('[data-part=result]').hidden")
    assert page.ask("document.querySelectorAll('[data-part=weights] tr').length") == len(reader.COLUMNS)
    (tmp_path / "mine.jsonl").write_text(page.ask("labelling.rows(labelling.votes)"), encoding="utf-8")
    assert dispatch(["data", "biases", str(tmp_path / "mine.jsonl")]) == 0
    assert f"{len(reader.items())} " in capsys.readouterr().out
