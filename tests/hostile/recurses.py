# problem: raised
# error: RecursionError
# %% exercise 05.1
def best_policy(ref, rewards, beta):
    return best_policy(ref, rewards, beta)


best_value = best_policy
