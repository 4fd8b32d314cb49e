"""Run the train.py of an exported folder as its launcher does, and keep the gradients of every optimizer step.

    python launched.py NAME      writes NAME-RANK.pt: per step, the gradients of this process after they were averaged

GRPO samples completions by random numbers of its own in every process. Here the completions are a function of the row of the
step, so that one process and several learn from the same ones.
"""

import os
import runpy
import sys

import torch
import trl

steps = []
step = torch.optim.AdamW.step


def watched(optimizer, *args, **options):
    """The optimizer's step, whose gradients are kept."""
    grads = [
        p.grad.detach().flatten() for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    steps.append(torch.cat(grads).clone())
    return step(optimizer, *args, **options)


def completions(trainer, prompt_ids, *_):
    """Completions of one to four tokens that depend on the row of the step, over all processes, and on the step."""
    first = trainer.accelerator.process_index * len(prompt_ids)
    rows = range(first, first + len(prompt_ids))
    said = [[20 + (7 * row + 3 * k + trainer.state.global_step) % 40 for k in range(1 + row % 4)] for row in rows]
    return said, None


torch.optim.AdamW.step = watched
trl.GRPOTrainer._generate_single_turn = completions
sys.path.insert(0, os.getcwd())  # where train.py finds its grader
runpy.run_path("train.py", run_name="__main__")
torch.save(steps, f"{sys.argv[1]}-{os.environ.get('RANK', 0)}.pt")
