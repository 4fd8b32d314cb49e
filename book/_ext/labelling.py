"""``{labelling}``: pairs that the reader labels on the page, and a reward model that the page trains on them; no kernel, nothing to load.

Items, columns and prior are those of the notebook of chapter 07; ``_static/labelling.js`` does the rest.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SCRIPT = Path(__file__).resolve().parents[1] / "_static" / "labelling.js"
FORM = """\
<div class="labelling" tabindex="0" role="group" aria-label="Label pairs of completions" hidden>
<p><strong data-part="count"></strong></p>
<div data-part="ask">
<p data-part="prompt"></p>
<div class="labelling-pair"><figure><figcaption>A</figcaption><p data-part="a"></p></figure>
<figure><figcaption>B</figcaption><p data-part="b"></p></figure></div>
<p><button type="button" data-vote="a">A is better (a)</button> <button type="button" data-vote="b">B is better (b)</button>
<button type="button" data-vote="t">a tie (t)</button> <button type="button" data-vote="n">neither is good (n)</button></p>
</div>
<p><button type="button" data-part="undo">take back</button> <button type="button" data-part="finish">stop here</button></p>
<div data-part="result" hidden>
<p data-part="noise" tabindex="-1"></p>
<table><thead><tr><th>feature</th><th>weight, nats</th><th>95 % interval</th></tr></thead><tbody data-part="weights"></tbody></table>
<p>Completion of highest learned reward for the first prompt:</p>
<blockquote><p data-part="favourite"></p></blockquote>
<p><a data-part="save" download="pairs.jsonl">Your pairs as a file</a></p>
</div>
</div>
<noscript><p>Labelling on this page needs JavaScript; the notebook works without it.</p></noscript>
"""


def data() -> dict[str, Any]:
    """What the page needs: the items, the columns of the reward, its prior, and all replies to the first question."""
    import torch

    from minirlhf_course.chapters.ch07_preference_data import reader
    from minirlhf_course.chapters.ch07_preference_data.bank import QUESTIONS, bank, written

    replies = bank()
    seen = torch.cat([replies.quality[0], replies.suspects[0]], -1)
    return {
        "columns": reader.COLUMNS,
        "prior": reader.PRIOR_STD,
        "items": [
            {
                "prompt": item.shown.prompt,
                "a": item.shown.a,
                "b": item.shown.b,
                "x": [round(v, 6) for v in reader.columns(item).tolist()],
                "repeats": item.repeats,
            }
            for item in reader.items()
        ],
        "replies": [
            {"text": reply.text, "x": [round(v, 6) for v in row]}
            for reply, row in zip(written(QUESTIONS[0]), seen.tolist(), strict=True)
        ],
    }


def html() -> str:
    """The form, the script and its data; a ``<`` in the data cannot end the script."""
    held = json.dumps(data(), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    start = f'labellingWidget(document.querySelector(".labelling"), {held});'
    return f"{FORM}<script>\n{SCRIPT.read_text(encoding='utf-8')}{start}\n</script>\n"


class LabellingDirective(SphinxDirective):
    """The place of the form; in print a sentence says where it is."""

    def run(self) -> list[nodes.Node]:
        """The form for browsers."""
        return [nodes.raw("", html(), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("labelling", LabellingDirective)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
