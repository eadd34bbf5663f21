"""L1: memory, copies, synchronisation, random numbers, exchange with others."""

import rabbet


def test_a_tensor_can_be_made_and_read(device):
    assert rabbet.tensor([1.0, 2.0]).to(device).cpu().tolist() == [1.0, 2.0]
