// OpenMP, or one thread where the compiler has none.

#pragma once

#ifdef _OPENMP
#include <omp.h>
constexpr bool PARALLEL = true;
#else
constexpr bool PARALLEL = false;
inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
#endif
