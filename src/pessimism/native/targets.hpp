// TD targets of critics with one atom, for strategies whose value is a weighted sum of estimates in ascending order.

#pragma once

#include "problem.hpp"

// All updates of an environment step.
extern "C" struct Updates {  // mirrored by ctypes
    Index count, estimates;                                // updates; estimates of a transition's next value
    const Index *read, *chosen;                            // [count], [count, estimates]: how many are read, and which
    const float* weights;                                  // [count, estimates]: of those that are read, lowest first
    const float *inputs, *next_inputs;                     // [count, batch, inputs], [count, batch of the readings, inputs]
    const float *rewards, *discounts, *bonuses;            // [count, batch]
    const float *rates, *square_scales;                    // [count]: of the optimizer's steps
    float *values, *losses, *next_values;                  // of the last update
};

// Lines of vectors in ascending order, lane by lane: in turns, odd and even neighbours change places where they must.
inline void sort_lines(float* lines, Index count) {
    for (Index round = 0; round < count; round++)
        for (Index i = round % 2; i + 1 < count; i += 2) {
            float* pair = lines + i * LANES;
            const Vector first = load(pair), second = load(pair + LANES);
            const Mask swap = second < first;
            store(pair, (Vector)((swap & (Mask)second) | (~swap & (Mask)first)));
            store(pair + LANES, (Vector)((swap & (Mask)first) | (~swap & (Mask)second)));
        }
}

// y = r + gamma (sum_i weights[i] x_(i) + bonus) for one update, from estimates [estimates, batch].
inline void td_targets(const Updates& all, Index update, Index batch, const float* estimates, float* targets) {
    const Index read = all.read[update], *chosen = all.chosen + update * all.estimates;
    const float *weights = all.weights + update * all.estimates, *reward = all.rewards + update * batch;
    const float *discount = all.discounts + update * batch, *bonus = all.bonuses + update * batch;
    thread_local Memory memory;
    float* lines = memory.fit(read * LANES);
    for_vectors(0, batch, [&](Index b, auto lanes) {
        for (Index i = 0; i < read; i++) store(lines + i * LANES, load(estimates + chosen[i] * batch + b, lanes));
        sort_lines(lines, read);
        Vector value = load(bonus + b, lanes);
        for (Index i = 0; i < read; i++) value += weights[i] * load(lines + i * LANES);
        store(targets + b, load(reward + b, lanes) + load(discount + b, lanes) * value, lanes);
    });
}
