"""Layer 7: evidence. A study measures several seeds and writes them down beside its script; it is fresh as long as its code
behaves as it did.

==================  ==============================================================================
:mod:`.study`       a study, what makes it stale, and how it is run
:mod:`.probe`       a few seconds of a study, as numbers, and how far they may move
:mod:`.code`        the shape of a script and the sizes in its lab, read from the syntax tree
:mod:`.paired`      the numbers of several seeds, compared
:mod:`.t_distribution` Student's t, for differences of a handful of seeds
==================  ==============================================================================
"""

from minirlhf.evidence.paired import (
    Difference,
    StudyResults,
    differences,
    margin,
    read,
    result,
    results,
    summary,
    values,
)
from minirlhf.evidence.probe import brief, settings, trace
from minirlhf.evidence.study import Study, write

__all__ = [
    "Difference",
    "Study",
    "StudyResults",
    "brief",
    "differences",
    "margin",
    "read",
    "result",
    "results",
    "settings",
    "summary",
    "trace",
    "values",
    "write",
]
