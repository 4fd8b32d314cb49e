"""Layer 5: the algorithms as rows of tables. A recipe is a choice of functions.

``GRPO.with_(weights=token_mean, epsilon_high=0.28)`` reads like the list of changes in a paper: a name is either a field of
the recipe or a hyperparameter of one of its functions, and anything else is an error.

==================  ==============================================================================
:mod:`.parts`       what an online recipe is made of: collect, credit, update
:mod:`.online`      REINFORCE, PPO, RLOO, GRPO, DAPO, GSPO and their relatives
:mod:`.offline`     DPO and all other preference losses
:mod:`.binding`     how a name finds its field or function
==================  ==============================================================================
"""

from minirlhf.recipes.online import (
    BNPO,
    CISPO,
    DAPO,
    DECOUPLED_PPO,
    DR_GRPO,
    GFPO,
    GMPO,
    GRPO,
    GRPO_PROCESS,
    GSPO,
    GSPO_TOKEN,
    LITE_PPO,
    LUSPO,
    MASKED_GRPO,
    MAXRL,
    PPO,
    RECIPES,
    REINFORCE,
    REINFORCE_PP,
    REINFORCE_PP_BASELINE,
    REMAX,
    RLOO,
    SAPO,
    VAPO,
    Recipe,
    choices,
    describe,
    get,
    summary,
)
from minirlhf.recipes.parts import (
    AgainstGreedy,
    Collect,
    Critic,
    Gae,
    Graded,
    Grouped,
    InLoss,
    InReward,
    OnDemand,
    Process,
    Refill,
    ToGo,
    Update,
)

__all__ = [
    "BNPO",
    "CISPO",
    "DAPO",
    "DECOUPLED_PPO",
    "DR_GRPO",
    "GFPO",
    "GMPO",
    "GRPO",
    "GRPO_PROCESS",
    "GSPO",
    "GSPO_TOKEN",
    "LITE_PPO",
    "LUSPO",
    "MASKED_GRPO",
    "MAXRL",
    "PPO",
    "RECIPES",
    "REINFORCE",
    "REINFORCE_PP",
    "REINFORCE_PP_BASELINE",
    "REMAX",
    "RLOO",
    "SAPO",
    "VAPO",
    "AgainstGreedy",
    "Collect",
    "Critic",
    "Gae",
    "Graded",
    "Grouped",
    "InLoss",
    "InReward",
    "OnDemand",
    "Process",
    "Recipe",
    "Refill",
    "ToGo",
    "Update",
    "choices",
    "describe",
    "get",
    "summary",
]
