// Products of float32 matrices with the processor's vectors.

#pragma once

#include <array>

#include "matrix.hpp"
#include "team.hpp"

namespace vectors {

constexpr Index BLOCK = 2 * LANES;             // columns of a block of sums
constexpr Index HEIGHT = (REGISTERS - 4) / 2;  // and its rows; 4 registers are left for the operands

// ROWS by BLOCK sums of C = A B, for a panel of B. A's rows are `line` apart; gathered, its columns follow each other.
template <int ROWS, bool GATHERED>
void block(Index inner, const float* a, Index line, const float* panel, float* c, Index stride) {
    Vector sums[ROWS][2];
#pragma GCC unroll 16
    for (auto& row : sums) row[0] = row[1] = Vector{};
    const float* rows[(ROWS + 2) / 3];  // every third row: the others are reached by an index register
    for (int g = 0; g < (ROWS + 2) / 3; g++) rows[g] = a + 3 * g * line;
#pragma GCC unroll 4
    for (Index k = 0; k < inner; k++, panel += BLOCK) {
        const Vector left = load(panel), right = load(panel + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const Vector x = all(GATHERED ? a[r] : rows[r / 3][r % 3 * line]);
            sums[r][0] += x * left;
            sums[r][1] += x * right;
        }
        if (GATHERED) a += ROWS;
        else for (auto& row : rows) row++;
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        store(c + r * stride, sums[r][0]);
        store(c + r * stride + LANES, sums[r][1]);
    }
}

// A right operand, in panels of BLOCK columns, padded with zeros. A team's threads pack it together.
class Right {
  public:
    Index inner = 0, panels = 0;

    void set(const Matrix& m, const Team& team, Index = 0) {
        team.alone([&] {
            inner = m.rows;
            panels = padded(m.columns) / BLOCK;
            data = memory.fit(panels * BLOCK * inner);
        });
        const Range mine = team.share(panels);
        if (m.transposed) {
            for (Index n = mine.begin; n < mine.end; n++) transpose_panel(m, n);
        } else {
            for (Index k = 0; k < inner; k += LINES)
                for (Index n = mine.begin; n < mine.end; n++) copy_panel(m, n, {k, std::min(inner, k + LINES)});
        }
        team.wait();
    }

    const float* panel(Index index) const { return data + index * BLOCK * inner; }

  private:
    Memory memory;
    float* data = nullptr;

    static constexpr Index LINES = 16;  // that are read at a time, to the end: the processor sees that and reads ahead

    void copy_panel(const Matrix& m, Index index, Range lines) const {
        const Index column = index * BLOCK, width = std::clamp(m.columns - column, Index(0), BLOCK);
        float* to = data + column * inner + lines.begin * BLOCK;
        const float* from = m.data + lines.begin * m.line + column;
        for (Index k = lines.begin; k < lines.end; k++, to += BLOCK, from += m.line) {
            const float factor = m.by_line ? m.by_line[k] : 1;
            if (width == BLOCK) {
                store(to, factor * load(from));
                store(to + LANES, factor * load(from + LANES));
                continue;
            }
            std::fill_n(to, BLOCK, 0.f);
            for (Index j = 0; j < width; j++) to[j] = factor * from[j];
        }
    }

    void transpose_panel(const Matrix& m, Index index) const {
        float* panel = data + index * BLOCK * inner;
        for (Index side = 0; side < BLOCK; side += LANES)
            for_vectors(0, inner, [&](Index k, auto lanes) {
                const Index line = index * BLOCK + side;
                Vector tile[LANES] = {};
                const Vector factor = m.by_column ? load(m.by_column + k, lanes) : all(1);
                for (Index n = 0; n < std::min(LANES, m.columns - line); n++)
                    tile[n] = load(m.data + (line + n) * m.line + k, lanes) * factor;
                transpose(tile);
                for (Index n = 0; n < std::min(LANES, inner - k); n++) store(panel + (k + n) * BLOCK + side, tile[n]);
            });
    }
};

// A thread's left operand. Its rows are read where they are; if they are columns in memory they are first gathered.
class Left {
  public:
    void set(const Matrix& a) {
        transposed = a.transposed;
        data = transposed ? memory.fit(a.rows * a.columns + LANES) : a.data;
        line = transposed ? a.columns : a.line;
    }

    // Some rows of A, ready to be multiplied.
    const float* rows(Range rows) const { return data + rows.begin * line; }

    void gather(const Matrix& a, Range rows) {
        float* to = memory.fit(0) + rows.begin * a.columns;
        const Index height = rows.count();
        const float* end = a.data + (a.columns - 1) * a.line + a.rows;
        for (Index k = 0; k < a.columns; k++, to += height) {
            const float* from = a.data + k * a.line + rows.begin;
            const float factor = a.by_line ? a.by_line[k] : 1;
            for (Index r = 0; r < height; r += LANES) {  // what is read or written too much is the next line's
                const bool inside = from + r + LANES <= end;
                store(to + r, factor * (inside ? load(from + r) : load(from + r, Some{std::min(LANES, height - r)})));
            }
        }
    }

    bool transposed = false;
    Index line = 0;

  private:
    Memory memory;
    const float* data = nullptr;
};

struct Products {
    using Right = vectors::Right;
    using Left = vectors::Left;
    struct Registers {};  // that have to be set up: none
    static constexpr bool CHOOSES = true;  // sums of chosen rows take the place of products with zeros and ones

    // C = A B for an A of at most CHUNK rows, in blocks of equal height: one of a single row would run at a fraction of
    // the speed. `meanwhile(share, shares)` is called that many times. A panel of B is used for all rows while it is in
    // the first-level cache.
    template <class Meanwhile>
    static void multiply(Left& left, const Matrix& a, const Right& b, float* c, Index stride, Meanwhile meanwhile) {
        const Index count = blocks(a.rows);
        left.set(a);
        if (a.transposed)
            for (Index n = 0; n < count; n++) left.gather(a, part(a.rows, n, count));
        for (Index panel = 0; panel < b.panels; panel++) {
            meanwhile(panel, b.panels);
            for (Index n = 0; n < count; n++) {
                const Range rows = part(a.rows, n, count);
                float* to = c + rows.begin * stride + panel * BLOCK;
                KERNELS[a.transposed][rows.count() - 1](b.inner, left.rows(rows), a.line, b.panel(panel), to, stride);
            }
        }
    }

  private:
    static Index blocks(Index rows) { return (rows + HEIGHT - 1) / HEIGHT; }

    using Kernel = void (*)(Index, const float*, Index, const float*, float*, Index);
    template <bool GATHERED, int... N>
    static constexpr std::array<Kernel, HEIGHT> kernels(std::integer_sequence<int, N...>) {
        return {block<N + 1, GATHERED>...};  // by height
    }
    static const std::array<Kernel, HEIGHT> KERNELS[2];
};

inline const std::array<Products::Kernel, HEIGHT> Products::KERNELS[2] = {
    Products::kernels<false>(std::make_integer_sequence<int, HEIGHT>{}),
    Products::kernels<true>(std::make_integer_sequence<int, HEIGHT>{})};

}  // namespace vectors
