// Products of float32 matrices on a processor with AMX, whose tiles multiply bfloat16 numbers sixteen times as fast
// as vectors multiply floats.
//
// A float of 24 digits is the sum of three bfloat16 numbers of 8, a = a1 + a2 + a3, each part about 2^-8 of the one
// before. Of the nine products in a b the six largest are taken; the others are less than a float's rounding (Henry,
// Tang, Heinecke 2019, arXiv:1904.06376). Sums are kept in float32. The result is closer to the exact product than a sum
// of float32 products (tests/test_native.py). With one part instead of three the product is one of bfloat16 matrices.

#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "matrix.hpp"
#include "team.hpp"

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
    Index blocks = 0, groups = 0, parts = 0;
    Index precision = 3;  // parts of a float

    void set(const Matrix& right, const Team& team, Index precision) { pack(right, false, team, precision); }

    // The sum runs along a left operand's rows and down a right one's columns. Zeros and ones are whole in one part.
    void pack(const Matrix& m, bool is_left, const Team& team, Index precision) {
        const bool along = is_left != m.transposed;  // does the sum run along the lines in memory?
        team.alone([&] {
            this->precision = precision;
            parts = m.binary ? 1 : precision;
            blocks = ((is_left ? m.rows : m.columns) + GROUP - 1) / GROUP * 2;
            groups = ((is_left ? m.columns : m.rows) + GROUP - 1) / GROUP;
            pairs = memory.fit(blocks * groups * parts * TILE);
        });
        const Range own = team.share(blocks);
        if (parts == 1) m.transposed ? pack_tiles<1, true>(m, along, own) : pack_tiles<1, false>(m, along, own);
        else m.transposed ? pack_tiles<3, true>(m, along, own) : pack_tiles<3, false>(m, along, own);
        team.wait();
    }

    const float* tile(Index block, Index group, Index part) const {
        return pairs + ((block * groups + group) * parts + part) * TILE;
    }

  private:
    Memory memory;
    float* pairs = nullptr;

    template <int PARTS, bool TRANSPOSED>
    void pack_tiles(const Matrix& m, bool along, Range blocks) const {
        const Index lines = m.transposed ? m.columns : m.rows, width = m.transposed ? m.rows : m.columns;
        for (Index block = blocks.begin; block < blocks.end; block++)
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

struct Products {
    using Right = Operand;
    using Left = Operand;
    static constexpr bool CHOOSES = false;

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

    // C = A B for an A of at most CHUNK rows; as many rows of C are written. `meanwhile(share, shares)` is called that
    // many times: what it does goes on beside the tiles.
    template <class Meanwhile>
    static void multiply(Left& left, const Matrix& a, const Right& b, float* c, Index stride, Meanwhile meanwhile) {
        Barrier none;
        left.pack(a, true, {0, 1, none}, b.precision);
        asm volatile("" ::: "memory");  // GCC's tile loads do not say that they read memory
        const Index line = stride * sizeof(float), width = b.blocks * LANES;
        const Index shares = width / CHUNK * left.groups;
        for (Index j = 0, share = 0; j < width; j += CHUNK) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (Index group = 0; group < left.groups; group++) {
                add_products(left, b, j / LANES, group);
                meanwhile(share++, shares);
            }
            _tile_stored(0, c + j, line);
            _tile_stored(1, c + j + LANES, line);
            _tile_stored(2, c + j + LANES * stride, line);
            _tile_stored(3, c + j + LANES * stride + LANES, line);
        }
    }

  private:
    // Small terms first.
    static void add_products(const Operand& left, const Operand& right, Index block, Index group) {
        const auto load_left = [&](int part) {
            _tile_loadd(4, left.tile(0, group, part), 64);
            _tile_loadd(5, left.tile(1, group, part), 64);
        };
        const auto load_right = [&](int part) {
            _tile_loadd(6, right.tile(block, group, part), 64);
            _tile_loadd(7, right.tile(block + 1, group, part), 64);
        };
        if (right.parts == 1) {
            load_right(0);
            for (int part = left.parts; part-- > 0;) load_left(part), multiply_tiles();
        } else if (left.parts == 1) {
            load_left(0);
            for (int part : {2, 1, 0}) load_right(part), multiply_tiles();
        } else {
            load_left(2), load_right(0), multiply_tiles();
            load_left(1), multiply_tiles();
            load_right(1), multiply_tiles();
            load_left(0), multiply_tiles();
            load_right(2), multiply_tiles();
            load_right(0), multiply_tiles();
        }
    }

    static void multiply_tiles() {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
};

}  // namespace amx
