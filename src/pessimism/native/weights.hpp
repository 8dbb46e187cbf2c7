// How one member's weights change: Adam, the spectral projection, the average.

#pragma once

#include "problem.hpp"

class Weights {
  public:
    Weights(const Problem& problem, Index member) : p(problem), n(member) {}

    float rate = 0, square_scale = 0;  // of this step, as the optimizer's bias corrections have it

    float* of(float* const* tensors, int parameter) const { return tensors[parameter] + n * p.size(parameter); }

    void adam(int parameter, Index begin, Index count, const float* gradients) const {
        float *__restrict weight = of(p.online, parameter) + begin, *__restrict mean = of(p.means, parameter) + begin;
        float* __restrict square = of(p.squares, parameter) + begin;
        const float first = p.first_rate, second = p.second_rate, keep = p.second_decay, epsilon = p.epsilon;
        const float rate = this->rate, scale = square_scale;
        for_vectors(0, count, [=](Index j, auto lanes) {
            const Vector g = load(gradients + j, lanes), old = load(mean + j, lanes);
            const Vector m = old + first * (g - old);
            const Vector v = keep * load(square + j, lanes) + second * g * g;
            const Vector step = rate * m / (root(v * scale) + epsilon);
            store(mean + j, m, lanes);
            store(square + j, v, lanes);
            store(weight + j, load(weight + j, lanes) - step, lanes);
        });
    }

    // Move the averaged weights towards the weights.
    void average(int parameter, Index begin, Index count) const {
        const float* __restrict weight = of(p.online, parameter) + begin;
        float* __restrict averaged = of(p.averaged, parameter) + begin;
        const float tau = p.tau;
        for_vectors(0, count, [=](Index j, auto lanes) {
            const Vector old = load(averaged + j, lanes);
            store(averaged + j, old + tau * (load(weight + j, lanes) - old), lanes);
        });
    }

    // Adam on a row of a matrix, and what else can be done while it is in the first-level cache: the average, or the
    // first half of the power iteration of a matrix whose average has to wait for its projection.
    void update_row(int parameter, Index i, const float* gradient, float* image) const {
        adam(parameter, i * p.hidden, p.hidden, gradient);
        if (!p.left[parameter]) return average(parameter, i * p.hidden, p.hidden);
        const float left = p.left[parameter][n * p.hidden + i];
        add_scaled(image, left, of(p.online, parameter) + i * p.hidden, p.hidden);
    }

    // Divide rows by the largest singular value, and average them.
    void scale_row(int parameter, Index i, float factor) const {
        float* row = of(p.online, parameter) + i * p.hidden;
        for_vectors(0, p.hidden, [=](Index j, auto lanes) { store(row + j, load(row + j, lanes) * factor, lanes); });
        average(parameter, i * p.hidden, p.hidden);
    }

    // Ask for what Adam will need for some rows.
    void prefetch_rows(int parameter, Index i, Index end) const {
        for (float* const* tensors : {p.means, p.squares, p.averaged})
            prefetch(of(tensors, parameter) + i * p.hidden, (end - i) * p.hidden);
    }

  private:
    const Problem& p;
    const Index n;
};
