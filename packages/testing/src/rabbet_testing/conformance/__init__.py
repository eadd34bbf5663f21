"""The tests of the conformance kit: `pytest --pyargs rabbet_testing --device=NAME` or `--layer=NAME`."""
