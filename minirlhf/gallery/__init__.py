"""The failure gallery: runs that are broken by one changed line, beside the same run without it.

==================  ==============================================================================
:mod:`.catalogue`   all of them, by name
:mod:`.failure`     what a failure is: the line, its symptom, cause, fix, and the check that sees it
:mod:`.colours`     the tiny world in which the online ones happen, in seconds
:mod:`.online`      failures of online reinforcement learning
:mod:`.given`       failures of learning from given text and given preferences
:mod:`.pictures`    their panels, from the study's numbers
:mod:`.questions`   questions that people ask, each with an answer and a command that shows it
:mod:`.study`       all of them over several seeds, and what the doctor says of each
==================  ==============================================================================
"""
