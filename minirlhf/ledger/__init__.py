"""Layer 7: the ledger of checked equations. Chapters fill the registry; see :func:`minirlhf.chapters.load_checks`.

=================  ==============================================================================
:mod:`.registry`   what a check is, and how one runs
:mod:`.inputs`     made-up inputs that several chapters' checks draw
:mod:`.pages`      the ledger as a reader sees it
:mod:`.formulas`   the printed formulas, read and evaluated
:mod:`.peers`      the same functions held against another library
=================  ==============================================================================
"""
