"""The package's sandbox, in which untrusted programs run.

:mod:`.isolation` builds a box, :mod:`.wire` defines the data that may enter or leave it, :mod:`.inside` is the server
process that forks boxed processes, and :mod:`.server` is the interface from outside. Students' answers
(:mod:`minirlhf_course.classroom.runner`), a reader's own derivation (``minirlhf verify mine.md``) and the programs of a model
(:mod:`.programs`) all run in it.
"""
