// Products of bfloat16 matrices with the processor's vectors (AVX512_BF16). One instruction adds two products to each sum,
// where one of float32 adds a single one, and takes as long. Sums are float32.
//
// Operands are rounded to the nearest bfloat16 number, of two the even one. Numbers below 1e-38 count as zeros.

#pragma once

#include <immintrin.h>

#include <array>

#include "matrix.hpp"
#include "team.hpp"

namespace bfloat16 {

constexpr Index BLOCK = 2 * LANES;             // columns of a block of sums
constexpr Index HEIGHT = (REGISTERS - 4) / 2;  // and its rows; 4 registers are left for the operands
constexpr Index AHEAD = 32;                    // lines that are asked for before they are packed
static_assert(BLOCK == CHUNK, "a left operand is one panel");

// Pairs of terms are kept as floats of the same size, which are never read as such.
inline __m512bh load_pairs(const float* from) { return (__m512bh)load(from); }
inline __m512bh repeat_pair(const float* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

// An operand as panels of BLOCK columns (of the right one) or rows (of the left one), padded with zeros. A lane holds two
// terms that follow each other in the sum.
class Operand {
  public:
    Index pairs = 0, panels = 0;

    // The sum runs down the columns. A team's threads pack the panels together.
    void set(const Matrix& m, const Team& team, Index = 1) {
        team.alone([&] {
            pairs = (m.rows + 1) / 2;
            panels = padded(m.columns) / BLOCK;
            data = memory.fit(panels * BLOCK * pairs);
        });
        const Range mine = team.share(panels);
        for (Index n = mine.begin; n < mine.end; n++) m.transposed ? transpose_panel(m, n) : copy_panel(m, n);
        team.wait();
    }

    const float* panel(Index index) const { return data + index * BLOCK * pairs; }

  private:
    Memory memory;
    float* data = nullptr;

    // Sixteen columns of the lines in memory, times their factors; what is outside the matrix is zero.
    struct Strip {
        const float *data, *by_line;
        Index line, lines;
        __mmask16 inside;
        __m512 by_column;

        Strip(const Matrix& m, Index column)
            : data(m.data + column), by_line(m.by_line), line(m.line), lines(m.transposed ? m.columns : m.rows),
              inside(first_lanes((m.transposed ? m.rows : m.columns) - column)),
              by_column(m.by_column ? _mm512_maskz_loadu_ps(inside, m.by_column + column) : all(1)) {}

        static __mmask16 first_lanes(Index count) { return __mmask16((1 << std::clamp(count, Index(0), LANES)) - 1); }

        __m512 operator[](Index n) const {
            if (n >= lines) return _mm512_setzero_ps();
            const __m512 value = _mm512_maskz_loadu_ps(inside, data + n * line) * by_column;
            return by_line ? value * by_line[n] : value;
        }
    };

    // Two lines in memory make one of pairs. Lines are far apart and may be in the third-level cache: asked for ahead.
    void copy_panel(const Matrix& m, Index index) const {
        const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(LANES));
        const __m512i in_turns = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
        const auto rounded = [&](const Strip& strip, Index line) {
            const __m512bh both = _mm512_cvtne2ps_pbh(strip[line + 1], strip[line]);
            return (Vector)_mm512_permutexvar_epi16(in_turns, (__m512i)both);
        };
        const Strip left(m, index * BLOCK), right(m, index * BLOCK + LANES);
        float* to = data + index * BLOCK * pairs;
        for (Index pair = 0; pair < pairs; pair++, to += BLOCK) {
            for (Index line : {2 * pair, 2 * pair + 1}) prefetch(left.data + (line + AHEAD) * m.line, BLOCK);
            store(to, rounded(left, 2 * pair));
            store(to + LANES, rounded(right, 2 * pair));
        }
    }

    // A line in memory holds the terms of a column: its pairs are there already.
    void transpose_panel(const Matrix& m, Index index) const {
        for (Index pair = 0; pair < pairs; pair += LANES) {
            const Strip low(m, 2 * pair), high(m, 2 * pair + LANES);
            for (Index side = 0; side < BLOCK; side += LANES) {
                const Index line = index * BLOCK + side;
                Vector tile[LANES];
                for (Index n = 0; n < LANES; n++) tile[n] = (Vector)_mm512_cvtne2ps_pbh(high[line + n], low[line + n]);
                transpose(tile);
                float* to = data + (index * pairs + pair) * BLOCK + side;
                for (Index n = 0; n < std::min(LANES, pairs - pair); n++) store(to + n * BLOCK, tile[n]);
            }
        }
    }
};

// ROWS by BLOCK sums of C = A B, for a panel of each.
template <int ROWS>
void block(Index pairs, const float* a, const float* b, float* c, Index stride) {
    __m512 sums[ROWS][2];
#pragma GCC unroll 16
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (Index k = 0; k < pairs; k++, a += BLOCK, b += BLOCK) {
        const __m512bh left = load_pairs(b), right = load_pairs(b + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const __m512bh x = repeat_pair(a + r);
            sums[r][0] = _mm512_dpbf16_ps(sums[r][0], x, left);
            sums[r][1] = _mm512_dpbf16_ps(sums[r][1], x, right);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        store(c + r * stride, sums[r][0]);
        store(c + r * stride + LANES, sums[r][1]);
    }
}

struct Products {
    using Right = Operand;
    using Left = Operand;
    struct Registers {};  // that have to be set up: none
    static constexpr bool CHOOSES = false;  // sums of chosen rows take longer than products with zeros and ones

    // C = A B for an A of at most CHUNK rows, in blocks of equal height. `meanwhile(share, shares)` is called that many
    // times. A panel of B is used for all rows while it is in the first-level cache.
    template <class Meanwhile>
    static void multiply(Left& left, const Matrix& a, const Right& b, float* c, Index stride, Meanwhile meanwhile) {
        Barrier none;
        left.set(a.t(), {0, 1, none});
        const Index count = (a.rows + HEIGHT - 1) / HEIGHT;
        for (Index panel = 0; panel < b.panels; panel++) {
            meanwhile(panel, b.panels);
            for (Index n = 0; n < count; n++) {
                const Range rows = part(a.rows, n, count);
                float* to = c + rows.begin * stride + panel * BLOCK;
                KERNELS[rows.count() - 1](b.pairs, left.panel(0) + rows.begin, b.panel(panel), to, stride);
            }
        }
    }

  private:
    using Kernel = void (*)(Index, const float*, const float*, float*, Index);
    template <int... N>
    static constexpr std::array<Kernel, HEIGHT> kernels(std::integer_sequence<int, N...>) {
        return {block<N + 1>...};  // by height
    }
    static const std::array<Kernel, HEIGHT> KERNELS;
};

inline const std::array<Products::Kernel, HEIGHT> Products::KERNELS =
    Products::kernels(std::make_integer_sequence<int, HEIGHT>{});

}  // namespace bfloat16
