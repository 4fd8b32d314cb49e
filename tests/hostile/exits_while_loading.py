# says: ended with exit status 0
# %% exercise 05.1
import os

os._exit(0)
