// Products of float32 matrices on a processor with AMX, whose tiles multiply bfloat16 numbers sixteen times as fast
// as vectors multiply floats.
//
// A float of 24 digits is the sum of three bfloat16 numbers of 8, a = a1 + a2 + a3, each part about 2^-8 of the one
// before. Of the nine products in a b the six largest are taken; the others are less than a float's rounding (Henry,
// Tang, Heinecke 2019, arXiv:1904.06376). Sums are kept in float32. The result is closer to the exact product than a sum
// of float32 products (tests/test_native.py).

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "vectors.hpp"

namespace amx {

constexpr Index GROUP = 2 * LANES;     // terms of a sum that one tile holds
constexpr Index TILE = LANES * LANES;  // pairs of bfloat16 numbers in a tile

// Split a vector into bfloat16 numbers in the upper halves of the lanes, the lower halves zero.
template <int PARTS>
void split(Vector value, __m512i (&parts)[PARTS]) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(int(0xffff0000));
    for (__m512i& part : parts) {
        part = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(value), half), upper);
        value -= _mm512_castsi512_ps(part);
    }
}

// One operand of a product, cut into tiles of 16 rows (of the left operand) or columns (of the right one) and 32 terms
// of the sum. Terms k and k + 16 share a lane, so that no value has to change its lane when it is packed.
class Operand {
  public:
    // The sum runs along a left operand's rows and down a right one's columns. Zeros and ones are whole in one part.
    void pack(const Matrix& m, bool is_left) {
        const bool along = is_left != m.transposed;  // does the sum run along the lines in memory?
        parts = m.binary ? 1 : 3;
        if (m.binary) m.transposed ? pack_tiles<1, true>(m, along) : pack_tiles<1, false>(m, along);
        else m.transposed ? pack_tiles<3, true>(m, along) : pack_tiles<3, false>(m, along);
    }

    const float* tile(Index block, Index group, int part) const {
        return pairs + ((block * groups + group) * parts + part) * TILE;
    }

    int parts = 0;
    Index groups = 0;

  private:
    Memory memory;
    float* pairs = nullptr;

    template <int PARTS, bool TRANSPOSED>
    void pack_tiles(const Matrix& m, bool along) {
        const Index lines = m.transposed ? m.columns : m.rows, width = m.transposed ? m.rows : m.columns;
        const Index blocks = ((along ? lines : width) + GROUP - 1) / GROUP * 2;
        groups = ((along ? width : lines) + GROUP - 1) / GROUP;
        pairs = memory.fit(blocks * groups * PARTS * TILE);
        for (Index block = 0; block < blocks; block++)
            for (Index group = 0; group < groups; group++) {
                const Index line = along ? block * LANES : group * GROUP;
                const Index column = along ? group * GROUP : block * LANES;
                const Part low{m, lines, width, line, column};
                const Part high{m, lines, width, along ? line : line + LANES, along ? column + LANES : column};
                pack_tile<PARTS, TRANSPOSED>(low, high, pairs + (block * groups + group) * PARTS * TILE);
            }
    }

    // Sixteen by sixteen values; what is outside the matrix is zero.
    struct Part {
        const float *data, *by_line;
        Index line, left;
        __mmask16 mask;
        Vector by_column;

        Part(const Matrix& m, Index lines, Index width, Index first, Index column)
            : data(m.data + first * m.line + column), by_line(m.by_line ? m.by_line + first : nullptr), line(m.line),
              left(lines - first),
              mask(width - column >= LANES ? 0xffff : width <= column ? 0 : (1 << (width - column)) - 1),
              by_column(m.by_column ? _mm512_maskz_loadu_ps(mask, m.by_column + column) : all(1)) {}

        Vector operator[](Index n) const {
            if (n >= left) return all(0);
            const Vector value = _mm512_maskz_loadu_ps(mask, data + n * line) * by_column;
            return by_line ? value * all(by_line[n]) : value;
        }
    };

    template <int PARTS, bool TRANSPOSED>
    static void pack_tile(const Part& low, const Part& high, float* to) {
        if (!TRANSPOSED) {
            for (Index n = 0; n < LANES; n++) pack_line<PARTS>(low[n], high[n], to + n * LANES);
            return;
        }
        Vector lower[LANES], upper[LANES];
        for (Index n = 0; n < LANES; n++) lower[n] = low[n];
        transpose(lower);
        for (Index n = 0; n < LANES; n++) upper[n] = high[n];
        transpose(upper);
        for (Index n = 0; n < LANES; n++) pack_line<PARTS>(lower[n], upper[n], to + n * LANES);
    }

    template <int PARTS>
    static void pack_line(Vector low, Vector high, float* to) {
        __m512i lower[PARTS], upper[PARTS];
        split(low, lower);
        split(high, upper);
        for (int part = 0; part < PARTS; part++)
            _mm512_store_si512(to + part * TILE, _mm512_or_si512(_mm512_srli_epi32(lower[part], 16), upper[part]));
    }
};

// Products A B of several A with one B.
class Product {
  public:
    // The tiles' registers, set up for the calling thread.
    struct Registers {
        Registers() {
            struct alignas(64) {
                uint8_t palette = 1, start = 0, unused[14] = {};
                uint16_t bytes[16] = {};
                uint8_t rows[16] = {};
            } shape;
            std::fill_n(shape.bytes, 8, 64);
            std::fill_n(shape.rows, 8, LANES);
            asm volatile("" ::"r"(&shape) : "memory");  // GCC's _tile_loadconfig reads more than it says
            _tile_loadconfig(&shape);
        }
        ~Registers() { _tile_release(); }
    };

    // Linux gives the tiles' registers to a process that asks for them.
    static bool available() {
        constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
        return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    }

    static constexpr Index STRIP = 2 * LANES;
    template <class Body>
    static void for_strips(Index rows, Body body) {
        for (Index i = 0; i < rows; i += STRIP) body(i, std::min(STRIP, rows - i));
    }

    void set(const Matrix& b) {
        right.pack(b, false);
        width = b.columns;
    }

    // C = A B for an A of at most STRIP rows; as many rows of C are written. `meanwhile(share, shares)` is called that
    // many times: what it does goes on beside the tiles.
    template <class Meanwhile>
    void multiply(const Matrix& a, float* c, Meanwhile meanwhile) {
        left.pack(a, true);
        asm volatile("" ::: "memory");  // GCC's tile loads do not say that they read memory
        const Index line = width * sizeof(float), shares = width / STRIP * left.groups;
        for (Index j = 0, share = 0; j < width; j += STRIP) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (Index group = 0; group < left.groups; group++) {
                add_products(j / LANES, group);
                meanwhile(share++, shares);
            }
            _tile_stored(0, c + j, line);
            _tile_stored(1, c + j + LANES, line);
            _tile_stored(2, c + j + LANES * width, line);
            _tile_stored(3, c + j + LANES * width + LANES, line);
        }
    }

  private:
    Operand left, right;
    Index width = 0;

    // Small terms first.
    void add_products(Index block, Index group) const {
        if (right.parts == 1) {
            load_right(block, group, 0);
            for (int part : {2, 1, 0}) load_left(group, part), multiply_tiles();
        } else if (left.parts == 1) {
            load_left(group, 0);
            for (int part : {2, 1, 0}) load_right(block, group, part), multiply_tiles();
        } else {
            load_left(group, 2), load_right(block, group, 0), multiply_tiles();
            load_left(group, 1), multiply_tiles();
            load_right(block, group, 1), multiply_tiles();
            load_left(group, 0), multiply_tiles();
            load_right(block, group, 2), multiply_tiles();
            load_right(block, group, 0), multiply_tiles();
        }
    }

    void load_left(Index group, int part) const {
        _tile_loadd(4, left.tile(0, group, part), 64);
        _tile_loadd(5, left.tile(1, group, part), 64);
    }
    void load_right(Index block, Index group, int part) const {
        _tile_loadd(6, right.tile(block, group, part), 64);
        _tile_loadd(7, right.tile(block + 1, group, part), 64);
    }
    static void multiply_tiles() {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
};

}  // namespace amx
