import contextlib
import os
import tempfile

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from models import case, numbers_of_numpy, several
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize


class Line(gym.Env):
    """Move on a line to the target; actions are left and right, or a step of any size."""

    def __init__(self, continuous=False):
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (2,), np.float32)
        self.action_space = (
            gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(2)
        )
        self.continuous, self.count = continuous, 0

    def reset(self, *, seed=None, options=None):
        self.count += 1
        self.place, self.steps = float(np.sin(self.count)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, 1.0 - self.place], np.float32)

    def step(self, action):
        move = float(action[0]) if self.continuous else 0.4 * int(action) - 0.2
        self.place, self.steps = float(np.clip(self.place + move, -4, 4)), self.steps + 1
        return self.seen(), -abs(self.place - 1.0), self.steps >= 8, False, {}


def fill(model):
    """Numbers of NumPy for all networks; targets get those of the networks they follow."""
    for number, p in enumerate(model.policy.parameters()):
        values = np.random.RandomState(number).standard_normal(tuple(p.shape))
        p.data.copy_(torch.tensor(values / np.sqrt(max(p.shape[-1], 1))))
    for name in ("critic", "actor", "q_net"):
        if hasattr(model, f"{name}_target"):
            getattr(model, f"{name}_target").load_state_dict(getattr(model, name).state_dict())


ON_POLICY = {"n_steps": 16, "policy_kwargs": {"net_arch": [8]}}
OFF_POLICY = {
    "learning_starts": 20,
    "batch_size": 8,
    "buffer_size": 100,
    "policy_kwargs": {"net_arch": [8]},
}


def made(kind, continuous, **options):
    model = kind("MlpPolicy", Line(continuous), seed=0, device="cpu", **options)
    fill(model)
    return model


@contextlib.contextmanager
def single_precision():
    """The package makes its buffers in float32."""
    torch.set_default_dtype(torch.float32)
    try:
        with numbers_of_numpy():
            yield
    finally:
        torch.set_default_dtype(torch.float64)


def learned(kind, continuous=False, steps=48, **options):
    def call():
        with single_precision():
            model = made(kind, continuous, **options)
            model.action_space.seed(0)
            model.learn(steps)
        seen = np.array([[0.5, 0.5], [-1.0, 2.0]], np.float32)
        actions, _ = model.predict(seen, deterministic=True)
        return torch.tensor(actions), [p.detach() for p in model.policy.parameters()]

    return lambda: (call,)


several(
    "stable_baselines3",
    ppo=learned(sb3.PPO, batch_size=8, n_epochs=3, **ON_POLICY),
    ppo_continuous=learned(sb3.PPO, True, batch_size=8, n_epochs=3, **ON_POLICY),
    ppo_clips_values=learned(sb3.PPO, batch_size=8, clip_range_vf=0.1, **ON_POLICY),
    a2c=learned(sb3.A2C, **ON_POLICY),
    a2c_continuous=learned(sb3.A2C, True, use_rms_prop=False, **ON_POLICY),
    dqn=learned(sb3.DQN, target_update_interval=10, **OFF_POLICY),
    ddpg=learned(sb3.DDPG, True, **OFF_POLICY),
    td3=learned(
        sb3.TD3,
        True,
        target_policy_noise=0.0,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        **OFF_POLICY,
    ),
    sac=learned(sb3.SAC, True, **OFF_POLICY),
    sac_without_tuning=learned(sb3.SAC, True, ent_coef=0.1, **OFF_POLICY),
)


@case("stable_baselines3")
def a_saved_model_is_loaded():
    def call():
        with tempfile.TemporaryDirectory() as folder, single_precision():
            model = made(sb3.PPO, False, batch_size=8, **ON_POLICY)
            model.learn(16)
            model.save(os.path.join(folder, "model"))
            back = sb3.PPO.load(os.path.join(folder, "model"), env=Line(), device="cpu")
            for p, q in zip(model.policy.parameters(), back.policy.parameters(), strict=True):
                assert torch.equal(p, q)
            back.learn(16)
        return [p.detach() for p in back.policy.parameters()]

    return (call,)


@case("stable_baselines3")
def normalised_observations():
    def call():
        with single_precision():
            env = VecNormalize(DummyVecEnv([Line, Line]))
            model = sb3.PPO("MlpPolicy", env, batch_size=8, seed=0, device="cpu", **ON_POLICY)
            fill(model)
            model.learn(64)
        return torch.tensor(env.obs_rms.mean), [p.detach() for p in model.policy.parameters()]

    return (call,)


@case("stable_baselines3")
def probabilities_and_values():
    with single_precision():
        model = made(sb3.PPO, True, **ON_POLICY)

    def call():
        seen = torch.tensor(np.random.RandomState(0).standard_normal((4, 2))).float()
        values, log_prob, entropy = model.policy.evaluate_actions(seen, seen[:, :1])
        return values.detach(), log_prob.detach(), entropy.detach()

    return (call,)
