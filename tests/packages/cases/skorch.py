import os
import tempfile

import numpy as np
import torch
from models import case, filled, several
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    GradientNormClipping,
    LRScheduler,
)

X = np.random.RandomState(0).standard_normal((24, 4))
CLASSES = (X[:, 0] > 0).astype("int64")
NUMBERS = X.sum(1, keepdims=True)


class Network(torch.nn.Module):
    def __init__(self, outputs=2, hidden=8):
        super().__init__()
        layers = [torch.nn.Linear(4, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, outputs)]
        self.body = filled(torch.nn.Sequential(*layers))
        self.last = torch.nn.Softmax(-1) if outputs > 1 else torch.nn.Identity()

    def forward(self, x):
        return self.last(self.body(x))


def estimator(kind=NeuralNetClassifier, outputs=2, **options):
    options = {"max_epochs": 4, "lr": 0.1, "train_split": None, "batch_size": 8, **options}
    return kind(Network, module__outputs=outputs, verbose=0, **options)


def fitted(y=CLASSES, **options):
    def call():
        net = estimator(**options).fit(X, y)
        predicted = torch.tensor(net.predict(X))
        return (
            net.history[:, "train_loss"],
            predicted,
            [p.detach() for p in net.module_.parameters()],
        )

    return lambda: (call,)


several(
    "skorch",
    classifier=fitted(),
    regressor=fitted(NUMBERS, kind=NeuralNetRegressor, outputs=1),
    adam=fitted(optimizer=torch.optim.AdamW, optimizer__eps=1e-3),
    clipped=fitted(callbacks=[GradientNormClipping(0.1)]),
    scheduled=fitted(callbacks=[LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=2)]),
    stopped=fitted(
        max_epochs=20, callbacks=[EarlyStopping("train_loss", patience=1, threshold=0.05)]
    ),
    scored=fitted(callbacks=[EpochScoring("accuracy", on_train=True)]),
)


@case("skorch")
def grid_search():
    def call():
        search = GridSearchCV(estimator(), {"lr": [0.01, 0.3], "module__hidden": [4, 8]}, cv=3)
        search.fit(X, CLASSES)
        scores = cross_val_score(make_pipeline(StandardScaler(), estimator()), X, CLASSES, cv=3)
        return torch.tensor(search.cv_results_["mean_test_score"]), torch.tensor(scores)

    return (call,)


@case("skorch")
def a_saved_estimator_is_loaded():
    def call():
        with tempfile.TemporaryDirectory() as folder:
            net = estimator(callbacks=[Checkpoint(dirname=folder, monitor=None)]).fit(X, CLASSES)
            file = os.path.join(folder, "weights.pt")
            net.save_params(f_params=file)
            other = estimator().initialize()
            other.load_params(f_params=file)
            again = estimator().initialize()
            again.load_params(checkpoint=Checkpoint(dirname=folder))
        found = [torch.tensor(n.predict_proba(X)) for n in (net, other, again)]
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        return found[0]

    return (call,)


@case("skorch")
def partial_fits():
    def call():
        net = estimator(warm_start=True)
        for part in np.split(np.arange(24), 3):
            net.partial_fit(X[part], CLASSES[part])
        return net.history[:, "train_loss"]

    return (call,)
