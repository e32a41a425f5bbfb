"""Pure: values and functions of them. No I/O, no clock, no randomness (import-linter checks)."""
