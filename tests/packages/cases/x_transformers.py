from models import array, case, filled, integers, several
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)


def language(**options):
    def make():
        layers = Decoder(dim=32, depth=2, heads=4, **options)
        model = filled(TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers)).eval()
        return model, integers(50, 2, 12)

    return make


several(
    "x_transformers",
    decoder=language(),
    rotary=language(rotary_pos_emb=True),
    alibi=language(alibi_pos_bias=True),
    relative_bias=language(rel_pos_bias=True),
    rms_norm=language(use_rmsnorm=True),
    simple_rms_norm=language(use_simple_rmsnorm=True),
    gated=language(ff_glu=True, ff_swish=True),
    relu_squared=language(ff_relu_squared=True),
    sandwich=language(sandwich_norm=True),
    residual_gates=language(gate_residual=True),
    qk_norm=language(attn_qk_norm=True, attn_qk_norm_dim_scale=True),
    talking_heads=language(attn_pre_talking_heads=True),
    one_kv_head=language(attn_one_kv_head=True),
    grouped_kv=language(attn_kv_heads=2),
    gated_values=language(attn_gate_values=True),
    memory_tokens=language(attn_num_mem_kv=3),
    sparse_topk=language(attn_sparse_topk=4),
    shifted=language(shift_tokens=1),
    macaron=language(macaron=True),
    flash=language(attn_flash=True),
    encoder=lambda: (filled(Encoder(dim=32, depth=2, heads=4)).eval(), array(2, 10, 32)),
    cross=lambda: (
        lambda m: (lambda x, c: m(x, context=c), array(2, 10, 32), array(2, 7, 32, seed=1))
    )(filled(CrossAttender(dim=32, depth=2, heads=4)).eval()),
    continuous=lambda: (
        filled(
            ContinuousTransformerWrapper(
                dim_in=8, dim_out=5, max_seq_len=16, attn_layers=Encoder(dim=32, depth=2, heads=4)
            )
        ).eval(),
        array(2, 10, 8),
    ),
    vision=lambda: (
        filled(
            ViTransformerWrapper(
                image_size=32,
                patch_size=8,
                num_classes=10,
                attn_layers=Encoder(dim=32, depth=2, heads=4),
            )
        ).eval(),
        array(2, 3, 32, 32),
    ),
)


@case("x_transformers")
def next_token_loss():
    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers)
    return filled(AutoregressiveWrapper(model)).eval(), integers(50, 2, 12)


@case("x_transformers")
def encoder_and_decoder():
    model = XTransformer(
        dim=32,
        enc_num_tokens=40,
        enc_depth=1,
        enc_heads=4,
        enc_max_seq_len=16,
        dec_num_tokens=50,
        dec_depth=1,
        dec_heads=4,
        dec_max_seq_len=16,
    )
    return filled(model).eval(), integers(40, 2, 9), integers(50, 2, 12, seed=1)
