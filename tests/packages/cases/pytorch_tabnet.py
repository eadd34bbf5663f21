import os
import tempfile

import numpy as np
import torch
from models import array, case, filled, several
from pytorch_tabnet import sparsemax
from pytorch_tabnet.multitask import TabNetMultiTaskClassifier
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier, TabNetRegressor
from pytorch_tabnet.tab_network import TabNet

X = np.random.RandomState(0).standard_normal((64, 6)).astype("float32")
CLASSES = (X[:, 0] > 0).astype("int64")
SMALL = {"n_d": 4, "n_a": 4, "n_steps": 2, "seed": 0, "verbose": 0, "device_name": "cpu"}
BATCHES = {"max_epochs": 1, "batch_size": 16, "virtual_batch_size": 8}


def network(**options):
    groups = torch.eye(6, dtype=torch.float64)
    sizes = {"n_d": 4, "n_a": 4, "n_steps": 3, "virtual_batch_size": 4}
    return filled(TabNet(6, 3, **sizes, group_attention_matrix=groups, **options))


several(
    "pytorch_tabnet",
    sparsemax=lambda: (sparsemax.Sparsemax(-1), array(4, 6)),
    entmax15=lambda: (sparsemax.Entmax15(-1), array(4, 6)),
    network=lambda: (network().train(), array(8, 6)),
    network_of_entmax=lambda: (network(mask_type="entmax").eval(), array(8, 6)),
)


def in_float32(function):
    """A case whose call runs with float32 as the default: the estimators convert their inputs to it."""

    def made():
        def call():
            torch.set_default_dtype(torch.float32)
            try:
                return function()
            finally:
                torch.set_default_dtype(torch.float64)

        return (call,)

    made.__name__ = function.__name__
    return case("pytorch_tabnet")(made)


def refilled(model):
    """The estimator with weights and statistics that do not depend on the random numbers of its training."""
    filled(model.network).float()
    for name, buffer in model.network.named_buffers():
        if "running" in name:
            buffer.fill_(0.5)
    return model


@in_float32
def classifier():
    model = TabNetClassifier(**SMALL)
    model.fit(X, CLASSES, eval_set=[(X, CLASSES)], **BATCHES)
    probabilities = refilled(model).predict_proba(X)
    explained, masks = model.explain(X)
    with tempfile.TemporaryDirectory() as folder:
        other = TabNetClassifier()
        other.load_model(model.save_model(os.path.join(folder, "model")))
    assert np.allclose(other.predict_proba(X), probabilities, atol=1e-6)  # of other batches
    return [torch.tensor(a) for a in (probabilities, explained, *masks.values())]


@in_float32
def regressor_with_categories():
    rows = X.copy()
    rows[:, 0] = np.arange(64) % 3
    model = TabNetRegressor(
        cat_idxs=[0], cat_dims=[3], cat_emb_dim=2, scheduler_fn=torch.optim.lr_scheduler.StepLR,
        scheduler_params={"step_size": 1, "gamma": 0.9}, **SMALL,
    )  # fmt: skip
    model.fit(rows, X[:, 1:3], **BATCHES)
    return torch.tensor(refilled(model).predict(rows))


@in_float32
def pretrained_and_multitask():
    pretrained = TabNetPretrainer(**SMALL)
    pretrained.fit(X, pretraining_ratio=0.5, **BATCHES)
    model = TabNetClassifier(**SMALL)
    model.fit(X, CLASSES, from_unsupervised=pretrained, **BATCHES)
    several_tasks = TabNetMultiTaskClassifier(**SMALL)
    several_tasks.fit(X, np.stack([CLASSES, 1 - CLASSES], 1), **BATCHES)
    found = refilled(several_tasks).predict_proba(X)
    return [torch.tensor(p) for p in (refilled(model).predict_proba(X), *found)]
