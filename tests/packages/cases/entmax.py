import entmax
from models import array, integers, several


def mapped(function, **options):
    return lambda: (lambda x: function(x, dim=1, **options), array(4, 7))


several(
    "entmax",
    sparsemax=mapped(entmax.sparsemax),
    entmax15=mapped(entmax.entmax15),
    sparsemax_of_the_largest=mapped(entmax.sparsemax, k=4),
    entmax_bisect=mapped(entmax.entmax_bisect, alpha=1.3),
    sparsemax_bisect=mapped(entmax.sparsemax_bisect),
    sparsemax_loss=lambda: (lambda x: entmax.sparsemax_loss(x, integers(7, 4)), array(4, 7)),
    entmax15_loss=lambda: (lambda x: entmax.entmax15_loss(x, integers(7, 4)), array(4, 7)),
    entmax_bisect_loss=lambda: (
        lambda x: entmax.entmax_bisect_loss(x, integers(7, 4), alpha=1.3),
        array(4, 7),
    ),
)
