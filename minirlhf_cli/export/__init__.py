"""Export a run to a large training engine, and load the result back.

The maps are of parts, not of recipe names: objective, weights, advantage and KL term. So your own recipe can be
exported too, or the export refuses it and names the part without a counterpart.

================  =====================================================================================
:mod:`.mapped`    the result of a map, and the parts that no engine supports
:mod:`.trl`       TRL's trainers; ``tests/test_bridge.py`` compares whole optimizer steps for the exact rows
:mod:`.verl`,     option names, checked against one version of the engine; we never started these engines
:mod:`.openrlhf`
:mod:`.scripts`   the engine's training script, with the run's settings
:mod:`.grader`    the run's grader as a file that each engine loads
:mod:`.hooks`     a recipe's advantage function in a trainer of TRL
:mod:`.write`     the exported folder: model, data, grader, script, and a list of the differences
:mod:`.tables`    the maps as tables: appendix C of the book
================  =====================================================================================
"""
