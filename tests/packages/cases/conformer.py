from conformer import Conformer, ConformerBlock, ConformerConvModule
from models import array, filled, several

several(
    "conformer",
    block=lambda: (
        filled(ConformerBlock(dim=16, dim_head=8, heads=2, conv_kernel_size=7)).eval(),
        array(2, 9, 16),
    ),
    convolution=lambda: (
        filled(ConformerConvModule(dim=16, causal=True, kernel_size=5)).eval(),
        array(2, 9, 16),
    ),
    whole=lambda: (
        filled(Conformer(dim=16, depth=2, dim_head=8, heads=2, conv_kernel_size=7)).eval(),
        array(2, 9, 16),
    ),
)
