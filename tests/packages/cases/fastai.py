import functools
import pathlib
import tempfile

import fastai.callback.all as callbacks
import fastai.losses as losses
import fastai.optimizer as optimizers
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.metrics import mae, rmse
from fastai.tabular.model import TabularModel
from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
from fastai.text.models.core import get_language_model
from fastai.vision.models.unet import DynamicUnet
from fastai.vision.models.xresnet import xresnet18
from models import array, case, filled, integers, several


def in_float32(function):
    """With float32 as the default dtype, which the means of losses have."""

    @functools.wraps(function)
    def call(*args):
        torch.set_default_dtype(torch.float32)
        try:
            return function(*args)
        finally:
            torch.set_default_dtype(torch.float64)

    return call


def learner(workers=0, **options):
    x = array(32, 4).float()
    pairs = list(zip(x, x[:, :1] ** 2, strict=True))
    loaders = DataLoaders(*(DataLoader(pairs, bs=8, num_workers=workers) for _ in range(2)))
    net = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)]
    model = filled(torch.nn.Sequential(*net)).float()
    return Learner(loaders, model, loss_func=torch.nn.MSELoss(), **options)


def results(learn):
    with learn.no_bar():
        predicted, _ = learn.get_preds()
        validated = list(learn.validate())
    weights = [p.detach() for p in learn.model.parameters()]
    return weights, [list(row) for row in learn.recorder.values], predicted, validated


def fitted(method="fit", **options):
    @in_float32
    def call():
        learn = learner(**options)
        with learn.no_bar(), learn.no_logging():
            getattr(learn, method)(2, 0.05)
        return results(learn)

    return lambda: (call,)


several(
    "fastai",
    adam=fitted(),
    loaded_by_workers=fitted(workers=2),
    sgd=fitted(opt_func=optimizers.SGD),
    rmsprop=fitted(opt_func=optimizers.RMSProp),
    lamb=fitted(opt_func=optimizers.Lamb),
    larc=fitted(opt_func=optimizers.Larc),
    radam=fitted(opt_func=optimizers.RAdam),
    qhadam=fitted(opt_func=optimizers.QHAdam),
    ranger=fitted(opt_func=optimizers.ranger),
    one_cycle=fitted("fit_one_cycle", metrics=[rmse, mae]),
    flat_then_cosine=fitted("fit_flat_cos"),
    clipped=fitted(cbs=[callbacks.GradientClip(0.1)]),
)


@case("fastai")
def learning_rates():
    @in_float32
    def call():
        with tempfile.TemporaryDirectory() as folder:
            learn = learner(path=pathlib.Path(folder))
            with learn.no_bar(), learn.no_logging():
                found = learn.lr_find(num_it=20, show_plot=False)
        return float(found.valley), list(learn.recorder.losses)

    return (call,)


@case("fastai")
def a_saved_learner_is_loaded():
    @in_float32
    def call():
        with tempfile.TemporaryDirectory() as folder:
            keep = callbacks.SaveModelCallback(monitor="valid_loss")
            learn = learner(path=pathlib.Path(folder), cbs=[keep])
            with learn.no_bar(), learn.no_logging():
                learn.fit(2, 0.05)
            learn.remove_cb(keep)
            learn.save("learner")
            again = learner(path=pathlib.Path(folder)).load("learner")
        return [p.detach() for p in again.model.parameters()]

    return (call,)


@case("fastai")
def tabular_model():
    class WithCategories(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = filled(TabularModel([(4, 3), (5, 3)], 3, 2, [8, 6]))
            self.categories = integers(4, 6, 2)

        def forward(self, x):
            return self.model(self.categories, x)

    return (WithCategories(), array(6, 3))


@case("fastai")
def language_model():
    config = {**awd_lstm_lm_config, "emb_sz": 8, "n_hid": 10, "n_layers": 2}
    model = filled(get_language_model(AWD_LSTM, 20, config=config)).eval()
    return (lambda x: model(x)[0], integers(20, 3, 7))


@case("fastai")
def unet():
    body = torch.nn.Sequential(*list(xresnet18().children())[:-4])
    return (filled(DynamicUnet(body.to(torch.float64), 3, (32, 32))).eval(), array(1, 3, 32, 32))


def lossy(name):
    return lambda: (lambda x: getattr(losses, name)()(x, integers(4, 5)), array(5, 4))


LOSSES = ("CrossEntropyLossFlat", "FocalLossFlat", "LabelSmoothingCrossEntropyFlat")
several(
    "fastai",
    xresnet=lambda: (filled(xresnet18(n_out=4)).eval(), array(1, 3, 32, 32)),
    **{name: lossy(name) for name in LOSSES},
)
