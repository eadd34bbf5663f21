from models import array, filled, several
from perceiver_pytorch import Perceiver, PerceiverIO

SMALL = {
    "num_latents": 6, "latent_dim": 16, "cross_dim_head": 8, "latent_dim_head": 8, "latent_heads": 2, "cross_heads": 1,
}  # fmt: skip


def perceiver(**options):
    def make():
        made = Perceiver(
            input_channels=3,
            input_axis=2,
            num_freq_bands=3,
            max_freq=8.0,
            depth=2,
            num_classes=5,
            **SMALL,
            **options,
        )
        return filled(made).eval(), array(2, 6, 6, 3)

    return make  # fmt: skip


def queried():
    made = filled(PerceiverIO(dim=8, queries_dim=8, logits_dim=5, depth=2, **SMALL)).eval()
    return lambda x, q: made(x, queries=q), array(2, 7, 8), array(3, 8, seed=1)


several(
    "perceiver_pytorch",
    plain=perceiver(),
    tied=perceiver(weight_tie_layers=True),
    deeper=perceiver(self_per_cross_attn=2),
    queried=queried,
)
