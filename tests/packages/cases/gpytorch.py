"""Gaussian processes: kernels, exact and variational models, with one-dimensional and batched targets."""

import gpytorch
import torch
from gpytorch import kernels as k
from models import array, case, filled, several


def kernel(make, size=3):
    """A kernel's matrix between two sets of points."""

    def call(x, y):
        function = make(size).double()
        return function(x, y).to_dense(), function(x, diag=True)

    return lambda: (call, array(5, size), array(4, size, seed=1))


several(
    "gpytorch",
    rbf=kernel(lambda n: k.RBFKernel(ard_num_dims=n)),
    matern_half=kernel(lambda n: k.MaternKernel(nu=0.5)),
    matern_three_halves=kernel(lambda n: k.MaternKernel(nu=1.5, ard_num_dims=n)),
    matern_five_halves=kernel(lambda n: k.MaternKernel(nu=2.5)),
    rational_quadratic=kernel(lambda n: k.RQKernel()),
    periodic=kernel(lambda n: k.PeriodicKernel()),
    cosine=kernel(lambda n: k.CosineKernel()),
    linear=kernel(lambda n: k.LinearKernel()),
    polynomial=kernel(lambda n: k.PolynomialKernel(power=2)),
    spectral_mixture=kernel(lambda n: k.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=n)),
    piecewise=kernel(lambda n: k.PiecewisePolynomialKernel(q=2)),
    arc=kernel(lambda n: k.ArcKernel(k.MaternKernel(nu=2.5), ard_num_dims=n)),
    scaled_sum=kernel(lambda n: k.ScaleKernel(k.RBFKernel() + k.LinearKernel())),
    scaled_product=kernel(lambda n: k.ScaleKernel(k.RBFKernel() * k.PeriodicKernel())),
    rbf_with_gradients=lambda: (
        lambda x: k.RBFKernelGrad()(x).to_dense(),
        array(3, 2),
    ),
    multitask=lambda: (
        lambda x: filled(k.MultitaskKernel(k.RBFKernel(), num_tasks=2))(x).to_dense(),
        array(4, 2),
    ),
)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, covariance):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.covariance = covariance

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


def likelihood_of_data(covariance, batch=()):
    """The marginal log likelihood with the gradients of all hyperparameters, and predictions elsewhere."""

    def call(x, y, points):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size(batch))
        model = Exact(x, y, likelihood, covariance()).double()
        likelihood.double()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        value = mll(model(x), y)
        gradients = torch.autograd.grad(value.sum(), list(model.parameters()), retain_graph=True)
        model.eval()
        with torch.no_grad():
            found = likelihood(model(points))
        return value, list(gradients), found.mean, found.variance, found.covariance_matrix

    return lambda: (
        call,
        array(*batch, 8, 2),
        array(*batch, 8, seed=1),
        array(*batch, 3, 2, seed=2),
    )


several(
    "gpytorch",
    exact_rbf=likelihood_of_data(lambda: k.ScaleKernel(k.RBFKernel())),
    exact_matern=likelihood_of_data(lambda: k.ScaleKernel(k.MaternKernel(ard_num_dims=2))),
    exact_sum=likelihood_of_data(lambda: k.ScaleKernel(k.PeriodicKernel()) + k.LinearKernel()),
    exact_batch=likelihood_of_data(
        lambda: k.ScaleKernel(
            k.RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])
        ),
        (2,),
    ),
)


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points, strategy, distribution):
        q = distribution(points.size(-2))
        super().__init__(strategy(self, points, q, learn_inducing_locations=True))
        self.mean = gpytorch.means.LinearMean(points.size(-1))
        self.covariance = k.ScaleKernel(k.MaternKernel(nu=2.5))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


def evidence(strategy, distribution, likelihood, loss=gpytorch.mlls.VariationalELBO):
    """The lower bound of the evidence with the gradients of all parameters."""

    def call(x, y):
        model = Variational(array(4, 2, seed=5), strategy, distribution).double()
        with torch.no_grad():
            for number, p in enumerate(model.parameters()):
                p.copy_(p.detach() * 0 + 0.3 * array(*p.shape, seed=number))
        model.variational_strategy.variational_params_initialized.fill_(1)
        noise = likelihood().double()
        value = loss(noise, model, num_data=8)(model(x), y)
        leaves = [p for p in [*model.parameters(), *noise.parameters()] if p.requires_grad]
        return value, list(torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=True))

    return call


V = gpytorch.variational
WHITENED, FULL = V.VariationalStrategy, V.CholeskyVariationalDistribution
GAUSSIAN = gpytorch.likelihoods.GaussianLikelihood


def bound(*choices):
    return lambda: (evidence(*choices), array(8, 2), array(8, seed=1))


several(
    "gpytorch",
    variational=bound(WHITENED, FULL, GAUSSIAN),
    unwhitened=bound(V.UnwhitenedVariationalStrategy, FULL, GAUSSIAN),
    mean_field=bound(
        WHITENED, V.MeanFieldVariationalDistribution, gpytorch.likelihoods.StudentTLikelihood
    ),
    classified=lambda: (
        lambda x: evidence(WHITENED, FULL, gpytorch.likelihoods.BernoulliLikelihood)(
            x, (x[:, 0] > 0).double()
        ),
        array(8, 2),
    ),
    predictive=bound(WHITENED, FULL, GAUSSIAN, gpytorch.mlls.PredictiveLogLikelihood),
)


@case("gpytorch")
def fitted():
    """Hyperparameters after 20 steps of Adam."""

    def call(x, y):
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Exact(x, y, likelihood, k.ScaleKernel(k.RBFKernel())).double()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            loss = -mll(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.detach(), [p.detach() for p in model.parameters()]

    return lambda x, y: call(x.detach(), y.detach()), array(10, 1), array(10, seed=1)
