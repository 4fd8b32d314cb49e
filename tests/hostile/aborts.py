# problem: ended
# %% exercise 05.1
import os


def best_policy(ref, rewards, beta):
    os.abort()


best_value = best_policy
