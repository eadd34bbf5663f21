import open_clip
import torch
from models import array, case, filled, integers, several
from open_clip.coca_model import MultimodalCfg
from open_clip.loss import ClipLoss, CoCaLoss, SigLipLoss
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg, CustomTextCLIP
from open_clip.transformer import AttentionalPooler

TEXT = {"context_length": 9, "vocab_size": 60, "width": 16, "heads": 2, "layers": 2}
VISION = {"layers": 2, "width": 32, "head_width": 8, "patch_size": 8, "image_size": 32}
TOKENS = integers(58, 3, 9) + 1


class Both(torch.nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, images):
        image, text, scale, *bias = self.model(images, TOKENS)
        return image, text, self.loss(image, text, scale, *bias)


def clip(vision=None, text=None, kind=CLIP, loss=ClipLoss, **options):
    def make():
        made = kind(
            12,
            CLIPVisionCfg(**{**VISION, **(vision or {})}),
            CLIPTextCfg(**{**TEXT, **(text or {})}),
            **options,
        )
        return Both(filled(made).eval(), loss()), array(3, 3, 32, 32)

    return make


several(
    "open_clip",
    vit=clip(),
    quick_gelu=clip(quick_gelu=True),
    resnet=clip({"layers": (1, 1, 1, 1), "width": 8, "patch_size": None}),
    average_pool=clip({"pool_type": "avg"}),
    layer_scale=clip({"ls_init_value": 0.1}),
    attentional_pool=clip({"attentional_pool": True, "attn_pooler_queries": 4, "attn_pooler_heads": 2}),
    custom_text=clip(kind=CustomTextCLIP),
    siglip=clip(kind=CustomTextCLIP, loss=SigLipLoss, init_logit_bias=-10.0),
    last_token=clip(text={"pool_type": "last"}),
    pooler=lambda: (filled(AttentionalPooler(8, 12, n_head=2, n_queries=3)).eval(), array(2, 5, 12)),
)  # fmt: skip


@case("open_clip")
def captioner():
    decoder = {"context_length": 9, "vocab_size": 60, "width": 16, "heads": 2, "layers": 2}
    pooled = {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
    model = open_clip.CoCa(
        16,
        multimodal_cfg=MultimodalCfg(**decoder),
        text_cfg=CLIPTextCfg(**TEXT, embed_cls=True, output_tokens=True),
        vision_cfg=CLIPVisionCfg(**VISION, **pooled),
        pad_id=0,
    )

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.loss = filled(model).eval(), CoCaLoss(1.0, 1.0)

        def forward(self, images):
            found = self.model(images, TOKENS)
            return self.loss(
                found["image_features"],
                found["text_features"],
                found["logits"],
                found["labels"],
                found["logit_scale"],
            )

    return Loss(), array(3, 3, 32, 32)


@case("open_clip")
def tokens():
    tokenize = open_clip.get_tokenizer("ViT-B-32")
    return (lambda: tokenize(["a photo of a cat", "two dogs, running!", ""]),)


@case("open_clip")
def images_are_prepared():
    import numpy as np
    from PIL import Image

    pixels = np.random.RandomState(0).randint(0, 256, (40, 30, 3)).astype("uint8")
    prepare = open_clip.image_transform(32, is_train=False)
    return (lambda: prepare(Image.fromarray(pixels)),)
