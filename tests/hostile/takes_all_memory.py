# problem: raised
# error: MemoryError
# %% exercise 05.1
def best_policy(ref, rewards, beta):
    held = []
    while True:
        held.append(bytearray(1 << 26))


best_value = best_policy
