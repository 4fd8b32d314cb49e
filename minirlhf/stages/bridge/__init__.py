"""From a run here to one that a big engine can go on with, and back.

Parts are mapped, not names: what a recipe's objective, weights, advantage and KL term are called over there. So a reader's own recipe goes as
well, or is refused with the part that has no counterpart.

=============  ========================================================================================
:mod:`.trl`    TRL's trainers; its exact rows are held to whole optimizer steps by ``tests/test_bridge.py``
:mod:`.others` verl and OpenRLHF, by the names of their options only: not run by us
:mod:`.write`  the folder: model, data, grader, script, and the differences in words
=============  ========================================================================================
"""
