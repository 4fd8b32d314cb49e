"""Public data that a study measures and that is not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

from minirlhf.core.errors import UserError

#: Environment variable -> the contents of the file that it names.
CONTENTS = {
    "MINIRLHF_GSM8K": "1,000 rows of the training part of GSM8K, a JSONL file with question and answer",
    "MINIRLHF_HH": "800 rows of the harmless part of anthropics/hh-rlhf, a JSONL file with chosen and rejected",
}


def real_file(variable: str) -> Path:
    """Return the path in the environment variable, one of :data:`CONTENTS`.

    Raises:
        UserError: the variable is not set.
    """
    if not (path := os.environ.get(variable)):
        raise UserError(
            f"{variable} is not set; expected the path of {CONTENTS[variable]}",
            argument=variable,
            expected=CONTENTS[variable],
            problem="missing",
        )
    return Path(path)
