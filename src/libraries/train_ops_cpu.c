#include "src/libraries/train_ops.h"

#include <math.h>

#include <cblas.h>

enum { PARTS = 8 };

#define OPS_NAME(name) name##_any
#define OPS_TARGET
#include "src/libraries/train_ops_impl.h"
#undef OPS_NAME
#undef OPS_TARGET

#if defined(__x86_64__)
#define OPS_NAME(name) name##_avx2
#define OPS_TARGET     __attribute__((target("avx2")))
#include "src/libraries/train_ops_impl.h"
#undef OPS_NAME
#undef OPS_TARGET
#endif

static void gemm(int transpose_a, int transpose_b, int m, int n, int k, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

const mill_train_ops *mill_train_ops_cpu(void)
{
#define OPS(set)                                                                                   \
  {                                                                                                \
    "cpu", gemm, activate_##set, multiply_##set, sum_rows_##set, loss_##set, adam_##set            \
  }
  static const mill_train_ops any = OPS(any);
#if defined(__x86_64__)
  static const mill_train_ops avx2 = OPS(avx2);
  if (__builtin_cpu_supports("avx2"))
    return &avx2;
#endif
  return &any;
}
