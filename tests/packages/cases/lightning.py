import logging
import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import PyTorchProfiler
from models import array, case, filled, several

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(L.LightningModule):
    def __init__(self, lr=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.body = filled(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        )
        self.losses = []

    def loss(self, batch):
        x, y = batch
        return (self.body(x) - y).square().mean()

    def training_step(self, batch, number):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", self.loss(batch))

    def predict_step(self, batch, number):
        return self.body(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, eps=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class Manual(Regression):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, number):
        optimizer = self.optimizers()
        loss = self.loss(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        optimizer.step()
        self.losses.append(loss.detach())


def batches(x, **options):
    data = torch.utils.data.TensorDataset(x.detach(), x.detach().sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=4, **options)


def trainer(folder, **options):
    options = {"max_epochs": 3, "logger": False, "enable_checkpointing": False, **options}
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        precision="64-true",
        **options,
    )


def fitted(make=Regression, loading=None, **options):
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            model = make()
            run = trainer(folder, **options)
            run.fit(model, *(batches(part, **(loading or {})) for part in (x, x.flip(0))))
            found = [run.callback_metrics[name] for name in sorted(run.callback_metrics)]
            return model.losses, found, [p.detach() for p in model.parameters()]

    return lambda: (call, array(12, 4))


several(
    "lightning",
    fitted=fitted(),
    clipped=fitted(gradient_clip_val=0.1),
    clipped_by_value=fitted(gradient_clip_val=0.01, gradient_clip_algorithm="value"),
    accumulated=fitted(accumulate_grad_batches=2),
    anomalies=fitted(detect_anomaly=True),
    manual=fitted(Manual),
    sanity=fitted(num_sanity_val_steps=1, limit_train_batches=2),
    averaged=fitted(callbacks=[StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=1)]),
    scheduled=fitted(callbacks=[GradientAccumulationScheduler({0: 1, 1: 3})]),
    loaded_by_workers=fitted(loading={"num_workers": 2, "persistent_workers": True}),
    profiled_with_workers=fitted(
        loading={"num_workers": 1}, profiler=PyTorchProfiler(filename=None, with_stack=True)
    ),
    stopped=fitted(max_epochs=9, callbacks=[EarlyStopping("val_loss", patience=1, min_delta=0.05)]),
)


@case("lightning")
def a_checkpoint_is_resumed():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            saver = ModelCheckpoint(folder, save_top_k=-1, every_n_epochs=1)
            whole = Regression()
            trainer(folder, callbacks=[saver], enable_checkpointing=True).fit(whole, batches(x))
            (first,) = [f for f in os.listdir(folder) if f.startswith("epoch=0")]
            again = Regression()
            trainer(folder).fit(again, batches(x), ckpt_path=os.path.join(folder, first))
        for p, q in zip(whole.parameters(), again.parameters(), strict=True):
            assert torch.equal(p, q), (p - q).abs().max()
        return again.losses, [p.detach() for p in again.parameters()]

    return call, array(12, 4)


@case("lightning")
def the_best_checkpoint_is_loaded():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            saver = ModelCheckpoint(folder, monitor="val_loss", save_top_k=1)
            run = trainer(folder, callbacks=[saver], enable_checkpointing=True)
            run.fit(Regression(0.05), batches(x), batches(x))
            best = Regression.load_from_checkpoint(saver.best_model_path)
        assert best.hparams.lr == 0.05
        return saver.best_model_score, [p.detach() for p in best.parameters()]

    return call, array(12, 4)


@case("lightning")
def logs():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            logger = CSVLogger(folder)
            run = trainer(
                folder,
                logger=logger,
                log_every_n_steps=1,
                callbacks=[LearningRateMonitor()],
            )
            run.fit(Regression(), batches(x), batches(x))
            with open(os.path.join(logger.log_dir, "metrics.csv")) as file:
                rows = [line.strip().split(",") for line in file]
        return [float(value) for row in rows[1:] for value in row if value]

    return call, array(12, 4)


@case("lightning")
def validation_and_predictions():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            model, run = Regression(), trainer(folder)
            return run.validate(model, batches(x), verbose=False), run.predict(model, batches(x))

    return call, array(12, 4)


@case("lightning")
def callbacks_are_called_in_order():
    calls = []

    class Recorder(Callback):
        pass

    for name in (
        "on_fit_start", "on_train_start", "on_train_epoch_start", "on_before_zero_grad", "on_before_backward",
        "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_end", "on_train_end",
    ):  # fmt: skip
        setattr(Recorder, name, lambda self, *_, name=name: calls.append(name))

    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            run = trainer(folder, callbacks=[Recorder()], max_epochs=1)
            run.fit(Regression(), batches(x), batches(x))
        return torch.tensor([sum(map(ord, name)) for name in calls])

    return call, array(12, 4)


@case("lightning")
def fabric():
    def call(x):
        fabric = L.Fabric(accelerator="cpu", devices=1, precision="64-true")
        model = Regression().body
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model, optimizer = fabric.setup(model, optimizer)
        losses = []
        for inputs, targets in fabric.setup_dataloaders(batches(x)):
            loss = (model(inputs) - targets).square().mean()
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in model.parameters()]

    return call, array(12, 4)
