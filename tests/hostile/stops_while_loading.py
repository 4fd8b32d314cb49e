# problem: missing
# error: SystemExit
# %% exercise 05.1
raise SystemExit(0)
