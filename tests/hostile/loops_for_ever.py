# problem: timeout
# %% exercise 05.1
def best_policy(ref, rewards, beta):
    while True:
        pass


best_value = best_policy
