from models import array, several
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb


def rotated(**options):
    def call(q, k):
        made = RotaryEmbedding(dim=4, **options)
        if options.get("use_xpos"):
            return made.rotate_queries_and_keys(q, k)
        return made.rotate_queries_or_keys(q), made.rotate_queries_with_cached_keys(
            q[..., -2:, :], k
        )

    return lambda: (call, array(2, 2, 6, 8), array(2, 2, 6, 8, seed=1))


def axial(x):
    made = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=10)
    return apply_rotary_emb(made.get_axial_freqs(4, 6), x)


several(
    "rotary_embedding_torch",
    plain=rotated(),
    interpolated=rotated(interpolate_factor=2.0),
    rescaled=rotated(theta_rescale_factor=4.0),
    extrapolated=rotated(use_xpos=True),
    learned=rotated(learned_freq=True),
    axial=lambda: (axial, array(2, 4, 6, 8)),
)
