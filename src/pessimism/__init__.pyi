# Written by python -m pessimism.tools.stub from the table of presets.
from pessimism.api import Algorithm as Algorithm
from pessimism.errors import UserError as UserError
from pessimism.training.loop import Callback as Callback

class GPLSAC(Algorithm):
    """SAC with learned pessimism: 10 residual critics, 20 updates per step.

    Source: paper, Alg. 1.
    """

class GPLSACAnneal(Algorithm):
    """GPL-SAC whose policy starts out more optimistic: pessimism annealing.

    Source: paper 4.3 and App. D.3.
    """

class GPLSACE2E(Algorithm):
    """GPL-SAC with beta on the gradient of the squared bias instead of dual TD-learning.

    Source: paper, App. D.2.
    """

class GPLSACTOP(Algorithm):
    """GPL-SAC with beta drawn for each episode by TOP's bandit.

    Source: paper, App. D.2, with the bandit of Moskovitz et al., 2021.
    """

class GPLSACCalibrated(Algorithm):
    """GPL-SAC with beta moved by the bias that is measured on training episodes.

    Source: this library, docs/results.md.
    """

class GPLQRSAC(Algorithm):
    """GPL-SAC with 10 quantiles per critic, Wasserstein-1.

    Source: paper, App. D.6.
    """

class GPLQRSACW2(Algorithm):
    """GPL-SAC with 10 quantiles per critic, Wasserstein-2.

    Source: paper, App. D.6.
    """

class SAC20(Algorithm):
    """SAC with 20 updates per step: 2 plain critics, their minimum.

    Source: paper, App. B.2, SAC-20.
    """

class SAC(Algorithm):
    """SAC with one update per step: 2 plain critics, their minimum.

    Source: Haarnoja et al., 2018, in the implementation of SAC-20.
    """

class REDQ(Algorithm):
    """10 plain critics, targets from the minimum of a random pair.

    Source: paper, Sec. 5.1; Chen et al., 2021, with their networks.
    """

class XQC(Algorithm):
    """2 categorical critics with BatchNorm and weights of length 1, 2 updates per step, the lower critic.

    Source: Palenicek et al., 2025 (XQC), released code.
    """

class GPLXQC(Algorithm):
    """XQC with learned pessimism.

    Source: Palenicek et al., 2025 (XQC), released code, with the rule of GPL-SAC.
    """

class DroQ(Algorithm):
    """2 critics with dropout and LayerNorm, 20 updates per step, their minimum.

    Source: Hiraoka et al., 2022 (DroQ), released code.
    """

class GPLDroQ(Algorithm):
    """DroQ with learned pessimism.

    Source: Hiraoka et al., 2022 (DroQ), released code, with the rule of GPL-SAC.
    """

class GPLDropout(Algorithm):
    """DroQ with 1 critic and learned pessimism: the disagreement is that of 5 dropout masks.

    Source: the paper's future work, a posterior instead of an ensemble, on DroQ's critic.
    """

class RLPD(Algorithm):
    """With --prior: 10 critics with LayerNorm, half of each batch prior data, the minimum of a random pair.

    Source: Ball et al., 2023 (RLPD), released code.
    """

class GPLRLPD(Algorithm):
    """With --prior: RLPD from the first step, beta fixed until online episodes show the critics' bias.

    Source: Ball et al., 2023 (RLPD), released code, with the rule of gpl-sac-calibrated.
    """

class MBPO(Algorithm):
    """SAC on short rollouts of a learned model (Ant and Humanoid: positions and velocities only).

    Source: paper, Sec. 5.1; Janner et al., 2019 (MBPO), released code.
    """

class DrQv2(Algorithm):
    """From pixels: DrQ-v2, a noisy policy, 3-step returns, random shifts, 2 critics and their minimum.

    Source: paper, Table of GPL-DrQ hyper-parameters; Yarats et al., 2022 (DrQ-v2), released code.
    """

class GPLDrQ(Algorithm):
    """From pixels: DrQ-v2 with learned pessimism.

    Source: paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters.
    """

class GPLDrQAnneal(Algorithm):
    """From pixels: GPL-DrQ whose policy starts out more optimistic, as long as the noise decays.

    Source: paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters.
    """

class GPLDrQTOP(Algorithm):
    """From pixels: GPL-DrQ with beta drawn for each episode by TOP's bandit.

    Source: paper, App. D.2, with the bandit of Moskovitz et al., 2021.
    """

class GPLDrQCalibrated(Algorithm):
    """From pixels: GPL-DrQ with beta moved by the bias that is measured on training episodes.

    Source: this library, docs/results.md.
    """

class CURL(Algorithm):
    """From pixels: SAC with features learned by contrast of two crops.

    Source: Laskin et al., 2020 (CURL), released code.
    """

class PixelSAC(Algorithm):
    """From pixels: SAC whose encoder learns from the critics alone.

    Source: Yarats et al., 2021 (SAC-AE), released code without the decoder.
    """
