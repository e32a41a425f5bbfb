"""The supervisor: one detached process per run, which starts, waits for and ends its tasks.

It runs in any Python from 3.10 on, by its path, with the standard library alone.
"""
