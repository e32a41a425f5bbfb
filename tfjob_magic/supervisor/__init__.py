"""The process that owns one run: standard library only, Python 3.10 syntax, started by path."""
