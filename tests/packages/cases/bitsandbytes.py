import bitsandbytes as bnb
import torch
from bitsandbytes import functional
from models import array, filled, several


def blockwise(dtype):
    def made():
        def call(x):
            codes, state = functional.quantize_blockwise(x.detach().to(dtype), blocksize=256)
            return codes.to(torch.float64), functional.dequantize_blockwise(codes, state)

        return (call, array(33, 40))

    return made


def four_bits(kind):
    def made():
        def call(x):
            packed, state = functional.quantize_4bit(x.detach().float(), quant_type=kind)
            return packed.to(torch.float64), functional.dequantize_4bit(packed, state)

        return (call, array(64, 64))

    return made


def rows_of_int8(threshold):
    def made():
        def call(x):
            codes, scales, columns = functional.int8_vectorwise_quant(
                x.detach().half(), threshold=threshold
            )
            found = (codes.to(torch.float64), scales)
            return found if columns is None else (*found, columns.to(torch.float64))

        return (call, array(6, 32))

    return made


def linear(make):
    def made():
        weights = filled(torch.nn.Linear(64, 8)).float().state_dict()

        def call(x):
            layer = make().float()
            layer.load_state_dict(weights)
            return layer.to("cpu")(x.float())

        return (call, array(5, 64))

    return made


several(
    "bitsandbytes",
    blockwise=blockwise(torch.float32),
    blockwise_bfloat16=blockwise(torch.bfloat16),
    nf4=four_bits("nf4"),
    fp4=four_bits("fp4"),
    int8=rows_of_int8(0.0),
    int8_outliers=rows_of_int8(2.0),
    linear8=linear(lambda: bnb.nn.Linear8bitLt(64, 8, has_fp16_weights=False)),
    linear8_outliers=linear(
        lambda: bnb.nn.Linear8bitLt(64, 8, has_fp16_weights=False, threshold=2.0)
    ),
    linear4=linear(lambda: bnb.nn.Linear4bit(64, 8, quant_type="nf4")),
)
