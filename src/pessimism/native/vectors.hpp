// Vectors of floats as the compiler knows them (GCC and Clang), as wide as the target's registers.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

using Index = int64_t;

#if defined(__AVX512F__)
constexpr Index LANES = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr Index LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr Index LANES = 4, REGISTERS = 32;
#else
constexpr Index LANES = 4, REGISTERS = 16;
#endif

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Mask __attribute__((vector_size(LANES * sizeof(float))));  // all bits of a lane, or none

inline Vector all(float value) { return value - Vector{}; }

// How many lanes are in memory: all of them, or the first few, the others being zero.
struct Whole {};
struct Some {
    Index count;
};

inline Vector load(const float* from, Whole = {}) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
inline Vector load(const float* from, Some some) {
    Vector value{};
    std::memcpy(&value, from, some.count * sizeof(float));
    return value;
}
inline void store(float* to, Vector value, Whole = {}) { std::memcpy(to, &value, sizeof value); }
inline void store(float* to, Vector value, Some some) { std::memcpy(to, &value, some.count * sizeof(float)); }

// Call `body(j, lanes)` for every vector of an array, from `begin` on; the last one may have only some lanes.
template <class Body>
void for_vectors(Index begin, Index count, Body body) {
    Index j = begin;
    for (; j + LANES <= count; j += LANES) body(j, Whole{});
    if (j < count) body(j, Some{count - j});
}

inline Vector positive(Vector gate, Vector value) { return (Vector)((gate > Vector{}) & (Mask)value); }  // else 0
inline Vector relu(Vector value) { return (Vector)(~(value < Vector{}) & (Mask)value); }  // NaN stays NaN

inline Vector root(Vector value) {
    float lanes[LANES];
    store(lanes, value);
    for (float& lane : lanes) lane = std::sqrt(lane);
    return load(lanes);
}

inline float sum(Vector value) {
    typedef float Four __attribute__((vector_size(4 * sizeof(float))));
    Four parts[LANES / 4];
    std::memcpy(parts, &value, sizeof value);
    for (Index i = 1; i < LANES / 4; i++) parts[0] += parts[i];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

// The sum of `term(j, lanes)` over the vectors of an array: two sums at a time, as an addition waits for the last.
template <class Term>
float sum_of(Index count, Term term) {
    Vector even{}, odd{};
    Index j = 0;
    for (; j + 2 * LANES <= count; j += 2 * LANES) {
        even += term(j, Whole{});
        odd += term(j + LANES, Whole{});
    }
    for_vectors(j, count, [&](Index k, auto lanes) { even += term(k, lanes); });
    return sum(even + odd);
}

inline float dot(const float* a, const float* b, Index count) {
    return sum_of(count, [=](Index j, auto lanes) { return load(a + j, lanes) * load(b + j, lanes); });
}

inline void add_scaled(float* to, float scale, const float* from, Index count) {
    for_vectors(0, count, [=](Index j, auto lanes) {
        store(to + j, load(to + j, lanes) + scale * load(from + j, lanes), lanes);
    });
}

// Ask for memory, into the second-level cache. (GCC 12 leaves out a function that does nothing but prefetch.)
inline void prefetch(const float* from, Index count) {
    for (Index j = 0; j < count; j += 64 / Index(sizeof(float))) {
        __builtin_prefetch(from + j, 0, 2);
        asm volatile("" ::"r"(from));
    }
}

// The first (HALF 0) or last (HALF 1) lanes of two vectors, in turns.
template <int HALF, int... I>
Vector interleave(Vector a, Vector b, std::integer_sequence<int, I...>) {
    constexpr int start = HALF * int(LANES) / 2;
#ifdef __clang__
    return __builtin_shufflevector(a, b, (start + I / 2 + I % 2 * int(LANES))...);
#else
    return __builtin_shuffle(a, b, Mask{(start + I / 2 + I % 2 * int(LANES))...});
#endif
}

// Transpose as many vectors as they have lanes, in place: each round interleaves the first half with the second.
inline void transpose(Vector (&a)[LANES]) {
    constexpr std::make_integer_sequence<int, LANES> lanes;
    for (Index round = 1; round < LANES; round *= 2) {
        Vector b[LANES];
        for (Index i = 0; i < LANES / 2; i++) {
            b[2 * i] = interleave<0>(a[i], a[i + LANES / 2], lanes);
            b[2 * i + 1] = interleave<1>(a[i], a[i + LANES / 2], lanes);
        }
        for (Index i = 0; i < LANES; i++) a[i] = b[i];
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
