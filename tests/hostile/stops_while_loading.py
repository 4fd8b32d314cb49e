# says: not defined: your code stopped with SystemExit
# %% exercise 05.1
raise SystemExit(0)
