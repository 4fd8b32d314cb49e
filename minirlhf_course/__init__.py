"""What makes minirlhf a course. It imports the library (:mod:`minirlhf`), which imports nothing from here.

=====================  ===============================================================================
:mod:`.chapters`       what only one chapter needs, a folder each: experiments, checks, studies
:mod:`.ledger`         equations against exact oracles: checks, printed formulas, wrong variants
:mod:`.evidence`       measurements over several seeds, and whether they are fresh
:mod:`.report`         curves, diagnosis, the glossary of metrics, HTML pages
:mod:`.classroom`      exercises: release, grading, hints, self-tests
:mod:`.gallery`        runs that one changed line breaks
:mod:`.tour`           the whole pipeline in two minutes
:mod:`.errata`         errors in the texts that the course teaches from
:mod:`.notebook`       ``plot`` and ``verify``, which ``import minirlhf`` gives too
=====================  ===============================================================================
"""
