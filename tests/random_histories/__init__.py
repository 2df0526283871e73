"""Random histories on a real lakeFS server, planned and swept on several days while writers go on.

    python -m tests.random_histories --rounds 100 --seed 1     # or: make random-histories ROUNDS=100 SEED=1

After every sweep each object of every branch, HEAD, tag and staging area is read from the server, in both repositories,
and so is what branches showed at the last plan. At the end what brute force calls garbage must be gone after two plans
that are `settle` apart; the share that stays is printed with the seed. A failure prints the log of all operations.
"""
