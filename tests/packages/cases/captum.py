import captum.attr as c
import torch
from captum.robust import FGSM, PGD
from models import array, case, filled, integers, several

TARGETS = torch.tensor([0, 2, 1])


def network():
    return filled(
        torch.nn.Sequential(
            torch.nn.Linear(6, 8),
            torch.nn.ReLU(),
            torch.nn.Linear(8, 8),
            torch.nn.Tanh(),
            torch.nn.Linear(8, 3),
        )
    ).eval()


def images():
    return filled(
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(16, 3),
        )
    ).eval()


def attributed(make, net=network, shape=(3, 6), **options):
    def call(x):
        found = make(net()).attribute(x, target=TARGETS, **options)
        return [t.detach() for t in found] if isinstance(found, tuple) else found.detach()

    return lambda: (call, array(*shape))


BASE = array(3, 6, seed=9)
several(
    "captum",
    saliency=attributed(c.Saliency),
    input_times_gradient=attributed(c.InputXGradient),
    integrated_gradients=attributed(c.IntegratedGradients, n_steps=20),
    integrated_from_baseline=attributed(
        c.IntegratedGradients, baselines=BASE, n_steps=10, return_convergence_delta=True
    ),
    integrated_riemann=attributed(c.IntegratedGradients, n_steps=10, method="riemann_trapezoid"),
    deep_lift=attributed(c.DeepLift),
    deep_lift_rescaled=attributed(c.DeepLift, baselines=BASE, return_convergence_delta=True),
    guided_backprop=attributed(c.GuidedBackprop),
    deconvolution=attributed(c.Deconvolution),
    lrp=attributed(c.LRP),
    ablation=attributed(c.FeatureAblation),
    ablation_of_groups=attributed(
        c.FeatureAblation, feature_mask=torch.tensor([[0, 0, 1, 1, 2, 2]])
    ),
    occlusion=attributed(c.Occlusion, sliding_window_shapes=(2,)),
    shapley=attributed(c.ShapleyValues, feature_mask=torch.tensor([[0, 0, 1, 1, 2, 2]])),
    layer_gradient=attributed(lambda m: c.LayerGradientXActivation(m, m[0])),
    layer_conductance=attributed(lambda m: c.LayerConductance(m, m[2]), n_steps=10),
    layer_integrated=attributed(lambda m: c.LayerIntegratedGradients(m, m[0]), n_steps=10),
    layer_deep_lift=attributed(lambda m: c.LayerDeepLift(m, m[2])),
    internal_influence=attributed(lambda m: c.InternalInfluence(m, m[0]), n_steps=10),
    neuron_gradient=attributed(lambda m: NeuronOf(c.NeuronGradient(m, m[0]))),
    neuron_conductance=attributed(
        lambda m: c.NeuronConductance(m, m[2]), neuron_selector=3, n_steps=10
    ),
    grad_cam=attributed(lambda m: c.LayerGradCam(m, m[0]), images, (3, 3, 8, 8)),
    guided_grad_cam=attributed(lambda m: c.GuidedGradCam(m, m[0]), images, (3, 3, 8, 8)),
    occlusion_of_images=attributed(
        c.Occlusion, images, (3, 3, 8, 8), sliding_window_shapes=(3, 4, 4), strides=(3, 2, 2)
    ),
)


class NeuronOf:
    """Attribution of one neuron, which has no target."""

    def __init__(self, method):
        self.method = method

    def attribute(self, x, target):
        return self.method.attribute(x, neuron_selector=2)


@case("captum")
def layer_activations():
    net = network()
    return lambda x: c.LayerActivation(net, net[1]).attribute(x).detach(), array(3, 6)


@case("captum")
def attacks():
    def call(x):
        net = network()
        lost = torch.nn.CrossEntropyLoss(reduction="none")

        def loss(output, target):
            return lost(output, target)

        one = FGSM(net, loss).perturb(x, epsilon=0.1, target=TARGETS)
        more = PGD(net, loss).perturb(x, radius=0.2, step_size=0.05, step_num=3, target=TARGETS)
        return one.detach(), more.detach()

    return call, array(3, 6)


@case("captum")
def embeddings():
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(9, 4)
            self.out = torch.nn.Linear(4, 3)

        def forward(self, tokens):
            return self.out(self.words(tokens).mean(1))

    def call(tokens):
        net = filled(Words()).eval()
        method = c.LayerIntegratedGradients(net, net.words)
        return method.attribute(tokens, torch.zeros_like(tokens), target=1, n_steps=8).detach()

    return call, integers(9, 2, 5)
