"""What the kit judges by, one file for each kind of judgement; each raises AssertionError with what is wrong."""
