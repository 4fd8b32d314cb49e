"""Layer 7: the one place to obtain a model.

==================  ==============================================================================
:mod:`.pipeline`    post-training on a tiny world, stage by stage: pretrain, sft, preferences, reward_model, rl, align
:mod:`.from_files`  a training run from your own files (or a tiny world) to a folder; what it is given (:mod:`.sources`),
                    the way that all of them go (:mod:`.prepared`), and those who judge (:mod:`.judges_from_files`)
:mod:`.zoo`         trained checkpoints by name: the first use trains, later ones load
:mod:`.named`       any language model that can be named: a zoo entry, a run, a folder, a name on the hub
==================  ==============================================================================
"""
