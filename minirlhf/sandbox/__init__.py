"""Layer 1: programs that nobody has read, run where they can hurt nobody. The one sandbox of the package.

:mod:`.isolation` is the box itself, :mod:`.wire` what may cross its wall, :mod:`.inside` the process that forks boxed ones,
:mod:`.server` how to ask them from outside. Students' answers (:mod:`minirlhf.classroom.runner`), a reader's own derivation
(``minirlhf verify mine.md``) and the programs of a model (:mod:`.programs`) all run in it.
"""
