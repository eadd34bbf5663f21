import numpy as np
import pandas as pd
import pytorch_forecasting
import torch
from models import filled, several


def series():
    places = np.arange(40)
    noise = np.random.RandomState(0).standard_normal((2, 40))
    frames = [
        pd.DataFrame(
            {"place": places, "group": g, "value": np.sin(places / 4 + i) + 0.1 * noise[i]}
        )
        for i, g in enumerate("ab")
    ]
    return pd.concat(frames, ignore_index=True)


def forecast(kind, **options):
    """Predictions of a model with fixed weights, their loss and its gradients, in float32."""

    def call():
        torch.set_default_dtype(torch.float32)
        try:
            data = pytorch_forecasting.TimeSeriesDataSet(
                series(), time_idx="place", target="value", group_ids=["group"], max_encoder_length=12,
                max_prediction_length=4, static_categoricals=["group"], time_varying_unknown_reals=["value"],
            )  # fmt: skip
            x, y = next(iter(data.to_dataloader(train=False, batch_size=8, num_workers=0)))
            model = getattr(pytorch_forecasting, kind).from_dataset(data, **options)
            filled(model).float().eval()
            predicted = model(x)["prediction"]
            loss = model.loss(predicted, y)
            loss.backward()
        finally:
            torch.set_default_dtype(torch.float64)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return predicted.detach(), loss.detach(), gradients

    return lambda: (call,)


several(
    "pytorch_forecasting",
    temporal_fusion_transformer=forecast(
        "TemporalFusionTransformer", hidden_size=8, attention_head_size=2, hidden_continuous_size=4,
        dropout=0.0,
    ),
    recurrent=forecast("RecurrentNetwork", hidden_size=8, rnn_layers=1),
    deep_ar=forecast("DeepAR", hidden_size=8, rnn_layers=1),
)  # fmt: skip
