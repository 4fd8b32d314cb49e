"""The failure gallery: runs that one changed line breaks, next to the same run without the change.

==================  ==============================================================================
:mod:`.catalogue`   all failures, by name
:mod:`.failure`     the definition of a failure: line, symptom, cause, fix, and the check that detects it
:mod:`.colours`     the toy task of all failures, which trains in seconds
:mod:`.online`      failures of online reinforcement learning
:mod:`.given`       failures of SFT and of offline preference optimisation
:mod:`.pictures`    figures of the failures, from the study's numbers
:mod:`.questions`   frequent questions, each with an answer and a command that demonstrates it
:mod:`.study`       all failures over several seeds, and the doctor's diagnosis of each
==================  ==============================================================================
"""
