// What is learned, as Python describes it.

#pragma once

#include "vectors.hpp"

// The order of the critic's parameters; a plain critic has null pointers where it has no such layer.
enum Parameter { FIRST, FIRST_BIAS, GAIN, SHIFT, INNER, INNER_BIAS, OUTER, OUTER_BIAS, HEAD, HEAD_BIAS, PARAMETERS };

extern "C" struct Problem {  // mirrored by ctypes
    Index members, batch, inputs, hidden, atoms;
    Index targets;   // atoms of the target: the loss is the quantiles' Huber loss, or squared if this is 0
    Index threads;
    Index tiles;     // whether the processor's tiles multiply, else its vectors
    Index parts;     // bfloat16 numbers that stand for a float in a product: 3 or 1 in tiles, 1 or 0 (the float) in vectors
    float *online[PARAMETERS], *averaged[PARAMETERS], *means[PARAMETERS], *squares[PARAMETERS];
    float *left[PARAMETERS], *right[PARAMETERS];  // singular vectors of the matrices that are projected, else null
    float loss_scale, kappa;
    float norm_epsilon, first_rate, second_rate, second_decay, epsilon, tau;  // 1 - 0.999 loses digits in float: given

    bool residual() const { return online[OUTER] != nullptr; }
    Index size(int parameter) const {  // of one member
        switch (parameter) {
            case FIRST: return inputs * hidden;
            case INNER: case OUTER: return hidden * hidden;
            case HEAD: return hidden * atoms;
            case HEAD_BIAS: return atoms;
            default: return hidden;
        }
    }
};
