"""Acquisition functions of Gaussian processes, and the search for their maxima."""

import botorch
import torch
from botorch import acquisition as a
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from models import array, case, several


def model():
    x = array(8, 2, low=0.0)
    y = torch.sin(3 * x[:, :1]) + x[:, 1:] ** 2
    return SingleTaskGP(x, y, input_transform=Normalize(2), outcome_transform=Standardize(1))


def acquired(make, q=1):
    return lambda: (lambda x: make(model().eval())(x.abs()), array(3, q, 2, seed=4))


several(
    "botorch",
    expected_improvement=acquired(lambda m: a.ExpectedImprovement(m, best_f=0.5)),
    log_expected_improvement=acquired(lambda m: a.LogExpectedImprovement(m, best_f=0.5)),
    probability_of_improvement=acquired(lambda m: a.ProbabilityOfImprovement(m, best_f=0.5)),
    upper_confidence_bound=acquired(lambda m: a.UpperConfidenceBound(m, beta=2.0)),
    posterior_mean=acquired(lambda m: a.PosteriorMean(m)),
    posterior=lambda: (
        lambda x: (
            model().eval().posterior(x.abs()).mean,
            model().eval().posterior(x.abs()).variance,
        ),
        array(4, 2),
    ),
)


@case("botorch")
def fitted():
    """Hyperparameters that L-BFGS-B finds."""

    def call(_):
        found = model()
        mll = ExactMarginalLogLikelihood(found.likelihood, found)
        botorch.fit_gpytorch_mll(mll)
        found.train()
        # The search ends within its tolerance: the value agrees, its arguments only roughly.
        return mll(found(*found.train_inputs), found.train_targets).detach().round(decimals=4)

    return call, array(1)


@case("botorch")
def maximum():
    """The maximum of an acquisition function from given starting points."""

    def call(starts):
        function = a.UpperConfidenceBound(model().eval(), beta=2.0)
        _, value = optimize_acqf(
            function,
            bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
            q=1,
            num_restarts=2,
            raw_samples=None,
            batch_initial_conditions=starts.detach().clamp(0, 1),
        )
        return value.detach().round(decimals=5)

    return call, array(2, 1, 2, low=0.1)


@case("botorch")
def sobol():
    """Points without scrambling: a quasi-random design."""
    bounds = torch.tensor([[0.0, -1.0], [1.0, 2.0]])
    return lambda _: draw_sobol_samples(bounds, n=4, q=2, seed=None).shape[0], bounds
