"""The index of terms: what counts as a term in a text, and which sections it leads to."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def index(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    return importlib.import_module("term_index")


@pytest.mark.parametrize(
    ("term", "text", "count"),
    [
        ("reward model", "Reward models and a reward-model; the reward of a model.", 2),
        ("policy", "The policy, two policies, policymakers.", 2),
        ("loss", "A loss, losses and lossless.", 1),
        ("CHES", "CHES finds what ches does not.", 1),
        ("advantage", "An advantage, disadvantages, Advantages.", 2),
        ("actor", "A factor and an actor-critic.", 1),
    ],
)
def test_term_index_pattern_finds_forms(index, term, text, count):
    assert len(index.pattern(term).findall(text)) == count


def section(index, page, title, text, *links):
    return index.Section(page, title.lower(), page[:2], title, text, links)


def test_term_index_places_mark_first_linking_chapter(index):
    book = [
        section(index, "01-a", "Start", "a critic"),
        section(index, "02-b", "Values", "the critic, a critic", "critic"),
        section(index, "03-c", "Nothing", "no such word"),
        section(index, "04-d", "Training a critic", "critic"),
    ]
    found = index.places("critic", book)
    assert [place.section.title for place in found] == ["Start", "Values", "Training a critic"]
    assert [place.first for place in found] == [False, True, False]
    assert index.places("reward hacking", book) == []


def test_term_index_places_fall_back_to_separate_words(index):
    book = [
        section(index, "01-a", "Old", "samples that are stale"),
        section(index, "02-b", "Scale", "a model by Thurstone"),
        section(index, "03-c", "Both", "merged weights of models"),
        section(index, "04-d", "None", "a mergansers' model"),
    ]
    titles = lambda term: [place.section.title for place in index.places(term, book)]
    assert (titles("staleness"), titles("Thurstone model"), titles("weight merging")) == (["Old"], ["Scale"], ["Both"])


def test_term_index_places_keep_most_frequent_and_first(index):
    many = [section(index, f"{n:02d}-x", f"S{n}", "critic " * n) for n in range(1, 20)]
    found = index.places("critic", many)
    assert len(found) == index.MOST and found[0].section.title == "S1" and found[0].first
    assert [place.section.title for place in found[1:]] == [f"S{n}" for n in range(20 - index.MOST + 1, 20)]
