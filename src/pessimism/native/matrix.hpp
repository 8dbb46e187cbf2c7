// Operands of products.

#pragma once

#include "vectors.hpp"

// A matrix as it stands in a product; `transposed` says that its columns are lines in memory.
struct Matrix {
    const float* data;
    Index rows, columns, line;                             // from a line in memory to the next
    bool transposed = false, binary = false;               // binary: zeros and ones only
    const float *by_line = nullptr, *by_column = nullptr;  // factors of the lines and columns in memory, if any

    Matrix(const float* data, Index rows, Index columns, Index line)
        : data(data), rows(rows), columns(columns), line(line) {}
    Matrix(const float* data, Index rows, Index columns) : Matrix(data, rows, columns, columns) {}

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

// Rows and columns are worked on in chunks of this many, which stay in the caches; lines of results are padded to a
// multiple of it.
constexpr Index CHUNK = 32;
inline Index chunks_of(Index count) { return (count + CHUNK - 1) / CHUNK; }
inline Index padded(Index count) { return chunks_of(count) * CHUNK; }
