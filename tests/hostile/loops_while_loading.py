# problem: timeout
# %% exercise 05.1
while True:
    pass
