"""The update from images written out: convolutions, trunks and windows one by one, in double precision."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from by_hand import GaussianPolicy, critic_value, distance, double, one_critic


def doubled(module) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(double(weight)) for name, weight in module.named_parameters()}


def window(images: Tensor, place: Tensor, padding: int, size: int) -> Tensor:
    """Cut one window out of each stack [B, stack, H, W, C]; borders are repeated: [B, stack * C, size, size]."""
    cut = []
    for stack, (top, left) in zip(images, place.tolist(), strict=True):
        channels = stack.permute(0, 3, 1, 2).flatten(0, 1).double()  # oldest frame first
        padded = F.pad(channels[None], [padding] * 4, mode="replicate")[0] if padding else channels
        cut.append(padded[:, top : top + size, left : left + size])
    return torch.stack(cut)


def encode(weights, images: Tensor, offset: float) -> Tensor:
    """Four convolutions; features in the order row, column, filter."""
    hidden = images / 255 - offset
    for index in range(4):
        stride = 2 if index == 0 else 1
        hidden = F.relu(
            F.conv2d(hidden, weights[f"layers.{index}.weight"], weights[f"layers.{index}.bias"], stride)
        )
    return hidden.permute(0, 2, 3, 1).flatten(1)


def trunk(weights, features: Tensor, squashed: bool) -> Tensor:
    hidden = F.linear(features, weights["linear.weight"], weights["linear.bias"])
    hidden = F.layer_norm(hidden, hidden.shape[-1:], weights["norm.weight"], weights["norm.bias"])
    return hidden.tanh() if squashed else hidden


class NoisyPolicy:
    """A deterministic policy with clipped noise; gradients pass as if there were no noise."""

    def __init__(self, actor, clip: float) -> None:
        self.weights, self.clip, self.std = [nn.Parameter(double(w)) for w in actor.net.parameters()], clip, 0.0

    def __call__(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        first, second, third = zip(self.weights[::2], self.weights[1::2], strict=True)
        mean = F.linear(F.relu(F.linear(F.relu(F.linear(inputs, *first)), *second)), *third).tanh()
        moved = mean.detach() + (self.std * noise).clamp(-self.clip, self.clip)
        action = moved.clamp(-1 + 1e-6, 1 - 1e-6) + mean - mean.detach()
        return action, torch.zeros(len(mean), 1, dtype=torch.float64)


class PixelAlgorithm1:
    """DrQ-v2 and pixel SAC with GPL's target (`rule` "learned") or the minimum of two critics ("minimum"); CURL."""

    def __init__(self, agent, rule: str, settings) -> None:
        self.rule, self.settings, self.pixels = rule, settings, settings.pixels
        self.padding, self.size = agent.crop.padding, agent.crop.size
        members = range(len(agent.critic.head.bias))
        self.critics = [one_critic(agent.critic, index) for index in members]
        self.targets = [one_critic(agent.target_critic, index) for index in members]
        self.encoder, self.trunk = doubled(agent.encoder), doubled(agent.critic.trunk)
        self.target_trunk, self.policy_trunk = doubled(agent.target_critic.trunk), doubled(agent.actor.trunk)
        self.target_encoder = doubled(agent.target_encoder) if self.pixels.encoder_tau else self.encoder
        noisy = settings.policy == "noisy"
        self.policy = NoisyPolicy(agent.actor.policy, settings.noise_clip) if noisy else None
        self.policy = self.policy or GaussianPolicy(agent.actor.policy)
        self.log_alpha = nn.Parameter(double(agent.log_alpha))
        self.beta = nn.Parameter(double(getattr(agent.pessimism, "beta", torch.zeros(()))))
        seen = [*self.encoder.values(), *self.trunk.values()]
        heads = [weight for critic in self.critics for weight in critic.values()]
        policy = [*self.policy_trunk.values(), *self.policy.weights]
        self.critic_optimizer = torch.optim.Adam([*seen, *heads], settings.lr)
        self.policy_optimizer = torch.optim.Adam(policy, settings.lr)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], settings.alpha_lr, (settings.alpha_beta1, 0.999))
        self.beta_optimizer = torch.optim.Adam([self.beta], getattr(settings.pessimism, "lr", 1.0), (0.5, 0.999))
        if self.pixels.contrastive:
            self.similarity = nn.Parameter(double(agent.contrast.weight))
            self.view_optimizers = [torch.optim.Adam(seen, settings.lr)]
            self.view_optimizers += [torch.optim.Adam([*seen, self.similarity], settings.lr)]

    def schedules(self, step: int) -> None:
        start, end, steps = self.settings.noise
        self.policy.std = start + (end - start) * min(step / steps, 1.0)
        start, steps = (getattr(self.settings.pessimism, name, 1) for name in ("optimism", "optimism_steps"))
        self.optimism = start * max(0.0, 1 - step / steps)

    def features(self, weights, images: Tensor, place: Tensor) -> Tensor:
        cut = window(images, place, self.padding, self.size)
        return encode(weights, cut, 0.5 if self.pixels.centred else 0.0)

    def act(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(trunk(self.policy_trunk, features, self.pixels.squashed), noise.double())

    def values(self, critics, weights, features: Tensor, action: Tensor) -> list[Tensor]:
        inputs = torch.cat([trunk(weights, features, self.pixels.squashed), action], -1)
        return [critic_value(critic, inputs) for critic in critics]

    def penalised(self, values: list[Tensor], beta) -> Tensor:
        if self.rule == "minimum":
            return torch.minimum(*values)
        return sum(values) / len(values) - beta * distance(values)

    def environment_step(self, batches, views, noise, step: int) -> dict[str, Tensor]:
        """Take one step: batches [U, B, ...] of images, each update's windows and noise, the policy's noise."""
        self.schedules(step)
        for index, (place, next_place, next_noise, other_place) in enumerate(views):
            obs, next_obs = batches.obs[index], batches.next_obs[index]
            action, reward, discount = (batches[field][index].double() for field in (1, 2, 3))
            with torch.no_grad():
                next_features = self.features(self.encoder, next_obs, next_place)
                next_action, next_log_prob = self.act(next_features, next_noise)
                seen = self.features(self.target_encoder, next_obs, next_place)
                next_values = self.values(self.targets, self.target_trunk, seen, next_action)
                bonus = -self.log_alpha.exp() * next_log_prob
            target = reward + discount * (self.penalised(next_values, self.beta.detach()) + bonus)
            features = self.features(self.encoder, obs, place)
            values = self.values(self.critics, self.trunk, features, action)
            loss = sum(self.settings.critic.scale * F.mse_loss(value, target) for value in values)
            self.descend(self.critic_optimizer, loss)
            if self.settings.average_with == "critic":
                self.average()
            if other_place is not None:
                self.learn_views(obs, place, other_place)
        if self.settings.average_with == "policy":
            self.average()
        error = (target - torch.stack(values).detach()).mean()
        if self.rule == "learned":
            self.descend(self.beta_optimizer, -self.beta * error)
        self.learn_policy(features.detach(), noise)
        return {"train/critic_loss": loss.detach(), "train/td_error": error}

    @staticmethod
    def descend(optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def average(self) -> None:
        """Move the target weights towards the others: those of encoder and trunk at a rate of their own."""
        tau, encoder_tau = self.settings.tau, self.pixels.encoder_tau
        pairs = [(target, critic, tau) for target, critic in zip(self.targets, self.critics, strict=True)]
        pairs.append((self.target_trunk, self.trunk, encoder_tau or tau))
        if encoder_tau:
            pairs.append((self.target_encoder, self.encoder, encoder_tau))
        for target, source, share in pairs:
            for name, weight in source.items():
                target[name].mul_(1 - share).add_(share * weight)

    def learn_policy(self, features: Tensor, noise: Tensor) -> None:
        action, log_prob = self.act(features, noise)
        values = self.values(self.critics, self.trunk, features, action)
        value = self.penalised(values, self.beta.detach() - self.optimism)
        self.descend(self.policy_optimizer, (self.log_alpha.detach().exp() * log_prob - value).mean())
        if self.settings.alpha:
            entropy = -log_prob.detach().mean()
            self.descend(self.alpha_optimizer, self.log_alpha * (entropy - self.settings.target_entropy))

    def learn_views(self, obs: Tensor, place: Tensor, other_place: Tensor) -> None:
        """CURL: tell each image's other window from those of the other images; two optimizers, one gradient."""
        with torch.no_grad():
            positive = trunk(self.target_trunk, self.features(self.target_encoder, obs, other_place), False)
        anchor = trunk(self.trunk, self.features(self.encoder, obs, place), False)
        for optimizer in self.view_optimizers:
            optimizer.zero_grad()
        F.cross_entropy(anchor @ self.similarity @ positive.T, torch.arange(len(obs))).backward()
        for optimizer in self.view_optimizers:
            optimizer.step()
