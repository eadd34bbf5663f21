import tempfile

import diffusers as d
import torch
from models import array, case, filled, numbers_of_numpy, several

d.utils.logging.set_verbosity_error()
STEPS = torch.tensor([3, 7])
CHANNELS = {"block_out_channels": (16, 32), "norm_num_groups": 8}


class Sample(torch.nn.Module):
    """A model whose result is the sample of its output."""

    def __init__(self, model, *more, **options):
        super().__init__()
        self.model, self.more, self.options = model, more, options

    def forward(self, x):
        found = self.model(x, *self.more, **self.options)
        return found[0] if isinstance(found, tuple) else found.sample


def model(make, shape, *more, **options):
    return lambda: (Sample(filled(make()).eval(), *more, **options), array(*shape))


IMAGE = (2, 3, 16, 16)
several(
    "diffusers",
    unet=model(
        lambda: d.UNet2DModel(
            sample_size=16,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
            **CHANNELS,
        ),
        IMAGE,
        STEPS,
    ),
    unet_on_classes=model(
        lambda: d.UNet2DModel(
            sample_size=16,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
            num_class_embeds=5,
            **CHANNELS,
        ),
        IMAGE,
        STEPS,
        torch.tensor([1, 4]),
    ),
    unet_on_text=model(
        lambda: d.UNet2DConditionModel(
            sample_size=16,
            in_channels=3,
            out_channels=3,
            layers_per_block=1,
            cross_attention_dim=12,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            attention_head_dim=8,
            **CHANNELS,
        ),
        IMAGE,
        STEPS,
        array(2, 5, 12, seed=4),
    ),
    unet_1d=model(
        lambda: d.UNet1DModel(
            sample_size=16,
            in_channels=4,
            out_channels=4,
            block_out_channels=(8, 16),
            down_block_types=("DownResnetBlock1D", "DownResnetBlock1D"),
            up_block_types=("UpResnetBlock1D",),
            mid_block_type="MidResTemporalBlock1D",
            out_block_type="OutConv1DBlock",
            use_timestep_embedding=True,
            norm_num_groups=4,
            time_embedding_type="positional",
            flip_sin_to_cos=False,
            freq_shift=1.0,
            layers_per_block=1,
            act_fn="mish",
        ),
        (2, 4, 16),
        STEPS,
    ),
    autoencoder=model(
        lambda: d.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
            **CHANNELS,
        ),
        IMAGE,
    ),
    tiny_autoencoder=model(
        lambda: d.AutoencoderTiny(
            encoder_block_out_channels=(16, 16),
            decoder_block_out_channels=(16, 16),
            num_encoder_blocks=(1, 1),
            num_decoder_blocks=(1, 1),
        ),
        IMAGE,
    ),
    quantized_autoencoder=model(
        lambda: d.VQModel(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=3,
            num_vq_embeddings=16,
            **CHANNELS,
        ),
        IMAGE,
    ),
    dit=model(
        lambda: d.DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=3,
            out_channels=3,
            num_layers=2,
            sample_size=16,
            patch_size=4,
            num_embeds_ada_norm=6,
            norm_num_groups=4,
        ),
        IMAGE,
        timestep=STEPS,
        class_labels=torch.tensor([1, 4]),
    ),
    transformer=model(
        lambda: d.Transformer2DModel(
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=8,
            num_layers=1,
            norm_num_groups=4,
            cross_attention_dim=12,
        ),
        (2, 8, 8, 8),
        array(2, 5, 12, seed=4),
    ),
    prior=lambda: (
        lambda m: (
            lambda x: m(x, STEPS, array(2, 12, seed=3), array(2, 5, 12, seed=4))[0],
            array(2, 12),
        )
    )(
        filled(
            d.PriorTransformer(
                num_attention_heads=2,
                attention_head_dim=8,
                num_layers=1,
                embedding_dim=12,
                num_embeddings=5,
            )
        ).eval()
    ),
    flux=model(
        lambda: d.FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=12,
            pooled_projection_dim=8,
            axes_dims_rope=[4, 4, 8],
        ),
        (1, 16, 4),
        encoder_hidden_states=array(1, 5, 12, seed=4),
        pooled_projections=array(1, 8, seed=5),
        timestep=torch.tensor([0.7]),
        img_ids=torch.zeros(16, 3),
        txt_ids=torch.zeros(5, 3),
    ),
    sd3=model(
        lambda: d.SD3Transformer2DModel(
            sample_size=8,
            patch_size=2,
            in_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=2,
            joint_attention_dim=12,
            caption_projection_dim=16,
            pooled_projection_dim=8,
            out_channels=4,
            pos_embed_max_size=8,
        ),
        (1, 4, 8, 8),
        encoder_hidden_states=array(1, 5, 12, seed=4),
        pooled_projections=array(1, 8, seed=5),
        timestep=torch.tensor([7]),
    ),
)


def denoised(make, steps=6):
    """What a scheduler makes of a sample when the model's output is a fixed function of it."""

    def call(x):
        scheduler = make()
        scheduler.set_timesteps(steps)
        x = x.detach() * scheduler.init_noise_sigma
        options = {}
        with numbers_of_numpy():
            for step in scheduler.timesteps:
                given = scheduler.scale_model_input(x, step)
                x = scheduler.step(torch.tanh(given) * 0.3, step, x, **options).prev_sample
        return x, scheduler.timesteps.double()

    return lambda: (call, array(2, 3, 8, 8))


SCHEDULERS = {
    "ddpm": d.DDPMScheduler,
    "ddim": d.DDIMScheduler,
    "pndm": d.PNDMScheduler,
    "lms": d.LMSDiscreteScheduler,
    "euler": d.EulerDiscreteScheduler,
    "euler_ancestral": d.EulerAncestralDiscreteScheduler,
    "heun": d.HeunDiscreteScheduler,
    "dpm_solver": d.DPMSolverMultistepScheduler,
    "dpm_solver_single": d.DPMSolverSinglestepScheduler,
    "kdpm2": d.KDPM2DiscreteScheduler,
    "kdpm2_ancestral": d.KDPM2AncestralDiscreteScheduler,
    "deis": d.DEISMultistepScheduler,
    "ipndm": d.IPNDMScheduler,
    "edm_euler": d.EDMEulerScheduler,
    "sa_solver": d.SASolverScheduler,
    "flow_match": d.FlowMatchEulerDiscreteScheduler,
    "flow_match_heun": d.FlowMatchHeunDiscreteScheduler,
    "lcm": d.LCMScheduler,
    "tcd": d.TCDScheduler,
    "ddim_inverse": d.DDIMInverseScheduler,
}


def flow_scheduler(kind):
    """Flow matching has no input to scale."""
    scheduler = kind()
    if not hasattr(scheduler, "init_noise_sigma"):
        scheduler.init_noise_sigma = 1.0
    if not hasattr(scheduler, "scale_model_input"):
        scheduler.scale_model_input = lambda x, step: x
    return scheduler


several(
    "diffusers",
    **{name: denoised(lambda kind=kind: flow_scheduler(kind)) for name, kind in SCHEDULERS.items()},
    karras=denoised(
        lambda: d.DPMSolverMultistepScheduler(
            use_karras_sigmas=True, algorithm_type="sde-dpmsolver++"
        )
    ),
    euler_of_velocity=denoised(lambda: d.EulerDiscreteScheduler(prediction_type="v_prediction")),
    ddpm_learned_range=denoised(lambda: d.DDPMScheduler(beta_schedule="squaredcos_cap_v2")),
)


@case("diffusers")
def noise_is_added():
    def call(x):
        scheduler = d.DDPMScheduler()
        noise = array(2, 3, 8, 8, seed=2)
        return scheduler.add_noise(x, noise, STEPS), scheduler.get_velocity(x, noise, STEPS)

    return call, array(2, 3, 8, 8)


def small_unet():
    return filled(
        d.UNet2DModel(
            sample_size=8,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
            **CHANNELS,
        )
    ).eval()


def pipeline(kind, scheduler, **options):
    def call():
        run = kind(unet=small_unet(), scheduler=scheduler())
        run.set_progress_bar_config(disable=True)
        with numbers_of_numpy():
            images = run(batch_size=1, num_inference_steps=4, output_type="np", **options).images
        return torch.tensor(images)

    return lambda: (call,)


several(
    "diffusers",
    ddpm_pipeline=pipeline(d.DDPMPipeline, d.DDPMScheduler),
    ddim_pipeline=pipeline(d.DDIMPipeline, d.DDIMScheduler, eta=0.5),
)


@case("diffusers")
def a_saved_model_is_loaded():
    model = small_unet()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        back = d.UNet2DModel.from_pretrained(folder, torch_dtype=torch.float64)
    same = model.state_dict()
    assert all(torch.equal(v, same[k]) for k, v in back.state_dict().items())
    return Sample(back.eval(), STEPS), array(2, 3, 8, 8)


@case("diffusers")
def weights_follow_the_average():
    def call(x):
        model = small_unet()
        average = d.training_utils.EMAModel(model.parameters(), decay=0.9, use_ema_warmup=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            model(x, STEPS).sample.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.step(model.parameters())
        average.copy_to(model.parameters())
        return model(x, STEPS).sample

    return call, array(2, 3, 8, 8)
