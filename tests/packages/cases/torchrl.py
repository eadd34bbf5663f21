import gymnasium as gym
import numpy as np
import torch
from models import array, case, filled, integers, several
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import RewardSum, StepCounter, TransformedEnv
from torchrl.envs.libs.gym import GymWrapper
from torchrl.modules import (
    MLP,
    NormalParamExtractor,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import ClipPPOLoss, DDPGLoss, DQNLoss, SoftUpdate
from torchrl.objectives.value import functional as values


def network(inputs, outputs):
    return filled(MLP(in_features=inputs, out_features=outputs, num_cells=[8]))


def transitions(action):
    ends = torch.zeros(6, 1, dtype=torch.bool)
    after = {"observation": array(6, 4, seed=1), "reward": array(6, 1), "done": ends, "terminated": ends}  # fmt: skip
    return {"observation": array(6, 4), "action": action, "next": after}


def trained(loss, batch, *names):
    found = loss(TensorDict(batch, [6]))
    terms = [found[name] for name in names]
    sum(terms).backward()
    return [t.detach() for t in terms], [p.grad for p in loss.parameters() if p.grad is not None]


def estimated(function, *options):
    def made():
        def call(now, later, reward):
            done = torch.zeros(2, 5, 1, dtype=torch.bool)
            done[0, 2] = True
            rows = (now, later, reward) if "advantage" in function else (later, reward)
            return getattr(values, function)(*options, *rows, done)

        return (call, *(array(2, 5, 1, seed=seed) for seed in range(3)))

    return made


several(
    "torchrl",
    advantages=estimated("generalized_advantage_estimate", 0.9, 0.95),
    advantages_at_once=estimated("vec_generalized_advantage_estimate", 0.9, 0.95),
    one_step=estimated("td0_return_estimate", 0.9),
    td_lambda=estimated("td_lambda_return_estimate", 0.9, 0.95),
    td_lambda_at_once=estimated("vec_td_lambda_return_estimate", 0.9, 0.95),
)


@case("torchrl")
def dqn():
    def call():
        actor = QValueActor(network(4, 3), in_keys=["observation"], spec=OneHot(3))
        loss = DQNLoss(actor, action_space="one-hot", delay_value=True)
        loss.make_value_estimator(gamma=0.9)
        action = torch.nn.functional.one_hot(integers(3, 6), 3).to(torch.float64)
        found = trained(loss, transitions(action), "loss")
        SoftUpdate(loss, eps=0.9).step()
        return found

    return (call,)


@case("torchrl")
def ddpg():
    def call():
        actor = TensorDictModule(network(4, 2), in_keys=["observation"], out_keys=["action"])
        value = ValueOperator(network(6, 1), in_keys=["observation", "action"])
        loss = DDPGLoss(actor, value, delay_actor=True)
        loss.make_value_estimator(gamma=0.9)
        return trained(loss, transitions(array(6, 2)), "loss_actor", "loss_value")

    return (call,)


@case("torchrl")
def ppo():
    def call():
        net = torch.nn.Sequential(network(4, 4), NormalParamExtractor())
        keys = ["loc", "scale"]
        actor = ProbabilisticActor(
            TensorDictModule(net, in_keys=["observation"], out_keys=keys),
            in_keys=keys,
            distribution_class=TanhNormal,
            return_log_prob=True,
        )
        value = ValueOperator(network(4, 1), in_keys=["observation"])
        loss = ClipPPOLoss(actor, value, entropy_bonus=False)
        batch = {
            "observation": array(6, 4), "action": array(6, 2).tanh() * 0.9, "action_log_prob": array(6),
            "advantage": array(6, 1), "value_target": array(6, 1),
        }  # fmt: skip
        return trained(loss, batch, "loss_objective", "loss_critic")

    return (call,)


@case("torchrl")
def replay_buffer():
    def call(x):
        sampler = SamplerWithoutReplacement(shuffle=False)
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20), batch_size=4, sampler=sampler)  # fmt: skip
        buffer.extend(TensorDict({"x": x.detach()}, [8]))
        return buffer.sample()["x"], buffer.sample()["x"], float(len(buffer))

    return (call, array(8, 3))


class Line(gym.Env):
    """Move on a line."""

    observation_space = gym.spaces.Box(-5.0, 5.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place, self.steps = 0.5, 0
        return np.array([self.place, 1.0]), {}

    def step(self, action):
        self.place, self.steps = self.place + 0.1 * int(action), self.steps + 1
        return np.array([self.place, 1.0]), self.place, self.steps > 5, False, {}


@case("torchrl")
def rollout():
    def call():
        env = TransformedEnv(GymWrapper(Line()), StepCounter())
        env = TransformedEnv(env, RewardSum())
        right = TensorDictModule(
            lambda seen: torch.tensor([0, 1]), in_keys=["observation"], out_keys=["action"]
        )
        steps = env.rollout(4, policy=right)
        after = steps["next"]
        return steps["observation"], after["reward"], after["episode_reward"], after["step_count"]

    return (call,)
