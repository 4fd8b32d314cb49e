"""Layer 7: the one place to obtain a model.

==================  ==============================================================================
:mod:`.pipeline`    post-training on a toy task, stage by stage: pretrain, sft, preferences, reward_model, rl, align
:mod:`.from_files`  a training run from your own files (or a toy task) to a folder; its inputs (:mod:`.sources`),
                    their common steps (:mod:`.prepared`), and reward models and judges (:mod:`.judges_from_files`)
:mod:`.zoo`         trained checkpoints by name: the first use trains, later ones load
:mod:`.named`       a language model by name: a zoo entry, a run, a folder, a name on the hub
==================  ==============================================================================
"""
