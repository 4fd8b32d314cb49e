# %% exercise 05.1
import math

import torch


def best_policy(ref, rewards, beta):
    return torch.full_like(ref, math.nan)


def best_value(ref, rewards, beta):
    return math.nan
