"""Labelling in a notebook: a reader compares pairs of completions by typing letters; else a stand-in labels them.

    labelling = Labelling("07", shown, stand_in=annotator)
    votes = labelling.ask()                 # "a", "b", "tie" or "both bad" for each pair, stored for the next run

It asks with ``input``, for the same reasons as :mod:`minirlhf_course.classroom.predictions`: no extension is needed, and
"run all" waits. If the reader presses Enter, the stand-in labels the remaining pairs. The reader's votes are stored
in ``labels/NAME.json`` in the package's cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from minirlhf.core.folders import cache_folder
from minirlhf.data.elicitation import DisplayedPair, Vote
from minirlhf_course.classroom.predictions import is_interactive

LETTERS: dict[str, Vote] = {"a": "a", "b": "b", "t": "tie", "n": "both bad"}


class Labelling:
    """The comparisons of one notebook.

    Args:
        notebook: the notebook's name, such as "07".
        pairs: the pairs to label, in this order.
        stand_in: labels a pair if there is no reader or the reader has stopped.
    """

    def __init__(
        self, notebook: str, pairs: Sequence[DisplayedPair], stand_in: Callable[[DisplayedPair], Vote]
    ) -> None:
        self.file = cache_folder() / "labels" / f"{notebook}.json"
        self.pairs, self.stand_in = list(pairs), stand_in
        self.by_reader = 0

    def ask(self) -> list[Vote]:
        """Return one vote per pair. The reader's votes come first; ``by_reader`` is their number."""
        votes = self._kept() if is_interactive() else []
        if is_interactive():
            for number in range(len(votes), len(self.pairs)):
                vote = self._one(number)
                if vote is None:
                    break
                votes.append(vote)
                self._keep(votes)
        self.by_reader = len(votes)
        others = [self.stand_in(pair) for pair in self.pairs[len(votes) :]]
        if votes:
            print(f"{len(votes)} labels are yours" + (f", {len(others)} are the stand-in's." if others else "."))
        else:
            print(f"Nobody was here to label: the {len(others)} labels are a stand-in's.")
        return [*votes, *others]

    def forget(self) -> None:
        """Delete the stored votes, so that every pair is asked again."""
        self.file.unlink(missing_ok=True)

    def _one(self, number: int) -> Vote | None:
        pair = self.pairs[number]
        print(f"\n{number + 1} of {len(self.pairs)}.  {pair.prompt}\n\nA  {pair.a}\n\nB  {pair.b}\n")
        while True:
            key = input("Better: a or b, t for a tie, n if neither is good, Enter to stop: ").strip().lower()
            if key == "":
                return None
            if key in LETTERS:
                return LETTERS[key]

    def _kept(self) -> list[Vote]:
        """Return the stored votes on the same pairs in the same order; empty if the file is missing or invalid."""
        try:
            stored = json.loads(self.file.read_text(encoding="utf-8"))
            same = stored["pairs"] == self._texts()
            votes = stored["votes"]
        except (OSError, ValueError, TypeError, KeyError):
            return []
        known = set(LETTERS.values())
        valid = same and isinstance(votes, list) and len(votes) <= len(self.pairs) and all(v in known for v in votes)
        return list(votes) if valid else []

    def _keep(self, votes: Sequence[Vote]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        data = {"pairs": self._texts(), "votes": list(votes)}
        self.file.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def _texts(self) -> list[list[str]]:
        return [[pair.prompt, pair.a, pair.b] for pair in self.pairs]
