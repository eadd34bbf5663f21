import vector_quantize_pytorch as v
from models import array, filled, several


def quantized(make, *shape):
    """Quantized in eval mode, so that no codes are chosen at random, with codes of NumPy."""

    def made():
        module = filled(make()).eval()
        for number, (name, codes) in enumerate(module.named_buffers()):
            if name.endswith(("embed", "embed_avg", "codebook")) and codes.is_floating_point():
                codes.copy_(array(*codes.shape, seed=number))
        return module, array(*shape)

    return made


VECTORS = (2, 6, 8)
several(
    "vector_quantize_pytorch",
    plain=quantized(lambda: v.VectorQuantize(8, 16), *VECTORS),
    cosine=quantized(lambda: v.VectorQuantize(8, 16, use_cosine_sim=True), *VECTORS),
    low_dimensional=quantized(lambda: v.VectorQuantize(8, 16, codebook_dim=4), *VECTORS),
    heads=quantized(
        lambda: v.VectorQuantize(8, 16, heads=2, separate_codebook_per_head=True), *VECTORS
    ),
    learned=quantized(
        lambda: v.VectorQuantize(8, 16, learnable_codebook=True, ema_update=False), *VECTORS
    ),
    rotated=quantized(lambda: v.VectorQuantize(8, 16, rotation_trick=True), *VECTORS),
    images=quantized(lambda: v.VectorQuantize(8, 16, accept_image_fmap=True), 2, 8, 4, 4),
    residual=quantized(lambda: v.ResidualVQ(dim=8, codebook_size=16, num_quantizers=3), *VECTORS),
    simple=quantized(lambda: v.SimVQ(dim=8, codebook_size=16), *VECTORS),
    finite_scalars=quantized(lambda: v.FSQ([8, 5, 5], dim=8), *VECTORS),
    residual_finite=quantized(
        lambda: v.ResidualFSQ(dim=8, levels=[5, 5, 3], num_quantizers=2), *VECTORS
    ),
    lookup_free=quantized(lambda: v.LFQ(dim=8, codebook_size=16), *VECTORS),
    latent=quantized(lambda: v.LatentQuantize(levels=[5, 5, 8], dim=8), 2, 8, 6),
)
