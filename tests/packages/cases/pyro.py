import pyro
import pyro.distributions as dist
import pyro.distributions.transforms as T
import torch
from models import array, case, integers, several
from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam


def log_prob(make, value):
    return lambda: (lambda p: make(p).log_prob(value), array(3, 4, low=0.2))


def transformed(make, size=4):
    def call(x):
        transform = make()
        y = transform(x)
        return y, transform.log_abs_det_jacobian(x, y)

    return lambda: (call, array(5, size))


POSITIVE = array(3, 4, seed=3, low=0.1).abs()
several(
    "pyro",
    zero_inflated_poisson=log_prob(
        lambda p: dist.ZeroInflatedPoisson(p * 3, gate=torch.tensor(0.3)),
        integers(4, 3, 4).double(),
    ),
    beta_binomial=log_prob(lambda p: dist.BetaBinomial(p, p + 1, 10), integers(9, 3, 4).double()),
    gamma_poisson=log_prob(lambda p: dist.GammaPoisson(p, p + 1), integers(9, 3, 4).double()),
    asymmetric_laplace=log_prob(lambda p: dist.AsymmetricLaplace(p, p + 1, p + 0.5), POSITIVE),
    inverse_gamma=log_prob(lambda p: dist.InverseGamma(p, p + 1), POSITIVE),
    truncated_polya=log_prob(lambda p: dist.VonMises(p, p * 2), POSITIVE),
    student=log_prob(lambda p: dist.StudentT(p + 2, p, p + 1), POSITIVE),
    masked=log_prob(lambda p: dist.Normal(p, p + 1).mask(POSITIVE > 0.5), POSITIVE),
    to_event=log_prob(lambda p: dist.Normal(p, p + 1).to_event(1), POSITIVE),
    delta=log_prob(lambda p: dist.Delta(p, log_density=p), POSITIVE),
    mixture=log_prob(
        lambda p: dist.MixtureSameFamily(dist.Categorical(p), dist.Normal(p, p + 1)), POSITIVE[:, 0]
    ),
    multivariate=lambda: (
        lambda x: dist.MultivariateNormal(
            torch.zeros(4), scale_tril=torch.eye(4) + x.tril(-1)
        ).log_prob(torch.ones(4)),
        array(4, 4),
    ),
    hidden_markov=lambda: (
        lambda x: dist.DiscreteHMM(x[0, :3], x[1:4, :3], dist.Normal(x[4, :3], 1.0)).log_prob(
            torch.arange(6.0)
        ),
        array(5, 3),
    ),
    leaky_relu_flow=transformed(T.LeakyReLUTransform),
    elu_flow=transformed(T.ELUTransform),
    permuted=transformed(lambda: T.Permute(torch.tensor([2, 0, 3, 1]))),
    lower_cholesky=transformed(lambda: T.CorrLCholeskyTransform(), 6),
)


def posterior(x):
    """A regression by MAP: the losses of 10 steps and the estimates."""
    pyro.clear_param_store()
    y = x.detach() @ torch.tensor([1.0, -2.0, 0.5])

    def model(x):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 2.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, scale), obs=y)

    guide = AutoDelta(model, init_loc_fn=pyro.infer.autoguide.init_to_median(num_samples=1))
    with torch.no_grad():
        guide(x.detach())
        for p in guide.parameters():
            p.fill_(0.5)
    svi = SVI(model, guide, Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(x.detach()) for _ in range(10)]
    return losses, [p.detach() for p in guide.parameters()]


@case("pyro")
def maximum_a_posteriori():
    return posterior, array(20, 3)


@case("pyro")
def enumerated_elbo():
    @config_enumerate
    def model(x):
        weights = pyro.param(
            "weights", torch.tensor([0.3, 0.7]), constraint=dist.constraints.simplex
        )
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(torch.tensor([-1.0, 2.0])[z], 1.0), obs=x.detach())

    def elbo(x):
        pyro.clear_param_store()
        loss = TraceEnum_ELBO(max_plate_nesting=1).differentiable_loss(model, lambda x: None, x)
        (grad,) = torch.autograd.grad(loss, [pyro.param("weights").unconstrained()])
        return loss.detach(), grad

    return elbo, array(12)


@case("pyro")
def traces():
    def model(x):
        z = pyro.sample("z", dist.Normal(x, 1.0))
        return pyro.sample("y", dist.Normal(z, 2.0), obs=torch.tensor(0.5))

    def call(x):
        conditioned = pyro.condition(model, data={"z": torch.tensor(0.3)})
        trace = pyro.poutine.trace(conditioned).get_trace(x)
        return trace.log_prob_sum(), trace.nodes["z"]["value"]

    return call, torch.tensor(0.7)
