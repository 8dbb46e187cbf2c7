// What is learned, as Python describes it.

#pragma once

#include "dropout.hpp"

// The order of the critic's parameters, with null pointers where a form has no such layer. GAIN and SHIFT are those of the
// layer norm before the square layer, INNER_GAIN and INNER_SHIFT of the one behind it.
enum Parameter {
    FIRST, FIRST_BIAS, GAIN, SHIFT, INNER, INNER_BIAS, INNER_GAIN, INNER_SHIFT, OUTER, OUTER_BIAS, HEAD, HEAD_BIAS, PARAMETERS
};
constexpr Parameter VECTORS[] = {FIRST_BIAS, GAIN, SHIFT, INNER_BIAS, INNER_GAIN, INNER_SHIFT, OUTER_BIAS};  // [hidden]

extern "C" struct Problem {  // mirrored by ctypes
    Index members, batch, inputs, hidden, atoms;
    Index targets;     // atoms of the target: the loss is the quantiles' Huber loss, or squared if this is 0
    Index threads;
    Index tiles;       // whether the processor's tiles multiply, else its vectors
    Index parts;       // bfloat16 numbers that stand for a float in a product: 3 or 1 in tiles, 1 or 0 (the float) in vectors
    Index drop_below;  // units whose number, of 31 bits, is lower are dropped; 0: there is no dropout
    float *online[PARAMETERS], *averaged[PARAMETERS], *means[PARAMETERS], *squares[PARAMETERS];
    float *left[PARAMETERS], *right[PARAMETERS];  // singular vectors of the matrices that are projected, else null
    Stream online_streams[2], averaged_streams[2];
    float loss_scale, kappa;
    float norm_epsilon, first_rate, second_rate, second_decay, epsilon, tau;  // 1 - 0.999 loses digits in float: given
    float kept_scale;  // factor of the units that are not dropped

    bool residual() const { return online[OUTER] != nullptr; }
    bool normalised() const { return online[INNER_GAIN] != nullptr; }
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
