import os
import tempfile

import torch
from ignite import metrics as m
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import (
    BasicTimeProfiler,
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    HandlersTimeProfiler,
    LinearCyclicalScheduler,
    PiecewiseLinear,
    create_lr_scheduler_with_warmup,
)
from models import array, case, filled, integers, several


def network():
    return filled(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    )


def batches(x):
    y = x.detach()[:, :3].argmax(1)
    return list(zip(x.detach().split(4), y.split(4), strict=True))


def measured(make, *parts):
    """A metric of two batches."""

    def call():
        metric = make()
        for part in parts:
            metric.update(part)
        return metric.compute()

    return lambda: (call,)


def probabilities(seed):
    return array(8, 3, seed=seed).softmax(1), integers(3, 8, seed=seed)


def numbers(seed):
    return array(8, seed=seed), array(8, seed=seed + 10)


CLASSES, NUMBERS = (probabilities(0), probabilities(1)), (numbers(0), numbers(1))
IMAGES = (array(2, 3, 16, 16, low=0.0), array(2, 3, 16, 16, seed=1, low=0.0))
several(
    "ignite",
    accuracy=measured(m.Accuracy, *CLASSES),
    precision=measured(lambda: m.Precision(average=False), *CLASSES),
    recall=measured(lambda: m.Recall(average=True), *CLASSES),
    f_beta=measured(lambda: m.Fbeta(1.0), *CLASSES),
    confusion=measured(lambda: m.ConfusionMatrix(3), *CLASSES),
    iou=measured(lambda: m.mIoU(m.ConfusionMatrix(3)), *CLASSES),
    top_k=measured(lambda: m.TopKCategoricalAccuracy(2), *CLASSES),
    loss=measured(lambda: m.Loss(torch.nn.NLLLoss()), *CLASSES),
    squared_error=measured(m.MeanSquaredError, *NUMBERS),
    absolute_error=measured(m.MeanAbsoluteError, *NUMBERS),
    r2=measured(m.regression.R2Score, *NUMBERS),
    median_error=measured(m.regression.MedianAbsoluteError, *NUMBERS),
    ssim=measured(lambda: m.SSIM(data_range=1.0), IMAGES),
    psnr=measured(lambda: m.PSNR(data_range=1.0), IMAGES),
    bleu=measured(
        lambda: m.Bleu(ngram=2),
        ([["the", "cat", "sat", "on", "it"]], [[["the", "cat", "sat", "on", "the", "mat"]]]),
    ),
    rouge=measured(
        lambda: m.RougeL(),
        ([["the", "cat", "sat", "on", "it"]], [[["the", "cat", "sat", "on", "the", "mat"]]]),
    ),
)


def loaded_by_workers(x):
    y = x.detach()[:, :3].argmax(1)
    data = torch.utils.data.TensorDataset(x.detach(), y)
    return torch.utils.data.DataLoader(data, 4, num_workers=2, persistent_workers=True)


def trained(x, prepare=lambda *_: None, epochs=3, batches=batches):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-3)
    run = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
    losses, rates = [], []

    @run.on(Events.ITERATION_COMPLETED)
    def keep(engine):
        losses.append(engine.state.output)
        rates.append(optimizer.param_groups[0]["lr"])

    more = prepare(run, model, optimizer)
    run.run(batches(x), max_epochs=epochs)
    return losses, rates, [p.detach() for p in model.parameters()], more


def timed(run, model, optimizer):
    for profiler in (BasicTimeProfiler(), HandlersTimeProfiler()):
        profiler.attach(run)


def with_handler(event, make):
    def call(x):
        def prepare(run, model, optimizer):
            run.add_event_handler(event, make(optimizer))

        return trained(x, prepare)[:3]

    return lambda: (call, array(12, 4))


several(
    "ignite",
    trained=lambda: (lambda x: trained(x)[:3], array(12, 4)),
    loaded_by_workers=lambda: (
        lambda x: trained(x, timed, batches=loaded_by_workers)[:3],
        array(12, 4),
    ),
    cosine_rates=with_handler(
        Events.ITERATION_STARTED, lambda o: CosineAnnealingScheduler(o, "lr", 0.02, 0.001, 6)
    ),
    cyclic_rates=with_handler(
        Events.ITERATION_STARTED, lambda o: LinearCyclicalScheduler(o, "lr", 0.02, 0.001, 4)
    ),
    piecewise_rates=with_handler(
        Events.ITERATION_STARTED,
        lambda o: PiecewiseLinear(o, "lr", milestones_values=[(0, 0.02), (5, 0.001)]),
    ),
    warmed_rates=with_handler(
        Events.ITERATION_STARTED,
        lambda o: create_lr_scheduler_with_warmup(
            torch.optim.lr_scheduler.ExponentialLR(o, 0.8), 0.001, 3
        ),
    ),
)


@case("ignite")
def averaged_weights():
    def call(x):
        kept = []

        def prepare(run, model, optimizer):
            handler = EMAHandler(model, momentum=0.1)
            handler.attach(run)
            kept.append(handler.ema_model)

        trained(x, prepare)
        return [p.detach() for p in kept[0].parameters()]

    return call, array(12, 4)


@case("ignite")
def evaluated_and_stopped():
    def call(x):
        found = []

        def prepare(run, model, optimizer):
            evaluator = create_supervised_evaluator(
                model, {"accuracy": m.Accuracy(), "loss": m.Loss(torch.nn.CrossEntropyLoss())}
            )
            stop = EarlyStopping(1, lambda e: -e.state.metrics["loss"], run, min_delta=0.05)
            evaluator.add_event_handler(Events.COMPLETED, stop)

            @run.on(Events.EPOCH_COMPLETED)
            def evaluate(engine):
                evaluator.run(batches(x))
                found.append([evaluator.state.metrics[k] for k in ("accuracy", "loss")])

        trained(x, prepare, epochs=8)
        return found

    return call, array(12, 4)


@case("ignite")
def a_checkpoint_is_loaded():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:

            def prepare(run, model, optimizer):
                parts = {"model": model, "optimizer": optimizer, "run": run}
                saver = Checkpoint(parts, DiskSaver(folder, create_dir=False), n_saved=None)
                run.add_event_handler(Events.EPOCH_COMPLETED, saver)

            whole = trained(x, prepare)
            (first,) = [f for f in os.listdir(folder) if f.endswith("_3.pt")]
            file = os.path.join(folder, first)

            def resume(run, model, optimizer):
                parts = {"model": model, "optimizer": optimizer, "run": run}
                Checkpoint.load_objects(parts, file)

            again = trained(x, resume)
        assert all(torch.equal(p, q) for p, q in zip(whole[2], again[2], strict=True))
        return again[0], again[2]

    return call, array(12, 4)


@case("ignite")
def events_of_an_engine():
    def call():
        calls = []
        engine = Engine(lambda engine, batch: batch)
        for number, event in enumerate(
            (
                Events.STARTED,
                Events.EPOCH_STARTED,
                Events.ITERATION_STARTED(every=2),
                Events.EPOCH_COMPLETED,
                Events.ITERATION_COMPLETED(once=3),
                Events.COMPLETED,
            )
        ):
            engine.add_event_handler(event, lambda e, n=number: calls.append(n))
        engine.run([1, 2, 3], max_epochs=2)
        return calls

    return (call,)
