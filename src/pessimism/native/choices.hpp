// Products with a matrix of zeros and ones: each row of the result is a sum of chosen rows of the other operand.
//
// Terms are taken four at a time. All sixteen sums of four rows are tabulated once; then each row of the result adds one
// of them per four terms: a quarter of a product's loads and additions (Arlazarov, Dinic, Kronrod, Faradzev 1970, "the
// method of four Russians").

#pragma once

#include <vector>

#include "products.hpp"

namespace vectors {

constexpr Index GROUPS = 8;  // that are worked on together: their tables are 16 KB, half of most first-level caches
using Table = float[16][CHUNK];

// The left operand, zeros and ones. For each row and each group of terms (g, g + groups, g + 2 groups, g + 3 groups): which
// of the four are chosen, as the place of their sum in the tables.
class Choices {
  public:
    Index rows = 0, groups = 0;

    void set(const Matrix& m, const Team& team) {
        team.alone([&] {
            rows = m.rows;
            groups = padded(m.columns) / 4;
            places.resize(rows * groups);
            nothing_chosen = zeros.fit(rows);
        });
        const Range mine = team.share(groups / GROUPS);
        for (Index pass = mine.begin; pass < mine.end; pass++)
            m.transposed ? mark_columns(m, pass * GROUPS) : mark_rows(m, pass * GROUPS);
        team.wait();
    }

    // Bytes [rows, GROUPS] from the start of the tables, for the groups from `group` on.
    const uint16_t* from(Index group) const { return places.data() + group * rows; }

  private:
    std::vector<uint16_t> places;
    Memory zeros;
    const float* nothing_chosen = nullptr;

    static uint16_t place(Index g, int chosen) { return uint16_t((16 * g + chosen) * sizeof(float[CHUNK])); }

    // Lines in memory are rows, padded with zeros.
    void mark_rows(const Matrix& m, Index group) {
        typedef float Terms __attribute__((vector_size(GROUPS * sizeof(float))));
        typedef int32_t Wide __attribute__((vector_size(GROUPS * sizeof(int32_t))));
        typedef uint16_t Places __attribute__((vector_size(GROUPS * sizeof(uint16_t))));
        Wide none;
        for (Index g = 0; g < GROUPS; g++) none[g] = place(g, 0);
        for (Index row = 0; row < rows; row++) {
            Wide sums = none;
            for (Index term = 0; term < 4; term++) {
                Terms terms;
                std::memcpy(&terms, m.data + row * m.line + term * groups + group, sizeof terms);
                sums += (terms > 0) & place(0, 1 << term);
            }
            const Places narrow = __builtin_convertvector(sums, Places);
            std::memcpy(places.data() + group * rows + row * GROUPS, &narrow, sizeof narrow);
        }
    }

    // Lines in memory are terms.
    void mark_columns(const Matrix& m, Index group) {
        uint16_t* to = places.data() + group * rows;
        for (Index g = 0; g < GROUPS; g++) {
            const float* lines[4];
            for (Index term = 0; term < 4; term++) {
                const Index k = term * groups + group + g;
                lines[term] = k < m.columns ? m.data + k * m.line : nothing_chosen;
            }
            for (Index row = 0; row < rows; row++) {
                int chosen = 0;
                for (int term = 0; term < 4; term++) chosen |= (lines[term][row] > 0) << term;
                to[row * GROUPS + g] = place(g, chosen);
            }
        }
    }
};

// Tables of one chunk of columns, for some groups of terms.
class Tables {
  public:
    void fill(const Right& b, Index chunk, Index group, Index groups) {
        for (Index g = 0; g < GROUPS; g++)
            for (Index column = 0; column < CHUNK; column += LANES) {
                const float* panel = b.panel((chunk * CHUNK + column) / BLOCK) + column % BLOCK;
                Vector all_sums[16] = {};
                for (Index term = 0; term < 4; term++) {
                    const Index k = term * groups + group + g;
                    const Vector row = k < b.inner ? load(panel + k * BLOCK) : Vector{};
                    for (Index n = 0; n < 1 << term; n++) all_sums[(1 << term) + n] = all_sums[n] + row;
                }
                for (Index n = 0; n < 16; n++) store(tables[g][n] + column, all_sums[n]);
            }
    }

    // Add what each row chooses to its sums in C; at first the sums are zero. Not inlined, as GCC would run out of registers.
    __attribute__((noinline)) void add(const uint16_t* places, Index rows, bool first, float* c, Index stride) const {
        const char* start = reinterpret_cast<const char*>(tables);
        for (Index row = 0; row < rows; row++, places += GROUPS, c += stride) {
            Vector total[VECTORS];
#pragma GCC unroll 8
            for (Index v = 0; v < VECTORS; v++) total[v] = first ? Vector{} : load(c + v * LANES);
#pragma GCC unroll 8
            for (Index g = 0; g < GROUPS; g++) {
                const float* chosen = reinterpret_cast<const float*>(start + places[g]);
#pragma GCC unroll 8
                for (Index v = 0; v < VECTORS; v++) total[v] += load(chosen + v * LANES);
            }
#pragma GCC unroll 8
            for (Index v = 0; v < VECTORS; v++) store(c + v * LANES, total[v]);
        }
    }

  private:
    static constexpr Index VECTORS = CHUNK / LANES;
    alignas(64) Table tables[GROUPS];
};

// One chunk of columns of C = A B.
template <class Meanwhile>
void choose(const Choices& a, const Right& b, Index chunk, float* c, Index stride, Meanwhile meanwhile) {
    Tables tables;
    for (Index group = 0; group < a.groups; group += GROUPS) {
        meanwhile(group / GROUPS, a.groups / GROUPS);
        tables.fill(b, chunk, group, a.groups);
        tables.add(a.from(group), a.rows, group == 0, c, stride);
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
