# problem: type
# %% exercise 05.1
import torch


def best_policy(ref, rewards, beta):
    return torch.zeros(1 << 23)


best_value = best_policy
