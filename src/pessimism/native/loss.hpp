// TD losses of one transition: values [atoms] and target [1 or targets] to the loss and its gradient.

#pragma once

#include <cmath>

#include "problem.hpp"

// scale (value - target)^2, averaged over the batch.
inline float squared_loss(const Problem& p, float value, float target, float* error) {
    const float difference = value - target;
    *error = 2 * p.loss_scale * difference / p.batch;
    return p.loss_scale * difference * difference / p.batch;
}

// The Huber quantile regression loss: summed over predicted quantiles, averaged over target atoms and the batch.
inline float quantile_loss(const Problem& p, const float* values, const float* target, float* errors) {
    const float share = 1.f / (p.batch * p.targets);
    float loss = 0;
    for (Index k = 0; k < p.atoms; k++) {
        const float above = (k + 0.5f) / p.atoms, below = 1 - above;  // weights of the errors' signs
        float slope = 0, total = 0;
        for (Index l = 0; l < p.targets; l++) {
            const float error = target[l] - values[k], size = std::abs(error);
            const float weight = error < 0 ? below : above;
            const float near = std::min(size, p.kappa);
            total += weight * near * (size - 0.5f * near);  // NaN stays NaN through `size`
            slope -= weight * std::copysign(near, error);
        }
        errors[k] = slope * share;
        loss += total * share;
    }
    return loss;
}

inline float td_loss(const Problem& p, const float* values, const float* target, float* errors) {
    return p.targets ? quantile_loss(p, values, target, errors) : squared_loss(p, *values, *target, errors);
}
