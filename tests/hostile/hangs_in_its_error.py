# problem: timeout
# %% exercise 05.1
class Slow(Exception):
    def __str__(self):
        while True:
            pass


def best_policy(ref, rewards, beta):
    raise Slow


best_value = best_policy
