// Products of float32 matrices on a processor with AVX-512.

#pragma once

#include "vectors.hpp"

namespace avx512 {

constexpr Index WIDTH = 2 * LANES;  // columns of a block of sums
constexpr Index HEIGHT = 14;        // its rows at most: 28 sums, and 4 registers for the operands

// ROWS by WIDTH sums of C = A B. A's rows are `stride` apart; gathered, its columns follow each other.
template <int ROWS, bool GATHERED>
void sums(Index inner, const float* a, Index stride, const float* b, Index width, float* c) {
    Vector sums[ROWS][2];
    for (int r = 0; r < ROWS; r++) sums[r][0] = sums[r][1] = all(0);
    const float* rows[(ROWS + 2) / 3];  // every third row: the others are reached by an index register
    for (int g = 0; g < (ROWS + 2) / 3; g++) rows[g] = a + 3 * g * stride;
    for (Index k = 0; k < inner; k++, b += width) {
        const Vector b0 = load(b), b1 = load(b + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const Vector x = all(GATHERED ? a[r] : rows[r / 3][r % 3 * stride]);
            sums[r][0] = _mm512_fmadd_ps(x, b0, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(x, b1, sums[r][1]);
        }
        if (GATHERED) a += ROWS;
        else for (auto& row : rows) row++;
    }
    for (int r = 0; r < ROWS; r++) {
        store(c + r * width, sums[r][0]);
        store(c + r * width + LANES, sums[r][1]);
    }
}

// Products A B of several A with one B. A matrix's factors are taken in where it is copied: if it is transposed.
class Product {
  public:
    struct Registers {};  // that have to be set up: none
    static bool available() { return true; }

    // Cut rows into strips as equal as can be: a last one of one row would run at an eighth of the speed.
    static constexpr Index STRIP = HEIGHT;
    template <class Body>
    static void for_strips(Index rows, Body body) {
        const Index strips = (rows + HEIGHT - 1) / HEIGHT;
        for (Index n = 0; n < strips; n++) {
            const Index begin = rows * n / strips, end = rows * (n + 1) / strips;
            body(begin, end - begin);
        }
    }

    void set(const Matrix& right) {
        b = right.transposed ? transposed(right) : right.data;
        width = right.columns;
    }

    // C = A B for an A of at most STRIP rows. `meanwhile(share, shares)` is called that many times.
    template <class Meanwhile>
    void multiply(const Matrix& a, float* c, Meanwhile meanwhile) {
        if (a.transposed) gathered = columns.fit(HEIGHT * a.columns);
        a.transposed ? any_strip<true>(a, c, meanwhile) : any_strip<false>(a, c, meanwhile);
    }

  private:
    const float* b = nullptr;
    Index width = 0;
    Memory turned, columns;
    float* gathered = nullptr;

    const float* transposed(const Matrix& right) {
        float* to = turned.fit(right.rows * right.columns);
        for (Index i = 0; i < right.columns; i += LANES)
            for (Index j = 0; j < right.rows; j += LANES) {
                Vector tile[LANES];
                const Vector factor = right.by_column ? load(right.by_column + j) : all(1);
                for (Index n = 0; n < LANES; n++) tile[n] = load(right.data + (i + n) * right.line + j) * factor;
                transpose(tile);
                for (Index n = 0; n < LANES; n++) store(to + (j + n) * right.columns + i, tile[n]);
            }
        return to;
    }

    // Where A's rows are columns in memory they are first gathered: read once from a distance, not once per block.
    template <int ROWS, bool TRANSPOSED, class Meanwhile>
    void strip(const Matrix& a, float* c, Meanwhile meanwhile) const {
        if (TRANSPOSED)
            for (Index k = 0; k < a.columns; k++)
                for (int r = 0; r < ROWS; r++)
                    gathered[k * ROWS + r] = a.data[k * a.line + r] * (a.by_line ? a.by_line[k] : 1);
        for (Index j = 0; j < width; j += WIDTH) {
            meanwhile(j / WIDTH, width / WIDTH);
            sums<ROWS, TRANSPOSED>(a.columns, TRANSPOSED ? gathered : a.data, a.line, b + j, width, c + j);
        }
    }

    template <bool T, class M>
    void any_strip(const Matrix& a, float* c, M meanwhile) const {
        using Strip = void (Product::*)(const Matrix&, float*, M) const;
        static constexpr Strip strips[HEIGHT] = {
            &Product::strip<1, T, M>,  &Product::strip<2, T, M>,  &Product::strip<3, T, M>,
            &Product::strip<4, T, M>,  &Product::strip<5, T, M>,  &Product::strip<6, T, M>,
            &Product::strip<7, T, M>,  &Product::strip<8, T, M>,  &Product::strip<9, T, M>,
            &Product::strip<10, T, M>, &Product::strip<11, T, M>, &Product::strip<12, T, M>,
            &Product::strip<13, T, M>, &Product::strip<14, T, M>};
        (this->*strips[a.rows - 1])(a, c, meanwhile);
    }
};

}  // namespace avx512
