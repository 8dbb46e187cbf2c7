"""GPL-SAC in one file, in the style of CleanRL: SAC whose pessimism is learned by a strategy of this library.

python examples/gpl_sac.py --env Pendulum-v1 --steps 10000

Everything but `LearnedPenalty` and the squared loss is written out. The lines marked with GPL are all that differs
from SAC with an ensemble of critics.
"""

import argparse
import itertools

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from pessimism.strategies import LearnedPenalty
from pessimism.values import squared_td_loss

LOG_STD = (-5.0, 2.0)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1", help="Gymnasium id")
    parser.add_argument("--steps", type=int, default=10_000, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--critics", type=int, default=5, help="N")
    parser.add_argument("--updates", type=int, default=1, help="critic updates per environment step")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--learning-starts", type=int, default=1000, help="random steps at the start")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--width", type=int, default=256)
    return parser.parse_args()


class Critics(nn.Module):
    """N critics as batched matrices: [B, obs + act] -> [N, B, 1]."""

    def __init__(self, members: int, inputs: int, width: int) -> None:
        super().__init__()
        sizes = [inputs, width, width, 1]
        pairs = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(torch.empty(members, a, b).uniform_(-(a**-0.5), a**-0.5) for a, b in pairs)
        self.biases = nn.ParameterList(torch.zeros(members, 1, b) for _, b in pairs)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the estimates of all critics."""
        x = torch.cat([obs, action], dim=-1).expand(len(self.weights[0]), -1, -1)  # [N, B, obs + act]
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            x = x if layer == len(self.weights) - 1 else x.relu()
        return x


class Actor(nn.Module):
    """A squashed Gaussian policy, with actions in (-1, 1)."""

    def __init__(self, obs_size: int, action_size: int, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean, self.log_std = nn.Linear(width, action_size), nn.Linear(width, action_size)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [B, act] and their log-probabilities [B, 1]."""
        features = self.trunk(obs)
        std = self.log_std(features).clamp(*LOG_STD).exp()
        normal = torch.distributions.Normal(self.mean(features), std)
        before = normal.rsample()
        log_det = 2 * (np.log(2) - before - nn.functional.softplus(-2 * before))  # of tanh
        return before.tanh(), (normal.log_prob(before) - log_det).sum(dim=-1, keepdim=True)


class Replay:
    """The newest transitions in arrays."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.rows = np.zeros((capacity, 2 * obs_size + action_size + 2), np.float32)
        self.sizes, self.added = (obs_size, action_size, 1, 1, obs_size), 0

    def add(self, *parts: np.ndarray | float) -> None:
        """Store obs, action, reward, terminated and next obs."""
        self.rows[self.added % len(self.rows)] = np.concatenate([np.atleast_1d(part) for part in parts])
        self.added += 1

    def sample(self, count: int) -> tuple[Tensor, ...]:
        """Draw transitions."""
        index = np.random.randint(min(self.added, len(self.rows)), size=count)
        return torch.from_numpy(self.rows[index]).split(self.sizes, dim=1)


def main() -> list[float]:  # noqa: PLR0915 (one piece, to be read from top to bottom)
    """Train; return the returns of all episodes."""
    args = arguments()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = gymnasium.wrappers.RescaleAction(gymnasium.make(args.env), np.float32(-1), np.float32(1))
    obs_size, action_size = int(np.prod(env.observation_space.shape)), int(np.prod(env.action_space.shape))
    actor = Actor(obs_size, action_size, args.width)
    critics, targets = (Critics(args.critics, obs_size + action_size, args.width) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    pessimism = LearnedPenalty(beta=0.5)  # GPL: reads the critics
    log_alpha = torch.zeros((), requires_grad=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), args.lr)
    critic_optimizer = torch.optim.Adam(critics.parameters(), args.lr)
    alpha_optimizer = torch.optim.Adam([log_alpha], args.lr)
    replay, returns, score = Replay(args.steps, obs_size, action_size), [], 0.0

    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        if step <= args.learning_starts:
            action = np.random.uniform(-1, 1, action_size).astype(np.float32)
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(obs, dtype=torch.float32)[None])[0][0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action.reshape(env.action_space.shape))
        replay.add(obs.ravel(), action, reward, terminated, next_obs.ravel())
        obs, score = next_obs, score + float(reward)
        if terminated or truncated:
            returns.append(score)
            beta, alpha = pessimism.beta.item(), log_alpha.exp().item()
            print(f"step {step}  return {score:.1f}  beta {beta:.4f}  alpha {alpha:.3f}")
            (obs, _), score = env.reset(), 0.0
        if step <= args.learning_starts:
            continue

        alpha = log_alpha.detach().exp()
        for _ in range(args.updates):
            batch_obs, batch_action, batch_reward, done, batch_next = replay.sample(args.batch)
            with torch.no_grad():
                next_action, next_log_prob = actor(batch_next)
                next_values = targets(batch_next, next_action)  # [N, B, 1]
            soft_value = pessimism.target_value(next_values) - alpha * next_log_prob  # GPL: instead of the minimum
            target = batch_reward + args.gamma * (1 - done) * soft_value
            values = critics(batch_obs, batch_action)
            critic_optimizer.zero_grad()
            squared_td_loss(values, target.detach()).backward()
            critic_optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                    slow.lerp_(fast, args.tau)
        pessimism.update(values.detach(), target)  # GPL: dual TD-learning of beta, once per environment step

        action, log_prob = actor(batch_obs)
        actor_optimizer.zero_grad()
        (alpha * log_prob - pessimism.actor_value(critics(batch_obs, action))).mean().backward()
        actor_optimizer.step()
        alpha_optimizer.zero_grad()
        (-log_alpha * (log_prob.detach() - action_size).mean()).backward()  # target entropy: -dim(action)
        alpha_optimizer.step()
    return returns


if __name__ == "__main__":
    main()
