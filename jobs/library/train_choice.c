/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/train_choice.h"

#include <assert.h>
#include <stdlib.h>

#include "io/library/train_file.h"
#include "src/run/backend_choice.h"
#include "kernels/base/error.h"
#include "kernels/gpu.h"

const char *const mill_train_product_words[] = {"float32", "tf32", "bf16", NULL};

static_assert(MILL_TRAIN_FLOAT32 == 0 && MILL_TRAIN_TF32 == 1 && MILL_TRAIN_BF16 == 2,
              "order of the words");

int mill_train_read_hidden(const char *option, const char *text, mill_train_settings *net)
{
  int n = 0;
  for (const char *at = text; n < MILL_MAX_LAYER - 1; at++) {
    char *end = NULL;
    const long width = strtol(at, &end, 10);
    if (end == at || width < 1 || width > MILL_MAX_WIDTH || (*end != ',' && *end != '\0'))
      break;
    net->width[n++] = (int)width;
    at = end;
    if (*end == '\0') {
      net->n_hidden = n;
      return MILL_OK;
    }
  }
  return MILL_ERROR(
      MILL_ERR_USAGE,
      "--%s %s: expected neurons of 1 to %d hidden layers, each 1 to %d, as 256,256,200", option,
      text, MILL_MAX_LAYER - 1, MILL_MAX_WIDTH);
}

/* Those of the GPU that this rank has been given. */
static int open_gpu(const mill_mpi *mpi, const mill_train_ops **ops)
{
  int err = MILL_OK;
  *ops = mill_train_ops_cuda(&err);
  return mill_mpi_agree(mpi, err);
}

int mill_train_find_ops(const mill_mpi *mpi, int is_gpu, const mill_train_ops **ops)
{
  *ops = mill_train_ops_cpu();
  if (!is_gpu)
    return MILL_OK;
  MILL_CHECK(mill_backend_place(mpi, 0));
  return open_gpu(mpi, ops);
}

int mill_train_choose_ops(const mill_mpi *mpi, int backend, const char *checkpoint, int64_t mflop,
                          int n_thread, const mill_train_ops **ops)
{
  int err = MILL_OK, has_gpu = 0;
  char begun[8] = "";
  const char *choice = NULL;
  if (backend != MILL_WORD_AUTO)
    return mill_train_find_ops(mpi, backend == MILL_WORD_CUDA, ops);
  *ops = mill_train_ops_cpu();
  if (mpi->rank == 0)
    err = mill_train_file_backend(checkpoint, sizeof begun, begun);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(mill_backend_settle(mpi, MILL_CROSSOVER_TRAIN, checkpoint, *begun ? begun : NULL, mflop,
                               n_thread, &choice, &has_gpu));
  if (has_gpu)
    MILL_TRY(open_gpu(mpi, ops));
done:
  return err;
}
