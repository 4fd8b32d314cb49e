# problem: raised
# error: BlockingIOError
# needs: a box
# %% exercise 05.1
import os


def best_policy(ref, rewards, beta):
    while True:
        os.fork()


best_value = best_policy
