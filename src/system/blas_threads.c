/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/blas_threads.h"

#include <stddef.h>

#ifndef MILL_HAVE_OPENBLAS

int mill_blas_begin(int n_thread, int *n_before)
{
  (void)n_thread;
  *n_before = 0;
  return 0;
}

void mill_blas_end(const int *n_before)
{
  (void)n_before;
}

const char *mill_blas_core(void)
{
  return NULL;
}

#else

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/memory.h"

/* Memory that OpenBLAS maps per thread: 128 MiB (BUFFER_SIZE on x86-64), plus malloc's rounding. */
#define BUFFER_BYTES ((size_t)129 << 20)
enum { WARM_UP = 128 };

static int check_room(int n)
{
  const int n_room = mill_memory_room(n, BUFFER_BYTES);
  if (n_room < n)
    return MILL_ERROR(MILL_ERR_MEMORY,
                      "no memory for linear algebra: OpenBLAS needs %d times %zu MiB, and there is "
                      "room for %d of them%s: allow more memory, or use fewer threads",
                      n, BUFFER_BYTES >> 20, n_room, mill_memory_limit());
  return MILL_OK;
}

int mill_blas_begin(int n_thread, int *n_before)
{
  static int n_warm; /* threads that already have buffers; OpenBLAS keeps these */
  MILL_OWNED float *a = NULL;
  const int n = WARM_UP;
  *n_before = openblas_get_num_threads();
  openblas_set_num_threads(1);
  if (n_thread <= n_warm)
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC((2 + n_thread) * n * n, &a));
  MILL_CHECK(check_room(n_thread - n_warm));
  /* call BLAS on each thread now, so that OpenBLAS allocates the buffers */
#pragma omp parallel for num_threads(n_thread) schedule(static, 1)
  for (int i = 0; i < n_thread; i++)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, a + n * n, n, 0,
                a + (2 + i) * n * n, n);
  n_warm = n_thread;
  return MILL_OK;
}

void mill_blas_end(const int *n_before)
{
  openblas_set_num_threads(*n_before);
}

const char *mill_blas_core(void)
{
#ifdef __x86_64__
  if (!getenv("OPENBLAS_CORETYPE") && strcmp(openblas_get_corename(), "Prescott") == 0 &&
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return __builtin_cpu_supports("avx512vl") ? "SkylakeX" : "Haswell";
#endif
  return NULL;
}

#endif
