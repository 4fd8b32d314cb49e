"""Evidence. A study measures several seeds and stores the numbers beside its script. The result is fresh as
long as the code behaves as it did.

======================  ==============================================================================
:mod:`.study`           a study, the reasons that make it stale, and how to run it
:mod:`.probe`           numbers from a short run of a study, and their tolerances
:mod:`.paired`          paired comparisons of the numbers of several seeds
:mod:`.claims`          claims that are stated before their runs, and their verdicts
:mod:`.real_files`      public data that studies measure, outside the repository
:mod:`.t_distribution`  Student's t, for differences over a few seeds
======================  ==============================================================================
"""

from minirlhf_course.evidence.paired import (
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
from minirlhf_course.evidence.probe import brief, settings, trace
from minirlhf_course.evidence.real_files import real_file
from minirlhf_course.evidence.study import Study, write

__all__ = [
    "Difference",
    "Study",
    "StudyResults",
    "brief",
    "differences",
    "margin",
    "read",
    "real_file",
    "result",
    "results",
    "settings",
    "summary",
    "trace",
    "values",
    "write",
]
