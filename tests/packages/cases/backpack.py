import torch
from backpack import backpack, extend, extensions
from models import array, filled, integers, several


def dense():
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Sigmoid(), torch.nn.Linear(6, 3))


def convolutional():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 3),
    )


def extended(name, field, net=dense, shape=(5, 4)):
    def made():
        def call(x):
            model, loss = extend(filled(net())), extend(torch.nn.CrossEntropyLoss())
            with backpack(getattr(extensions, name)()):
                loss(model(x.detach()), integers(3, 5)).backward()
            return [getattr(p, field) for p in model.parameters()]

        return (call, array(*shape))

    return made


IMAGES = (convolutional, (5, 2, 4, 4))
several(
    "backpack",
    gradients_of_samples=extended("BatchGrad", "grad_batch"),
    norms_of_samples=extended("BatchL2Grad", "batch_l2"),
    second_moments=extended("SumGradSquared", "sum_grad_squared"),
    variances=extended("Variance", "variance"),
    diagonal_of_the_hessian=extended("DiagHessian", "diag_h"),
    diagonal_of_gauss_newton=extended("DiagGGNExact", "diag_ggn_exact"),
    factors_of_gauss_newton=extended("KFLR", "kflr"),
    recursive_factors=extended("KFRA", "kfra"),
    gradients_of_images=extended("BatchGrad", "grad_batch", *IMAGES),
    variances_of_images=extended("Variance", "variance", *IMAGES),
    gauss_newton_of_images=extended("DiagGGNExact", "diag_ggn_exact", *IMAGES),
    factors_of_images=extended("KFLR", "kflr", *IMAGES),
)
