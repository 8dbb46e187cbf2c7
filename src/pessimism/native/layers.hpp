// What the two hidden layers do with a row of activations between the products, in each form of critic.

#pragma once

#include "norm.hpp"
#include "workspace.hpp"

class Layers {
  public:
    Layers(const Problem& problem, Index member, const Activations& activations, float* units)
        : residual(problem.residual()), normalised(problem.normalised()), folded(problem.atoms == 1 && !normalised),
          p(problem), n(member), w(activations), units(units), size(padded(p.hidden)), stride(stride_of(p.hidden)) {}

    const bool residual, normalised;
    const bool folded;  // is the gradient of the square layer's sums a mask between two factors?
    Masks masks{};  // of the forward pass that is going on, and of its backward pass

    // What the square layer is given, once `activate_first` has been called.
    float* square_inputs() const { return residual || normalised ? w.normal : w.first; }

    // From the first layer's sums, which are at `start`, to the square layer's inputs.
    void activate_first(Index b, Index start) const {
        float *row = w.first + start, *normal = w.normal + start;
        if (normalised) {
            drop(0, b, row, w.vector[FIRST_BIAS]);
            return first_norm().forward(b, row, normal, [](Vector value) { return relu(value); });
        }
        bias_relu(row, w.vector[FIRST_BIAS]);
        if (residual) first_norm().forward(b, row, normal, [](Vector value) { return value; });
    }

    // From the square layer's sums to its units, and to the values. Where units are normalised they have a place of their
    // own, because the sums are needed again.
    void activate_square(Index b, float* row, const float* first, float* values) const {
        if (normalised) {
            drop(1, b, row, w.vector[INNER_BIAS]);
            inner_norm().forward(b, row, units_of(b), [](Vector value) { return relu(value); });
        } else {
            bias_relu(row, w.vector[INNER_BIAS]);
        }
        const float* active = normalised ? units_of(b) : row;
        for (Index k = 0; k < p.atoms; k++) {
            values[k] = dot(active, w.readout + k * size, size) + w.offset[k];
            if (residual) values[k] += dot(first, w.vector[HEAD] + k * size, size);
        }
    }

    // From the errors of the values to the gradient of the square layer's sums, in their place. With one atom behind a
    // ReLU that gradient is error[b] readout[j] where the unit is active, else 0: zeros and ones are left there, and the
    // factors come in where they cost nothing.
    void backward_head(Index b, const Sums& sums) const {
        float *row = w.hidden + b * stride, *by_bias = sums.by[INNER_BIAS];
        const float *active = normalised ? units_of(b) : row, *errors = w.errors + b * p.atoms;
        for (Index k = 0; k < p.atoms; k++) {
            sums.by[HEAD_BIAS][k] += errors[k];
            add_scaled(sums.by_hidden + k * size, errors[k], active, size);
            if (residual) add_scaled(sums.by[HEAD] + k * size, errors[k], w.first + b * stride, size);
        }
        if (normalised) return backward_inner_norm(b, row, sums);
        for (Index j = 0; j < size; j += LANES) {
            const Vector gradient = positive(load(row + j), folded ? all(1) : combined(w.readout + j, errors));
            add(by_bias + j, folded ? *errors * gradient : gradient);
            store(row + j, gradient);
        }
    }

    // From the gradient of the square layer's inputs, without the error where it is folded, to that of the first layer's
    // sums, in place.
    void backward_first(Index b, const Sums& sums) const {
        float *row = w.gradient + b * stride, *by_bias = sums.by[FIRST_BIAS];
        const float *first = w.first + b * stride, *normal = w.normal + b * stride, *errors = w.errors + b * p.atoms;
        const float error = folded ? *errors : 1;
        const auto put = [&](Index j, Vector gradient) {
            store(row + j, gradient);
            add(by_bias + j, gradient);
        };
        const auto put_active = [&](Index j, Vector gradient) { put(j, positive(load(first + j), gradient)); };
        const auto through_norm = [&](auto given, auto put) {
            first_norm().backward(b, first, row, sums.by[GAIN], sums.by[SHIFT], given, put);
        };
        if (normalised) {
            const auto given = [&](Index j) { return positive(load(normal + j), load(row + j)); };
            with_dropout(0, b, [&](auto factors) {
                through_norm(given, [&](Index j, Vector by) { put(j, by * factors(j)); });
            });
        } else if (residual) {  // whose head also sees the first layer
            const auto given = [&](Index j) { return error * load(row + j); };
            through_norm(given, [&](Index j, Vector by) { put_active(j, by + combined(w.vector[HEAD] + j, errors)); });
        } else {
            for (Index j = 0; j < size; j += LANES) put_active(j, error * load(row + j));
        }
    }

    Vector combined(const float* lines, const float* errors) const {  // sum_k errors[k] lines[k]
        Vector total = errors[0] * load(lines);
        for (Index k = 1; k < p.atoms; k++) total += errors[k] * load(lines + k * size);
        return total;
    }

  private:
    const Problem& p;
    const Index n;
    const Activations& w;
    float* const units;  // [CHUNK, stride]: the thread's own, of the rows that are being worked on
    const Index size, stride;

    float* units_of(Index b) const { return units + b % CHUNK * stride; }

    LayerNorm norm(int gain, int shift, Index layer) const {
        float *centre = w.centre + layer * p.batch, *scale = w.scale + layer * p.batch;
        return {w.vector[gain], w.vector[shift], w.inside, centre, scale, size, p.hidden, p.norm_epsilon};
    }
    LayerNorm first_norm() const { return norm(GAIN, SHIFT, 0); }
    LayerNorm inner_norm() const { return norm(INNER_GAIN, INNER_SHIFT, 1); }

    // Call `body(factors)` with the dropout of a layer's row.
    template <class Body>
    void with_dropout(Index layer, Index b, Body body) const {
        if (!p.drop_below) return body([](Index) { return all(1); });
        const uint32_t place = uint32_t((n * p.batch + b) * p.hidden);
        body(Dropout(masks.seeds[layer] + place, p.drop_below, p.kept_scale));
    }

    void drop(Index layer, Index b, float* row, const float* bias) const {
        with_dropout(layer, b, [&](auto factors) {
            for (Index j = 0; j < size; j += LANES) store(row + j, (load(row + j) + load(bias + j)) * factors(j));
        });
    }

    void bias_relu(float* row, const float* bias) const {
        for (Index j = 0; j < size; j += LANES) store(row + j, relu(load(row + j) + load(bias + j)));
    }

    void backward_inner_norm(Index b, float* row, const Sums& sums) const {
        float *active = units_of(b), *by_bias = sums.by[INNER_BIAS];
        const float* errors = w.errors + b * p.atoms;
        const auto given = [&](Index j) { return positive(load(active + j), combined(w.readout + j, errors)); };
        with_dropout(1, b, [&](auto factors) {
            const auto put = [&](Index j, Vector by) {
                const Vector gradient = by * factors(j);
                store(row + j, gradient);
                add(by_bias + j, gradient);
            };
            inner_norm().backward(b, row, active, sums.by[INNER_GAIN], sums.by[INNER_SHIFT], given, put);
        });
    }
};
