"""minirlhf: a small, readable companion to RLHF and post-training.

``import minirlhf`` loads nothing; each name is fetched from its home when it is first used.

===========================  =========================================================================================
:mod:`minirlhf.losses`       the losses: tensors in, a scalar out
:mod:`minirlhf.equations`    what they are given: advantages, returns, weights, KL estimates
:mod:`minirlhf.notebook`     load, train, generate, evaluate, plot, verify
:mod:`minirlhf.recipes`      the algorithms as rows of tables: ``GRPO``, ``GRPO.with_(beta=0.1)``, ``DPO``, …
:mod:`minirlhf.core.exact`   ``ToyLM``, a language model whose completions can all be enumerated
:mod:`minirlhf_course`       what makes it a course: chapters, ledger, grading; ``plot`` and ``verify`` come from there
===========================  =========================================================================================
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

#: Home -> names. ``__init__.pyi`` says the same to editors and type checkers.
_HOMES = {
    "losses": """policy_loss reinforce_loss grpo_loss dr_grpo_loss dapo_loss gspo_loss cispo_loss value_loss ppo_loss
        preference_loss dpo_loss ipo_loss simpo_loss orpo_loss kto_loss sft_loss reward_loss mean_loss""",
    "notebook": "load train generate evaluate task",
    "recipes": """REINFORCE REMAX REINFORCE_PP REINFORCE_PP_BASELINE PPO VAPO RLOO GRPO GRPO_PROCESS DR_GRPO DAPO
        HIGH_ENTROPY GSPO GSPO_TOKEN LUSPO CISPO VESPO SAPO GMPO BNPO MAXRL GFPO LITE_PPO MASKED_GRPO DECOUPLED_PPO""",
    "recipes.offline": """DPO DPO_LENGTH_NORMALISED CDPO ROBUST_DPO IPO HINGE DISCOPOP WPO AOT DPO_POSITIVE DPO_NLL ODPO RPO
        REBEL F_DPO APO_ZERO APO_DOWN SPPO CAL_DPO BCO_PAIR NCA_PAIR EXO_PAIR SIMPO ALPHA_PO ORPO CPO SLIC
        LIKELIHOOD_CONTRAST KTO BCO PLACKETT_LUCE_DPO INFO_NCE INFO_NCA NCA EXO""",
    "equations.preference_losses": "PairLogps UnpairedLogps ListLogps Needs kto_reference_point",
    "equations.advantages": "group_zscore group_center leave_one_out broadcast_to_tokens whiten",
    "equations.aggregation": "sequence_mean token_mean fixed_length sequence_sum",
    "equations.kl": "k1 k2 k3",
    "equations.returns": "gae lambda_returns",
    "core.logprobs": "token_logps sequence_logps",
    "core.exact": "ToyLM finite_difference",
    "data.preferences": "sample_pairs",
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}
#: What the course gives. No other module of the library names one of the course.
_HOME_OF |= dict.fromkeys(["plot", "verify"], "minirlhf_course.notebook")
_MODULES = ("losses", "notebook", "recipes")
__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *_MODULES, *_HOME_OF])
