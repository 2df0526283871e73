"""Random histories on a real lakeFS server, planned and swept on several days while users write.

    python -m tests.random_histories --rounds 100 --seed 1     # or: make random-histories ROUNDS=100 SEED=1

After every sweep each object of every branch, HEAD, tag and staging area of both repositories is read from the server,
and each object that a branch had at the last plan. At the end the garbage by brute force must be gone after two plans
that are `settle` apart. The share that stays is printed with the seed. A failure prints the log of all operations.
"""
