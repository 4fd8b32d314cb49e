# problem: timeout
# %% exercise 05.1
import time


def best_policy(ref, rewards, beta):
    time.sleep(3600)


best_value = best_policy
