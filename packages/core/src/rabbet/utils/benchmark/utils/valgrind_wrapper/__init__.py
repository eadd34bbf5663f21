"""Counts of executed instructions, measured by Valgrind."""
