"""How the book is built: ``make book``. Own additions live in ``_ext``; all else is the theme's."""

import os
import secrets
import sys
from importlib import metadata
from pathlib import Path

BOOK = Path(__file__).resolve().parent
sys.path.insert(0, str(BOOK / "_ext"))

from repository import BRANCH, PUBLIC, REPOSITORY  # noqa: E402

from minirlhf_course.chapters import chapters  # noqa: E402

project = "minirlhf"
author = "the minirlhf authors"
copyright = "2026, the minirlhf authors; text and code under the MIT licence"
html_title = "minirlhf: RLHF with every equation checked"

# Chapters whose every check must have its equation on the page: a manifest says when a chapter is done.
finished_chapters: list[int] = [c.number for c in chapters() if c.finished]
# The checks draw fresh inputs at every build; MINIRLHF_SEED repeats a build.
ledger_seed = int(os.environ.get("MINIRLHF_SEED") or secrets.randbelow(2**31))

extensions = [
    "myst_nb",
    "sphinx.ext.mathjax",
    "sphinxcontrib.bibtex",
    "sphinx_proof",
    "numbering",
    "numref",
    "sidebar",
    "proofs",
    "finished",
    "library",
    "notebook_figures",
    "chapters",
    "chapter_map",
    "metrics_table",
    "gallery",
    "errata",
    "cheat_sheet",
    "measured",
    "quoted",
    "recipe_table",
    "bridge_table",
    "engine_table",
    "machines_table",
    "verdicts",
    "derivations",
    "labelling",
    "touch",
    "predictions",
    "tooltips",
    "term_index",
    "letters",
    "one_page",
    "search",
    "run_this",
    "citations",
    "read_aloud",
    "mathematics",
    "dark_figures",
    "scaffolding",
    "phone_figures",
]
exclude_patterns = ["_ext", "_static", "slides", "derivations", "notebooks/*.py", "**/.ipynb_checkpoints"]
nitpicky = True

# -- text and notebooks ------------------------------------------------------------------------------------------
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks come executed; see tools/notebooks.py
nb_ipywidgets_js = {}
nb_merge_streams = True
nb_render_markdown_format = "myst"

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"
# Each chapter lists its own references; a citation leads to the list of its own chapter.
suppress_warnings = ["bibtex.duplicate_citation", "bibtex.duplicate_label", "epub.unknown_project_files"]

numfig = True
numfig_secnum_depth = 1
math_numfig = True
math_eqref_format = "({number})"

# -- pages -------------------------------------------------------------------------------------------------------
html_theme = "sphinx_book_theme"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_show_sourcelink = False
html_copy_source = True
html_context = {"default_mode": "auto"}
html_theme_options = {
    "repository_url": REPOSITORY,
    "repository_branch": BRANCH,
    "path_to_docs": "",
    "use_repository_button": PUBLIC,
    "use_download_button": False,
    "launch_buttons": {
        "colab_url": "https://colab.research.google.com",
        "binderhub_url": "https://mybinder.org",
        "notebook_interface": "jupyterlab",
    }
    if PUBLIC
    else {},
    "navbar_persistent": [],
    "footer_content_items": ["copyright.html"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# -- the EPUB; tools/epub.py finishes it ---------------------------------------------------------------------------
version = metadata.version("minirlhf")
epub_uid = "minirlhf"
epub_identifier = REPOSITORY
epub_contributor = author
epub_description = "How a language model learns from human preferences, with every equation checked."
epub_tocscope = "includehidden"
epub_show_urls = "no"
epub_css_files = ["epub.css"]

# -- mathematics -------------------------------------------------------------------------------------------------
mathjax_path = "mathjax/tex-chtml-full.js"
mathjax3_config = {
    "options": {"enableMenu": False},
    "tex": {
        "packages": {"[-]": ["noundefined"]},  # an unknown macro is an error, not red text
        "macros": {
            "bm": ["\\boldsymbol{#1}", 1],
            "E": "\\mathbb{E}",
            "KL": "\\operatorname{KL}",
            "piref": "\\pi_{\\mathrm{ref}}",
            "piold": "\\pi_{\\mathrm{old}}",
            "argmax": "\\operatorname*{arg\\,max}",
            "argmin": "\\operatorname*{arg\\,min}",
        },
    },
}
