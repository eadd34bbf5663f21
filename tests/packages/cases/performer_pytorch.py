"""Linear attention by random features, whose projections come from NumPy."""

from models import array, filled, integers, numbers_of_numpy, several
from performer_pytorch import FastAttention, Performer, PerformerLM, SelfAttention


def made(make, *inputs):
    def build():
        with numbers_of_numpy():
            model = filled(make()).eval()
        return (model, *inputs)

    return build


several(
    "performer_pytorch",
    attention=made(
        lambda: FastAttention(dim_heads=8, nb_features=16),
        *(array(2, 3, 6, 8, seed=s) for s in range(3)),
    ),
    causal=made(
        lambda: FastAttention(dim_heads=8, nb_features=16, causal=True),
        *(array(2, 3, 6, 8, seed=s) for s in range(3)),
    ),
    generalized=made(
        lambda: FastAttention(dim_heads=8, nb_features=16, generalized_attention=True),
        *(array(2, 3, 6, 8, seed=s) for s in range(3)),
    ),
    self_attention=made(lambda: SelfAttention(dim=32, heads=4, causal=False), array(2, 6, 32)),
    encoder=made(
        lambda: Performer(dim=32, depth=2, heads=4, dim_head=8, causal=False), array(2, 6, 32)
    ),
    language=made(
        lambda: PerformerLM(
            num_tokens=50, dim=32, depth=2, heads=4, max_seq_len=16, dim_head=8, causal=False
        ),
        integers(50, 2, 16),
    ),
)
