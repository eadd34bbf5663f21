import rtdl_num_embeddings as embeddings
import rtdl_revisiting_models as models_
import torch
from models import array, filled, integers, several


class WithCategories(torch.nn.Module):
    """A model of numbers and of two categories for each row."""

    def __init__(self, model):
        super().__init__()
        self.model, self.categories = model, integers(3, 5, 2)

    def forward(self, x):
        return self.model(x, self.categories)


def transformer(**options):
    common = {"n_cont_features": 4, "cat_cardinalities": [3, 3], "d_out": 2}
    return WithCategories(filled(models_.FTTransformer(**common, **options)))


BINS = embeddings.compute_bins(array(50, 4), n_bins=5)
PLAIN = {"attention_dropout": 0.0, "ffn_dropout": 0.0, "residual_dropout": 0.0}
SMALL = {"n_blocks": 2, "d_block": 16, "attention_n_heads": 4, "ffn_d_hidden": None, "ffn_d_hidden_multiplier": 1.3}  # fmt: skip
several(
    "rtdl",
    mlp=lambda: (
        filled(models_.MLP(d_in=6, d_out=2, n_blocks=2, d_block=8, dropout=0.0)),
        array(5, 6),
    ),
    resnet=lambda: (
        filled(
            models_.ResNet(
                d_in=6, d_out=2, n_blocks=2, d_block=8, d_hidden=None, d_hidden_multiplier=2.0,
                dropout1=0.0, dropout2=0.0,
            )
        ),
        array(5, 6),
    ),
    transformer=lambda: (transformer(**SMALL, **PLAIN), array(5, 4)),
    default_transformer=lambda: (
        transformer(**models_.FTTransformer.get_default_kwargs(1)).eval(),
        array(5, 4),
    ),
    linear_embeddings=lambda: (filled(embeddings.LinearEmbeddings(4, 6)), array(5, 4)),
    linear_relu_embeddings=lambda: (filled(embeddings.LinearReLUEmbeddings(4, 6)), array(5, 4)),
    periodic=lambda: (filled(embeddings.PeriodicEmbeddings(4, 6, lite=True)), array(5, 4)),
    periodic_of_each_feature=lambda: (
        filled(embeddings.PeriodicEmbeddings(4, 6, lite=False, activation=False)),
        array(5, 4),
    ),
    piecewise_linear_a=lambda: (
        filled(embeddings.PiecewiseLinearEmbeddings(BINS, 6, activation=False, version="A")),
        array(5, 4),
    ),
    piecewise_linear_b=lambda: (
        filled(embeddings.PiecewiseLinearEmbeddings(BINS, 6, activation=True, version="B")),
        array(5, 4),
    ),
    piecewise_linear_encoding=lambda: (embeddings.PiecewiseLinearEncoding(BINS), array(5, 4)),
    bins_of_trees=lambda: (
        lambda x: embeddings.compute_bins(
            x.detach(), tree_kwargs={"min_samples_leaf": 5}, y=array(50, seed=1), regression=True,
            n_bins=4,
        ),
        array(50, 4),
    ),
)  # fmt: skip
