from models import array, filled, several
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.cross_vit import CrossViT
from vit_pytorch.cvt import CvT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.distill import DistillableViT
from vit_pytorch.levit import LeViT
from vit_pytorch.max_vit import MaxViT
from vit_pytorch.mobile_vit import MobileViT
from vit_pytorch.nest import NesT
from vit_pytorch.parallel_vit import ViT as ParallelViT
from vit_pytorch.pit import PiT
from vit_pytorch.rvt import RvT
from vit_pytorch.scalable_vit import ScalableViT
from vit_pytorch.sep_vit import SepViT
from vit_pytorch.simple_vit_with_register_tokens import SimpleViT as RegisterViT
from vit_pytorch.t2t import T2TViT
from vit_pytorch.twins_svt import TwinsSVT
from vit_pytorch.vit_1d import ViT as ViT1d
from vit_pytorch.vit_3d import ViT as ViT3d
from vit_pytorch.vit_for_small_dataset import ViT as SmallViT
from vit_pytorch.xcit import XCiT

SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "dim": 32,
    "depth": 2,
    "heads": 4,
    "mlp_dim": 64,
}


def image(model, size=32):
    return lambda: (filled(model()).eval(), array(2, 3, size, size))


several(
    "vit_pytorch",
    vit=image(lambda: ViT(**SMALL)),
    vit_mean=image(lambda: ViT(**SMALL, pool="mean")),
    simple_vit=image(lambda: SimpleViT(**SMALL)),
    register_vit=image(lambda: RegisterViT(**SMALL)),
    deep_vit=image(lambda: DeepViT(**SMALL)),
    parallel_vit=image(lambda: ParallelViT(**SMALL, num_parallel_branches=2)),
    distillable=image(lambda: DistillableViT(**SMALL)),
    small_dataset=image(lambda: SmallViT(**SMALL)),
    rvt=image(lambda: RvT(**SMALL)),
    cait=image(lambda: CaiT(**SMALL, cls_depth=1)),
    cct=image(
        lambda: CCT(
            img_size=32,
            embedding_dim=32,
            n_conv_layers=1,
            num_layers=2,
            num_heads=2,
            mlp_ratio=2.0,
            num_classes=10,
        )
    ),
    cross_vit=image(
        lambda: CrossViT(
            image_size=32,
            num_classes=10,
            depth=1,
            sm_dim=16,
            sm_patch_size=8,
            sm_enc_depth=1,
            sm_enc_heads=2,
            sm_enc_mlp_dim=32,
            lg_dim=32,
            lg_patch_size=16,
            lg_enc_depth=1,
            lg_enc_heads=2,
            lg_enc_mlp_dim=32,
            cross_attn_depth=1,
            cross_attn_heads=2,
        )
    ),
    cvt=image(
        lambda: CvT(
            num_classes=10,
            s1_emb_dim=16,
            s1_depth=1,
            s2_emb_dim=16,
            s2_heads=2,
            s2_depth=1,
            s3_emb_dim=16,
            s3_heads=2,
            s3_depth=1,
        ),
        64,
    ),
    levit=image(
        lambda: LeViT(
            image_size=64, num_classes=10, stages=2, dim=(16, 32), depth=1, heads=(2, 4), mlp_mult=2
        ),
        64,
    ),
    max_vit=image(
        lambda: MaxViT(
            num_classes=10, dim_conv_stem=8, dim=8, dim_head=4, depth=(1, 1), window_size=4
        ),
        64,
    ),
    mobile_vit=image(
        lambda: MobileViT(
            image_size=(64, 64),
            dims=[16, 20, 24],
            channels=[8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 32],
            num_classes=10,
        ),
        64,
    ),
    nest=image(
        lambda: NesT(
            image_size=32,
            patch_size=4,
            dim=16,
            heads=2,
            num_hierarchies=2,
            block_repeats=(1, 1),
            num_classes=10,
        )
    ),
    pit=image(lambda: PiT(**(SMALL | {"depth": (1, 1)}))),
    scalable_vit=image(
        lambda: ScalableViT(
            num_classes=10,
            dim=16,
            heads=(2, 2),
            depth=(1, 1),
            ssa_dim_key=(8, 8),
            reduction_factor=(2, 2),
            window_size=(4, None),
        ),
    ),
    sep_vit=image(
        lambda: SepViT(
            num_classes=10, dim=16, dim_head=8, heads=(1, 2), depth=(1, 1), window_size=7
        ),
        56,
    ),
    t2t=image(
        lambda: T2TViT(
            dim=32,
            image_size=32,
            depth=1,
            heads=2,
            mlp_dim=32,
            num_classes=10,
            t2t_layers=((7, 4), (3, 2)),
        )
    ),
    twins=image(
        lambda: TwinsSVT(
            num_classes=10,
            s1_emb_dim=8,
            s1_patch_size=2,
            s1_local_patch_size=7,
            s1_global_k=7,
            s1_depth=1,
            s2_emb_dim=16,
            s2_patch_size=2,
            s2_local_patch_size=7,
            s2_depth=1,
            s3_emb_dim=16,
            s3_patch_size=2,
            s3_local_patch_size=7,
            s3_depth=1,
            s4_emb_dim=16,
            s4_patch_size=1,
            s4_local_patch_size=7,
            s4_depth=1,
        ),
        56,
    ),
    xcit=image(lambda: XCiT(**SMALL, cls_depth=1)),
    vit_1d=lambda: (
        filled(
            ViT1d(seq_len=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=64)
        ).eval(),
        array(2, 3, 32),
    ),
    vit_3d=lambda: (
        filled(
            ViT3d(
                image_size=16,
                frames=4,
                image_patch_size=8,
                frame_patch_size=2,
                num_classes=10,
                dim=32,
                depth=2,
                heads=4,
                mlp_dim=64,
            )
        ).eval(),
        array(2, 3, 4, 16, 16),
    ),
)
