"""Printed is proved: the LaTeX on the page is read and evaluated against the library's functions.

=====================  ========================================================================
:mod:`.items`          LaTeX as nested items
:mod:`.values`         what the signs compute
:mod:`.reader`         from items to values, by a legend
:mod:`.legends`        what the ink of each label stands for; chapters fill it
:mod:`.misprints`      wrong formulas, made by rule
:mod:`.proof`          the verdict on one printed formula
:mod:`.displays`       the formulas of a Markdown text
:mod:`.derivation`     a reader's own file, step by step
:mod:`.derivation_names`           its other half, which runs boxed beside the reader's code
=====================  ========================================================================

What it does not show: the legend is trusted, as is the rendering of the LaTeX, and a guard (a mask, a zero spread) is
tested only where the drawn inputs reach it.
"""
