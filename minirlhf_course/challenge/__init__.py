"""The challenge: most gold reward within a KL limit and a budget of gold labels, scored the same by everybody.

:mod:`.world` draws a task from a seed, :mod:`.scoring` runs a submission in a sandbox and scores the policy that it
returns, and :mod:`.board` compares a folder of submissions. ``entries/`` has the file to start from and three baselines;
a submission can import neither them nor the rest of this package.
"""
