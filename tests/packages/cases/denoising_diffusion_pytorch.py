import torch
from denoising_diffusion_pytorch import GaussianDiffusion, GaussianDiffusion1D, Unet, Unet1D
from models import array, filled, numbers_of_numpy, several


def diffusion(**options):
    net = Unet(8, dim_mults=(1, 2), attn_heads=2, attn_dim_head=8, flash_attn=False)
    return filled(GaussianDiffusion(net, image_size=16, timesteps=20, **options))


def loss(**options):
    def make():
        model = diffusion(**options)

        def call(x):
            return model.p_losses(x, torch.tensor([3, 11]), noise=array(2, 3, 16, 16, seed=5))

        return call, array(2, 3, 16, 16, low=0.0)

    return make


def sampled(**options):
    def call():
        model = diffusion(**options).eval()
        with numbers_of_numpy():
            return model.sample(batch_size=1)

    return lambda: (call,)


def on_sequences():
    net = Unet1D(8, dim_mults=(1, 2), channels=4)
    model = filled(GaussianDiffusion1D(net, seq_length=16, timesteps=20, auto_normalize=False))

    def call(x):
        return model.p_losses(x, torch.tensor([3, 11]), noise=array(2, 4, 16, seed=5))

    return call, array(2, 4, 16)


several(
    "denoising_diffusion_pytorch",
    unet=lambda: (lambda m: (lambda x: m(x, torch.tensor([3, 11])), array(2, 3, 16, 16)))(
        filled(Unet(8, dim_mults=(1, 2), flash_attn=False)).eval()
    ),
    noise=loss(objective="pred_noise"),
    velocity=loss(objective="pred_v"),
    start=loss(objective="pred_x0", beta_schedule="cosine"),
    weighted=loss(min_snr_loss_weight=True),
    sampled=sampled(),
    sampled_implicitly=sampled(sampling_timesteps=5, ddim_sampling_eta=0.5),
    sequences=on_sequences,
)
