from local_attention import LocalAttention, LocalTransformer
from models import array, filled, integers, several


def attention(**options):
    def call(q, k, v):
        return filled(LocalAttention(dim=8, window_size=4, autopad=True, **options).eval())(q, k, v)

    return lambda: (call, *[array(2, 2, 10, 8, seed=s) for s in range(3)])


def language(**options):
    def make():
        model = LocalTransformer(
            num_tokens=20,
            dim=16,
            depth=2,
            max_seq_len=16,
            local_attn_window_size=4,
            heads=2,
            **options,
        )
        return filled(model).eval(), integers(20, 2, 12)

    return make


several(
    "local_attention",
    plain=attention(),
    causal=attention(causal=True),
    exact_windows=attention(causal=True, exact_windowsize=True),
    shared=attention(shared_qk=True, causal=True),
    scaled=attention(use_xpos=True, causal=True),
    transformer=language(causal=True),
)  # fmt: skip
