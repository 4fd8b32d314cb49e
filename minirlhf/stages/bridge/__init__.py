"""From a run here to one that a big engine can go on with, and back.

Parts are mapped, not names: what a recipe's objective, weights, advantage and KL term are called over there. So a reader's own recipe goes as
well, or is refused with the part that has no counterpart.

================  =====================================================================================
:mod:`.mapped`    what a map gives, and what no engine takes
:mod:`.trl`       TRL's trainers; its exact rows are held to whole optimizer steps by ``tests/test_bridge.py``
:mod:`.verl`,     by the names of their options, held to those of a version: never started by us
:mod:`.openrlhf`
:mod:`.scripts`   the script that is started over there, with the run's settings
:mod:`.grader`    the run's grader as a file that each engine loads
:mod:`.hooks`     a recipe's own advantage in a trainer of TRL
:mod:`.write`     the folder: model, data, grader, script, and the differences in words
:mod:`.tables`    the maps as tables: appendix C of the book
================  =====================================================================================
"""
