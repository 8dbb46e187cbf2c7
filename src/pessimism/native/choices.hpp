// Products with a matrix of zeros and ones: each row of the result is a sum of chosen rows of the other operand.
//
// Terms are taken four at a time. All sixteen sums of four rows are tabulated once; then each row of the result adds one
// of them per four terms: a quarter of a product's loads and additions (Arlazarov, Dinic, Kronrod, Faradzev 1970, "the
// method of four Russians").

#pragma once

#include <vector>

#include "products.hpp"

namespace vectors {

// The left operand, zeros and ones: for each row and each group of terms (g, g + groups, g + 2 groups, g + 3 groups) which
// of the four are chosen, as a number from 0 to 15.
class Choices {
  public:
    Index rows = 0, groups = 0;
    Index by_row = 0, by_group = 0;  // from a code to that of the next row, of the next group

    void set(const Matrix& m, const Team& team) {
        team.alone([&] {
            rows = m.rows;
            groups = (m.columns + 3) / 4;
            by_row = m.transposed ? 1 : groups;
            by_group = m.transposed ? padded(rows) : 1;
            codes.assign(padded(rows) * groups, 0);
        });
        const Range lines = team.share(m.transposed ? groups : rows);
        for (Index line = lines.begin; line < lines.end; line++)
            for (Index term = 0; term < 4; term++) mark(m, line, term);
        team.wait();
    }

    const uint8_t* at(Index row, Index group) const { return codes.data() + row * by_row + group * by_group; }

  private:
    std::vector<uint8_t> codes;

    void mark(const Matrix& m, Index line, Index term) {
        const Index before = term * groups, left = m.columns - before;
        if (left <= (m.transposed ? line : 0)) return;
        const float* from = m.data + (m.transposed ? (before + line) * m.line : line * m.line + before);
        uint8_t* to = codes.data() + line * std::max(by_row, by_group);
        const Index count = m.transposed ? rows : std::min(groups, left);
        const uint8_t bit = uint8_t(1 << term);
        for (Index i = 0; i < count; i++) to[i] |= from[i] > 0 ? bit : 0;
    }
};

// Tables of one chunk of columns, for some groups of terms.
class Tables {
  public:
    static constexpr Index GROUPS = 8;  // 16 KB of sums: half of most first-level caches

    void fill(const Right& b, Index chunk, Index group, Index count, Index groups) {
        for (Index g = 0; g < count; g++)
            for (Index column = 0; column < CHUNK; column += LANES) {
                const float* panel = b.panel((chunk * CHUNK + column) / BLOCK) + column % BLOCK;
                Vector all_sums[16] = {};
                for (Index term = 0; term < 4; term++) {
                    const Index k = term * groups + group + g;
                    const Vector row = k < b.inner ? load(panel + k * BLOCK) : Vector{};
                    for (Index n = 0; n < 1 << term; n++) all_sums[(1 << term) + n] = all_sums[n] + row;
                }
                for (Index n = 0; n < 16; n++) store(sums[g][n] + column, all_sums[n]);
            }
    }

    // Add what some rows choose to their sums in C; the first time the sums are zero.
    void add(const Choices& a, Index row, Index group, Index count, float* c, Index stride) const {
        Vector total[ROWS][VECTORS];
#pragma GCC unroll 8
        for (Index r = 0; r < ROWS; r++)
#pragma GCC unroll 8
            for (Index v = 0; v < VECTORS; v++) total[r][v] = group ? load(c + r * stride + v * LANES) : Vector{};
        const uint8_t* codes = a.at(row, group);
        for (Index g = 0; g < count; g++, codes += a.by_group)
#pragma GCC unroll 8
            for (Index r = 0; r < ROWS; r++) {
                const float* chosen = sums[g][codes[r * a.by_row]];
#pragma GCC unroll 8
                for (Index v = 0; v < VECTORS; v++) total[r][v] += load(chosen + v * LANES);
            }
#pragma GCC unroll 8
        for (Index r = 0; r < ROWS; r++)
#pragma GCC unroll 8
            for (Index v = 0; v < VECTORS; v++) store(c + r * stride + v * LANES, total[r][v]);
    }

    static constexpr Index VECTORS = CHUNK / LANES;
    static constexpr Index ROWS = std::max(Index(1), 8 / VECTORS);  // at a time: eight sums, as each waits for its last

  private:
    alignas(64) float sums[GROUPS][16][CHUNK];
};

// One chunk of columns of C = A B. Rows of C are written up to a multiple of Tables::ROWS.
template <class Meanwhile>
void choose(const Choices& a, const Right& b, Index chunk, float* c, Index stride, Meanwhile meanwhile) {
    Tables tables;
    for (Index group = 0; group < a.groups; group += Tables::GROUPS) {
        meanwhile(group / Tables::GROUPS, (a.groups + Tables::GROUPS - 1) / Tables::GROUPS);
        const Index count = std::min(Tables::GROUPS, a.groups - group);
        tables.fill(b, chunk, group, count, a.groups);
        for (Index row = 0; row < a.rows; row += Tables::ROWS) tables.add(a, row, group, count, c + row * stride, stride);
    }
}

// Lines of a chunk of columns [count, CHUNK] to rows [CHUNK, count].
inline void turn(const float* columns, Index count, float* rows, Index stride) {
    for (Index j = 0; j < count; j += LANES)
        for (Index i = 0; i < CHUNK; i += LANES) {
            Vector tile[LANES];
            for (Index n = 0; n < LANES; n++) tile[n] = load(columns + (j + n) * CHUNK + i);
            transpose(tile);
            for (Index n = 0; n < LANES; n++) store(rows + (i + n) * stride + j, tile[n]);
        }
}

}  // namespace vectors
