# problem: ended
# %% exercise 05.1
import os

os._exit(0)
