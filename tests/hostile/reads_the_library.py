# problem: raised
# error: ModuleNotFoundError
# needs: a box
# %% exercise 05.1
def best_policy(ref, rewards, beta):
    from minirlhf.equations.rlhf import optimal_logps

    return optimal_logps(ref.log(), rewards, beta=beta).exp()


def best_value(ref, rewards, beta):
    from minirlhf.equations.rlhf import optimal_value

    return optimal_value(ref.log(), rewards, beta=beta)
