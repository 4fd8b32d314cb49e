"""The ledger of checked equations. Chapters fill the registry; see :func:`minirlhf_course.chapters.load_checks`.

=================  ==============================================================================
:mod:`.registry`   the registry of checks, and how a check runs
:mod:`.inputs`     random inputs that the checks of several chapters share
:mod:`.pages`      text and JSON for readers
:mod:`.formulas`   the printed formulas, parsed and evaluated
:mod:`.peers`      the same functions compared with another library
=================  ==============================================================================
"""
