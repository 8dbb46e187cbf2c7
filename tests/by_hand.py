"""Algorithm 1 of the paper written out: a plain network per critic, Python loops, torch.optim, double precision."""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-3  # of LayerNorm in the residual critic (author's code)


def double(tensor: Tensor) -> Tensor:
    return tensor.detach().double().clone()


def one_critic(critic, index: int) -> dict[str, nn.Parameter]:
    """Return the weights of one member of an ensemble; matrices are stored as [in, out]."""
    names = {name: tensor for name, tensor in critic.named_parameters() if "trunk" not in name}
    return {name: nn.Parameter(double(tensor[index])) for name, tensor in names.items()}


def layer(inputs: Tensor, weights, name: str) -> Tensor:
    return F.linear(inputs, weights[f"{name}.weight"].T, weights[f"{name}.bias"].flatten())


def critic_value(weights, inputs: Tensor) -> Tensor:
    """Return Q(s, a) of one critic, plain or residual: [B, obs + act] -> [B, 1]."""
    prefix = "heads." if "heads.head.bias" in weights else ""
    hidden = F.relu(layer(inputs, weights, f"{prefix}body.0"))
    if f"{prefix}body.2.norm.gain" not in weights:
        hidden = F.relu(layer(hidden, weights, f"{prefix}body.2"))
        return layer(hidden, weights, f"{prefix}head")
    gain, bias = (weights[f"{prefix}body.2.norm.{part}"].flatten() for part in ("gain", "bias"))
    normal = F.layer_norm(hidden, hidden.shape[-1:], gain, bias, EPS)
    inner = F.relu(layer(normal, weights, f"{prefix}body.2.inner"))
    return layer(hidden + layer(inner, weights, f"{prefix}body.2.outer"), weights, f"{prefix}head")


def distance(values: list[Tensor]) -> Tensor:
    """Return the mean of |Qi - Qj| over all pairs (Eqn. 6)."""
    pairs = list(itertools.combinations(values, 2))
    return sum((first - second).abs() for first, second in pairs) / len(pairs)


class SpectralNorm:
    """The largest singular value of one matrix, followed by one power iteration per update."""

    def __init__(self, left: Tensor) -> None:
        self.left = double(left).flatten()

    def project(self, weight: Tensor) -> None:
        """Divide the matrix [in, out] by its largest singular value."""
        right = F.normalize(weight.T @ self.left, dim=0)
        image = weight @ right
        self.left = image / image.norm()
        weight /= image.norm()


class GaussianPolicy:
    """The squashed Gaussian policy, its log-probability in the textbook form."""

    def __init__(self, actor) -> None:
        self.weights = [nn.Parameter(double(weight)) for weight in actor.net.parameters()]
        self.log_std = actor.log_std

    def __call__(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        first, second, third = zip(self.weights[::2], self.weights[1::2], strict=True)
        hidden = F.relu(F.linear(F.relu(F.linear(obs, *first)), *second))
        mean, raw = F.linear(hidden, *third).chunk(2, dim=-1)
        log_std = raw.clamp(-20, 2) if self.log_std == "clamped" else -10 + 6 * (raw.tanh() + 1)
        before = mean + log_std.exp() * noise
        normal = torch.distributions.Normal(mean, log_std.exp())
        log_prob = normal.log_prob(before) - (1 - before.tanh().square()).log()
        return before.tanh(), log_prob.sum(-1, keepdim=True)


class Algorithm1:
    """GPL-SAC, and the algorithms that differ from it in how the critics' values are read.

    `rule` is "learned" (dual TD-learning), "squared-bias" (App. D.2), "fixed" (beta stays) or "subset" (REDQ: the
    minimum of the critics `chosen` for an update, and the mean for the policy).
    """

    def __init__(self, agent, rule: str, *, settings) -> None:
        self.rule, self.settings, members = rule, settings, range(len(agent.critic.head.bias))
        self.critics = [one_critic(agent.critic, index) for index in members]
        self.targets = [one_critic(agent.target_critic, index) for index in members]
        spectral = {f"body.2.{name}.weight": f"body.2.{name}.left" for name in ("inner", "outer")}
        buffers = dict(agent.critic.named_buffers())
        self.spectral = [
            {name: SpectralNorm(buffers[left][index]) for name, left in spectral.items() if left in buffers}
            for index in members
        ]
        self.policy = GaussianPolicy(agent.actor)
        self.log_alpha = nn.Parameter(double(agent.log_alpha))
        beta = getattr(agent.pessimism, "beta", torch.zeros(()))
        self.beta = nn.Parameter(double(beta))
        every_weight = [weight for critic in self.critics for weight in critic.values()]
        self.critic_optimizer = torch.optim.Adam(every_weight, settings.lr)
        self.policy_optimizer = torch.optim.Adam(self.policy.weights, settings.lr)
        betas = (settings.alpha_beta1, 0.999)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], settings.alpha_lr, betas)
        lr, beta1 = (getattr(settings.pessimism, name, 0.5) for name in ("lr", "beta1"))
        self.beta_optimizer = torch.optim.Adam([self.beta], lr, (beta1, 0.999))

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def optimism(self, step: int) -> float:
        """Return lambda_opt, which decays to zero (Sec. 4.3)."""
        start, steps = (getattr(self.settings.pessimism, name, 1) for name in ("optimism", "optimism_steps"))
        return start * max(0.0, 1 - step / steps)

    def environment_step(self, batches, next_noise, noise, step: int, chosen=()) -> dict[str, Tensor]:
        """Take one step of the outer loop: batches [U, B, ...], noise [U, B, act] and [B, act]."""
        for index in range(len(batches.reward)):
            obs, action, reward, discount, next_obs = (field[index].double() for field in batches)
            subset = chosen[index] if chosen else range(len(self.critics))
            with torch.no_grad():
                next_action, next_log_prob = self.policy(next_obs, next_noise[index].double())
                next_inputs = torch.cat([next_obs, next_action], -1)
                next_values = [critic_value(target, next_inputs) for target in self.targets]
                bonus = -self.alpha * next_log_prob
            target = reward + discount * (self.target_value(next_values, subset) + bonus)
            values = [critic_value(critic, torch.cat([obs, action], -1)) for critic in self.critics]
            loss = sum(0.5 * F.mse_loss(value, target.detach()) for value in values)
            self.learn_critics(loss)
        predictions = torch.stack([value.detach() for value in values])
        self.learn_beta(predictions, target)
        metrics = {"train/critic_loss": loss.detach(), "train/value": predictions.mean()}
        metrics["train/td_error"] = (target.detach() - predictions).mean()
        metrics["train/uncertainty"] = distance(list(predictions)).mean()
        return metrics | self.learn_policy(obs, noise.double(), step)

    def target_value(self, next_values: list[Tensor], subset) -> Tensor:
        if self.rule == "subset":
            return torch.stack([next_values[index] for index in subset]).amin(0)
        return sum(next_values) / len(next_values) - self.beta * distance(next_values)

    def learn_critics(self, loss: Tensor) -> None:
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        with torch.no_grad():
            for critic, target, norms in zip(self.critics, self.targets, self.spectral, strict=True):
                for name, norm in norms.items():
                    norm.project(critic[name])
                for name, weight in critic.items():
                    target[name].mul_(1 - self.settings.tau).add_(self.settings.tau * weight)

    def learn_beta(self, predictions: Tensor, target: Tensor) -> None:
        self.beta_optimizer.zero_grad()
        if self.rule == "learned":
            (-self.beta * (target.detach() - predictions).mean()).backward()
        elif self.rule == "squared-bias":
            (target - predictions.mean(0)).square().mean().backward()
        else:
            return
        self.beta_optimizer.step()

    def learn_policy(self, obs: Tensor, noise: Tensor, step: int) -> dict[str, Tensor]:
        action, log_prob = self.policy(obs, noise)
        values = [critic_value(critic, torch.cat([obs, action], -1)) for critic in self.critics]
        value = sum(values) / len(values)
        if self.rule != "subset":
            value = value - (self.beta.detach() - self.optimism(step)) * distance(values)
        loss = (self.alpha * log_prob - value).mean()
        self.policy_optimizer.zero_grad()
        loss.backward()
        clip = self.settings.actor_clip or math.inf
        self.gradient_norm = nn.utils.clip_grad_norm_(self.policy.weights, clip)
        self.policy_optimizer.step()
        entropy = -log_prob.detach().mean()
        self.alpha_optimizer.zero_grad()
        (self.log_alpha * (entropy - self.settings.target_entropy)).backward()
        self.alpha_optimizer.step()
        return {"train/actor_loss": loss.detach(), "train/entropy": entropy, "train/alpha": self.alpha}

    @torch.no_grad()
    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([obs, action], -1).double()
        return sum(critic_value(critic, inputs) for critic in self.critics) / len(self.critics)
