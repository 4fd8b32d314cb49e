"""The one place to obtain a model.

==================  ==============================================================================
:mod:`.pipeline`    post-training on a toy task, stage by stage: pretrain, sft, preferences, reward_model, rl, align
:mod:`.judging`     a judge that writes its verdict, trained on pairs
:mod:`.zoo`         trained checkpoints by name: the first use trains, later ones load
:mod:`.named`       a language model by name: a zoo entry, a run, a folder, a name on the hub
==================  ==============================================================================
"""
