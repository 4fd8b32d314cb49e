"""Labelling in a notebook: a reader compares pairs of replies, by typing a letter; where nobody can answer, somebody else stands in.

    labelling = Labelling("07", shown, stand_in=somebody)
    votes = labelling.ask()                 # one of "a", "b", "tie", "both bad" for each pair, kept for the next run

It asks with ``input``, as :mod:`minirlhf.classroom.predictions` does and for the same reasons: no extension is needed, and "run all"
waits. Enter leaves the rest to the stand-in; an answer that was given is kept in ``labels/NAME.json`` in the package's cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from minirlhf.classroom.predictions import is_interactive
from minirlhf.core.folders import cache_folder
from minirlhf.data.elicitation import Shown, Vote

LETTERS: dict[str, Vote] = {"a": "a", "b": "b", "t": "tie", "n": "both bad"}


class Labelling:
    """The comparisons of one notebook.

    Args:
        notebook: its name, such as "07".
        pairs: what is shown, in this order.
        stand_in: who answers where nobody is there, or the reader has stopped.
    """

    def __init__(self, notebook: str, pairs: Sequence[Shown], stand_in: Callable[[Shown], Vote]) -> None:
        self.file = cache_folder() / "labels" / f"{notebook}.json"
        self.pairs, self.stand_in = list(pairs), stand_in
        self.by_reader = 0

    def ask(self) -> list[Vote]:
        """One vote per pair. The reader's come first; ``by_reader`` then says how many there are."""
        mine = self._kept() if is_interactive() else []
        if is_interactive():
            for number in range(len(mine), len(self.pairs)):
                said = self._one(number)
                if said is None:
                    break
                mine.append(said)
                self._keep(mine)
        self.by_reader = len(mine)
        rest = [self.stand_in(pair) for pair in self.pairs[len(mine) :]]
        if mine:
            print(f"{len(mine)} labels are yours" + (f", {len(rest)} are the stand-in's." if rest else "."))
        else:
            print(f"Nobody was here to label: the {len(rest)} labels are a stand-in's.")
        return [*mine, *rest]

    def forget(self) -> None:
        """Be asked everything again."""
        self.file.unlink(missing_ok=True)

    def _one(self, number: int) -> Vote | None:
        pair = self.pairs[number]
        print(f"\n{number + 1} of {len(self.pairs)}.  {pair.prompt}\n\nA  {pair.a}\n\nB  {pair.b}\n")
        while True:
            said = input("Better: a or b, t for a tie, n if neither is good, Enter to stop: ").strip().lower()
            if said == "":
                return None
            if said in LETTERS:
                return LETTERS[said]

    def _kept(self) -> list[Vote]:
        """The votes on the same pairs in the same order; nothing if the file is no such file."""
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            same = kept["pairs"] == self._texts()
            votes = kept["votes"]
        except (OSError, ValueError, TypeError, KeyError):
            return []
        known = set(LETTERS.values())
        fits = same and isinstance(votes, list) and len(votes) <= len(self.pairs) and all(v in known for v in votes)
        return list(votes) if fits else []

    def _keep(self, votes: Sequence[Vote]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = {"pairs": self._texts(), "votes": list(votes)}
        self.file.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def _texts(self) -> list[list[str]]:
        return [[pair.prompt, pair.a, pair.b] for pair in self.pairs]
