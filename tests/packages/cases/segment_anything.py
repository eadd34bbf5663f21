from functools import partial

import torch
from models import array, case, filled
from segment_anything.modeling import ImageEncoderViT, MaskDecoder, TwoWayTransformer


def encoder():
    return ImageEncoderViT(
        img_size=64,
        patch_size=16,
        embed_dim=32,
        depth=2,
        num_heads=2,
        out_chans=16,
        use_rel_pos=True,
        window_size=2,
        global_attn_indexes=(1,),
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
    )


class Segmenter(torch.nn.Module):
    """Masks of an image for fixed prompts; the package encodes prompts in float32."""

    def __init__(self, several):
        super().__init__()
        transformer = TwoWayTransformer(depth=2, embedding_dim=16, mlp_dim=24, num_heads=2)
        self.encoder = encoder()
        self.decoder = MaskDecoder(transformer_dim=16, transformer=transformer)
        self.several = several

    def forward(self, image):
        return self.decoder(
            image_embeddings=self.encoder(image),
            image_pe=array(1, 16, 4, 4, seed=2),
            sparse_prompt_embeddings=array(1, 3, 16, seed=3),
            dense_prompt_embeddings=array(1, 16, 4, 4, seed=4),
            multimask_output=self.several,
        )


@case("segment_anything")
def image_encoder():
    return filled(encoder()).eval(), array(1, 3, 64, 64)


@case("segment_anything")
def masks():
    return filled(Segmenter(True)).eval(), array(1, 3, 64, 64)


@case("segment_anything")
def one_mask():
    return filled(Segmenter(False)).eval(), array(1, 3, 64, 64)
