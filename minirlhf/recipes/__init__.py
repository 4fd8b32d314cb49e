"""Layer 5: the algorithms as rows of tables. A recipe is a choice of functions.

``GRPO.with_(weights=token_mean, epsilon_high=0.28)`` reads like the list of changes in a paper: a name is either a field of
the recipe or a hyperparameter of one of its functions, and anything else is an error.

==================  ==============================================================================
:mod:`.parts`       what an online recipe is made of: collect, credit, update
:mod:`.online`      REINFORCE, PPO, RLOO, GRPO and their relatives
:mod:`.offline`     DPO and all other preference losses
:mod:`.binding`     how a name finds its field or function
==================  ==============================================================================
"""

from minirlhf.recipes.online import DR_GRPO, GRPO, PPO, RECIPES, REINFORCE, RLOO, Recipe, choices, describe, get
from minirlhf.recipes.parts import Collect, Critic, Gae, Graded, Grouped, InLoss, InReward, Update

__all__ = [
    "DR_GRPO",
    "GRPO",
    "PPO",
    "RECIPES",
    "REINFORCE",
    "RLOO",
    "Collect",
    "Critic",
    "Gae",
    "Graded",
    "Grouped",
    "InLoss",
    "InReward",
    "Recipe",
    "Update",
    "choices",
    "describe",
    "get",
]
