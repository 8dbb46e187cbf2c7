// Memory for one member's update, in a core's second-level cache.

#pragma once

#include <array>

#include "choices.hpp"
#include "matrix.hpp"
#include "problem.hpp"

constexpr Index LINE = 64 / sizeof(float);  // floats in a cache line

// Lines of activations are this far apart. The cache line between them keeps lines of 1024 bytes out of each other's
// place in the first-level cache.
inline Index stride_of(Index hidden) { return padded(hidden) + LINE; }

// Hands out parts of one piece of memory; without one, it counts how much that would be.
class Parts {
  public:
    explicit Parts(float* memory) : memory(memory) {}
    float* take(Index count) {
        const Index start = std::exchange(taken, taken + (count + LINE - 1) / LINE * LINE);
        return memory ? memory + start : nullptr;
    }
    Index taken = 0;

  private:
    float* memory;
};

// Sums over some transitions.
struct Sums {
    std::array<float*, PARAMETERS> by{};  // gradients of vectors [size], of the head [atoms, size] and its bias [atoms]
    float* by_hidden = nullptr;           // [atoms, size]: activations times errors
    float* loss = nullptr;
    float *begin = nullptr, *end = nullptr;

    Sums() = default;
    Sums(Parts& parts, Index size, Index atoms) {
        begin = parts.take(0);
        for (int parameter : VECTORS) by[parameter] = parts.take(size);
        by[HEAD] = parts.take(atoms * size);
        by_hidden = parts.take(atoms * size);
        by[HEAD_BIAS] = parts.take(atoms);
        loss = parts.take(1);
        end = parts.take(0);
    }
};

// A member's activations and gradients.
struct Activations {
    float *first, *normal, *hidden, *gradient;  // [kept rows, stride]
    float *centre, *scale;                      // [2 norms, batch]
    float* errors;                              // [kept rows, atoms]
    std::array<float*, PARAMETERS> vector;      // the network's vectors, padded with zeros; the head as [atoms, size]
    float *readout, *offset;                    // [atoms, size], [atoms]: what the square layer's units and 1 count
    float* inside;                              // [size]: 1, in the padding 0
};

// A team's own, kept between calls.
template <class Products>
struct Workspace : Activations {
    typename Products::Right first_layer, square_layer;
    vectors::Choices choices;                   // which units are active, if products choose
    float *images, *image;                      // [chunks, size], [size]: of singular vectors
    float* head_gradient;                       // [hidden, atoms]
    Index chunks;

    // Activations are kept for a gradient; `kept` is the batch then, else 0.
    void fit(const Problem& p, Index kept, Index threads) {
        const Index needed = lay_out(p, kept, threads, nullptr);
        float* start = memory.fit(needed);
        lay_out(p, kept, threads, start);
        std::fill_n(inside, padded(p.hidden), 0.f);
        std::fill_n(inside, p.hidden, 1.f);
    }

    Sums sums(const Problem& p, Index chunk) const {
        Parts parts(all_sums + chunk * sums_size);
        return Sums(parts, padded(p.hidden), p.atoms);
    }

  private:
    Memory memory;
    float* all_sums;
    Index sums_size;

    Index lay_out(const Problem& p, Index kept, Index threads, float* start) {
        Parts parts(start);
        const Index size = padded(p.hidden), rows = std::max(kept, threads * CHUNK) + CHUNK;
        for (float** lines : {&first, &normal, &hidden, &gradient}) *lines = parts.take(rows * stride_of(p.hidden));
        for (float** column : {&centre, &scale}) *column = parts.take(2 * p.batch);
        errors = parts.take(kept * p.atoms);
        for (float*& part : vector) part = parts.take(size * p.atoms);
        for (float** part : {&readout, &offset}) *part = parts.take(size * p.atoms);
        for (float** part : {&inside, &image}) *part = parts.take(size);
        images = parts.take(std::max(chunks_of(p.hidden), chunks_of(p.inputs)) * size);
        head_gradient = parts.take(p.hidden * p.atoms);
        chunks = chunks_of(kept);
        Parts one(nullptr);
        sums_size = (Sums(one, size, p.atoms), one.taken);
        all_sums = parts.take(chunks * sums_size);
        return parts.taken;
    }
};

// A thread's own.
template <class Products>
struct Scratch {
    typename Products::Left left;
    float *rows, *next_rows;  // [CHUNK, stride], of a weight gradient, or an input gradient
    float* columns;           // [size, CHUNK], of a weight gradient
    float* units;             // [CHUNK, stride], behind a layer norm

    void fit(const Problem& p) {
        const Index count = std::max(CHUNK * std::max(stride_of(p.hidden), padded(p.inputs)), p.atoms);
        rows = memory.fit(2 * count + CHUNK * (padded(p.hidden) + stride_of(p.hidden)));
        next_rows = rows + count;
        columns = next_rows + count;
        units = columns + padded(p.hidden) * CHUNK;
    }

  private:
    Memory memory;
};
