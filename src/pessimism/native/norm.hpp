// Layer normalisation of rows, which are padded to whole vectors.

#pragma once

#include "vectors.hpp"

inline void add(float* to, Vector value) { store(to, load(to) + value); }

// out = (in - centre) scale gain + shift. Gain and shift are 0 in the padding.
struct LayerNorm {
    const float *gain, *shift;
    const float* inside;    // 1, in the padding 0
    float *centre, *scale;  // of each row
    Index size, width;      // with the padding and without
    float epsilon;

    // `after(value)` is what becomes of the output.
    template <class After>
    void forward(Index b, const float* in, float* out, After after) const {
        const float *gain = this->gain, *shift = this->shift, *inside = this->inside;
        const float centre = sum_of(size, [=](Index j, auto) { return load(in + j); }) / width;
        const float squares = sum_of(size, [=](Index j, auto) {
            const Vector distance = (load(in + j) - centre) * load(inside + j);
            return distance * distance;
        });
        const float scale = 1 / std::sqrt(squares / width + epsilon);
        this->centre[b] = centre;
        this->scale[b] = scale;
        for (Index j = 0; j < size; j += LANES)
            store(out + j, after((load(in + j) - centre) * scale * load(gain + j) + load(shift + j)));
    }

    // From the gradient of the outputs, `given(j)`, to that of the inputs, which goes to `put(j, gradient)`. `row` keeps
    // what the second loop needs of the first, and may be where either of the two comes from or goes to.
    template <class Given, class Put>
    void backward(Index b, const float* in, float* row, float* by_gain, float* by_shift, Given given, Put put) const {
        const float centre = this->centre[b], scale = this->scale[b], *gain = this->gain;
        Vector total{}, along{};
        for (Index j = 0; j < size; j += LANES) {
            const Vector by_output = given(j), normal = (load(in + j) - centre) * scale;
            const Vector by_normal = by_output * load(gain + j);
            add(by_gain + j, by_output * normal);
            add(by_shift + j, by_output);
            store(row + j, by_normal);
            total += by_normal;
            along += by_normal * normal;
        }
        const float mean = sum(total) / width, slope = sum(along) / width;
        for (Index j = 0; j < size; j += LANES) {
            const Vector normal = (load(in + j) - centre) * scale;
            put(j, scale * (load(row + j) - mean - normal * slope));
        }
    }
};
