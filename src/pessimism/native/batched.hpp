// Batched products of any two stacks of matrices, for graphs that torch compiles.

#pragma once

#include <cfenv>
#include <vector>

#include "products.hpp"
#include "threads.hpp"

// A stack of matrices as torch has it; `transposed` says that columns are lines in memory.
struct Stack {
    const float* data;
    Index member, line;  // from a matrix, from a line in memory to the next
    Index transposed;

    Matrix at(Index n, Index rows, Index columns) const {
        const float* start = data + n * member;
        return transposed ? Matrix(start, columns, rows, line).t() : Matrix(start, rows, columns, line);
    }
};

extern "C" struct Batched {  // mirrored by ctypes
    Index members, rows, inner, columns, threads;
    Index rounded;  // whether operands are rounded to bfloat16
    Stack left, right;
    float* result;  // [members, rows, columns]
};

// Some rows of one product. Where a line of the result is no multiple of CHUNK, it is computed aside and copied.
template <class Products>
void multiply_rows(const Batched& p, Index n, Range rows, const typename Products::Right& right,
                   typename Products::Left& left, Memory& memory) {
    const Matrix a = p.left.at(n, p.rows, p.inner).strip(rows.begin, rows.count());
    const Index line = padded(p.columns);
    float* result = p.result + (n * p.rows + rows.begin) * p.columns;
    float* to = line == p.columns ? result : memory.fit(CHUNK * line);
    Products::multiply(left, a, right, to, line, [](Index, Index) {});
    if (to != result)
        for (Index r = 0; r < rows.count(); r++) std::copy_n(to + r * line, p.columns, result + r * p.columns);
}

// Each sum is computed by one thread from its first term to its last: results do not depend on the number of threads.
template <class Products>
void multiply_stacks(const Batched& p) {
    struct Space {
        typename Products::Right right;
        Barrier barrier;
    };
    thread_local std::vector<std::unique_ptr<Space>> all_spaces;  // kept between calls
    auto& spaces = all_spaces;
    while (Index(spaces.size()) < p.members) spaces.push_back(std::make_unique<Space>());
    std::fenv_t mode;  // whether denormal numbers count: as the caller has it, in all threads
    std::fegetenv(&mode);
#pragma omp parallel num_threads(int(p.threads))
    {
        thread_local typename Products::Left left;
        thread_local Memory memory;
        std::fesetenv(&mode);
        const Teams teams(p.members, omp_get_num_threads());
        const Index index = omp_get_thread_num() / teams.size;
        if (index < teams.count) {  // the other threads are idle
            Space& space = *spaces[index];
            const Team team{omp_get_thread_num() % teams.size, teams.size, space.barrier};
            for (Index n = index; n < p.members; n += teams.count) {
                space.right.set(p.right.at(n, p.inner, p.columns), team);
                const Range mine = team.share(chunks_of(p.rows));
                for (Index c = mine.begin; c < mine.end; c++)
                    multiply_rows<Products>(p, n, {c * CHUNK, std::min(p.rows, (c + 1) * CHUNK)}, space.right, left, memory);
                team.wait();
            }
        }
    }
}
