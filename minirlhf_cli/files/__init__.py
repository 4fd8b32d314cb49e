"""From files to runs and measurements: what the commands do with a reader's own data, models and graders.

==========================  ======================================================================
:mod:`.from_files`          a training run from files (or a toy task) to a folder; its inputs
                            (:mod:`.sources`), its first and common steps (:mod:`.start`, :mod:`.prepared`)
:mod:`.judges_from_files`   reward models and judges
:mod:`.answering`           completions for a file of prompts, graded (:mod:`.grading`)
:mod:`.measure`             what a model is worth on problems; :mod:`.measure_reward` on pairs, :mod:`.tasks` on a
                            task of multiple choice or of answers (:mod:`.choices`)
:mod:`.judge_files`         two files of completions before a judge
:mod:`.specification`       rules that a model must or should keep
:mod:`.power`               how many samples a comparison needs
==========================  ======================================================================
"""
