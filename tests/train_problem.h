/* SPDX-License-Identifier: BSD-3-Clause */
/** What tests of training share: numbers, and a communicator of one rank. */
#pragma once

#include "src/train/train_network.h"

static const mill_mpi alone = {.comm = MPI_COMM_SELF, .stop_comm = MPI_COMM_NULL, .size = 1};

static inline void wave(double amplitude, double rate, double shift, int n, float *out)
{
  for (int i = 0; i < n; i++)
    out[i] = (float)(amplitude * sin(rate * i + shift));
}
