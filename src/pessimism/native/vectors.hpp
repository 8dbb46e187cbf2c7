// Sixteen floats at a time.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

using Index = int64_t;
using Vector = __m512;
constexpr Index LANES = 16;

inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
inline Vector all(float value) { return _mm512_set1_ps(value); }
inline Vector positive(Vector gate, Vector value) {  // value where gate > 0, else 0
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_GT_OQ), value);
}

// Newton's step doubles the 14 digits of the processor's estimates, in less time than a division or a root takes.
inline Vector reciprocal(Vector value) {
    const Vector guess = _mm512_rcp14_ps(value);
    return guess * (all(2) - value * guess);
}
inline Vector root(Vector value) {  // of a number that is not negative
    const Vector safe = _mm512_max_ps(value, all(1e-37f)), guess = _mm512_rsqrt14_ps(safe);
    return value * guess * (all(1.5f) - all(0.5f) * safe * guess * guess);
}

// The sum of `term(j)` over j = 0, 16, 32, ... below size: two sums at a time, as an addition has to wait for the last.
template <class Term>
float sum_of(Index size, Term term) {
    Vector even = all(0), odd = all(0);
    for (Index j = 0; j < size; j += 2 * LANES) {
        even += term(j);
        odd += term(j + LANES);
    }
    return _mm512_reduce_add_ps(even + odd);
}

inline float dot(const float* a, const float* b, Index size) {
    return sum_of(size, [=](Index j) { return load(a + j) * load(b + j); });
}

inline void add_scaled(float* to, float scale, const float* from, Index size) {
    for (Index j = 0; j < size; j += LANES) store(to + j, load(to + j) + all(scale) * load(from + j));
}

// Ask for memory, into the second-level cache. (GCC 12 leaves out a function that does nothing but _mm_prefetch.)
inline void prefetch(const float* from, Index count) {
    for (Index j = 0; j < count; j += LANES) asm volatile("prefetcht1 %0" ::"m"(from[j]));
}

// Transpose sixteen vectors in place.
inline void transpose(Vector (&a)[LANES]) {
    Vector b[LANES];
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            b[i + j] = _mm512_shuffle_f32x4(a[i + j], a[i + j + 4], 0x88);
            b[i + j + 4] = _mm512_shuffle_f32x4(a[i + j], a[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        a[j] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88);
        a[j + 8] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0xdd);
    }
}

// Memory that begins where a cache line does, grows when more is asked for, and starts out as zeros.
class Memory {
  public:
    float* fit(Index count) {
        if (count > size) {
            const Index bytes = (count * Index(sizeof(float)) + 63) / 64 * 64;
            data.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
            std::fill_n(data.get(), bytes / Index(sizeof(float)), 0.f);
            size = count;
        }
        return data.get();
    }

  private:
    struct Free {
        void operator()(float* data) const { std::free(data); }
    };
    std::unique_ptr<float, Free> data;
    Index size = 0;
};

// A matrix as it stands in a product; `transposed` says that its columns are lines in memory.
struct Matrix {
    const float* data;
    Index rows, columns, line;  // from a line in memory to the next
    bool transposed = false, binary = false;               // binary: zeros and ones only
    const float *by_line = nullptr, *by_column = nullptr;  // factors of the lines and columns in memory, if any

    Matrix(const float* data, Index rows, Index columns) : data(data), rows(rows), columns(columns), line(columns) {}

    Matrix t() const {
        Matrix other = *this;
        std::swap(other.rows, other.columns);
        other.transposed = !transposed;
        return other;
    }
    Matrix strip(Index i, Index count) const {  // some of its rows
        Matrix other = *this;
        other.data += transposed ? i : i * line;
        other.rows = count;
        if (!transposed && by_line) other.by_line += i;
        if (transposed && by_column) other.by_column += i;
        return other;
    }
};
