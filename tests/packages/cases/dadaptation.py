import dadaptation as d
from models import several, trained

several(
    "dadaptation",
    adam=trained(d.DAdaptAdam),
    adan=trained(d.DAdaptAdan),
    sgd=trained(d.DAdaptSGD, momentum=0.9),
    lion=trained(d.DAdaptLion),
    adagrad=trained(d.DAdaptAdaGrad),
)
