"""Calls generated from the records of operators: no crash, no hang, and what torch says."""
