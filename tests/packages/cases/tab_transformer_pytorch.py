import torch
from models import array, case, filled, integers
from tab_transformer_pytorch import FTTransformer, TabTransformer

CATEGORIES = integers(3, 4, 2)


class Table(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = filled(model).eval()

    def forward(self, numbers):
        return self.model(CATEGORIES, numbers)


SIZES = {
    "categories": (3, 4),
    "num_continuous": 5,
    "dim": 16,
    "depth": 2,
    "heads": 2,
    "dim_head": 8,
}


@case("tab_transformer_pytorch")
def tab():
    return Table(TabTransformer(dim_out=2, mlp_act=torch.nn.ReLU(), **SIZES)), array(4, 5)


@case("tab_transformer_pytorch")
def features():
    return Table(FTTransformer(dim_out=2, **SIZES)), array(4, 5)
