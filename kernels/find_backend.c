/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/gpu.h"

#include <string.h>

#include "kernels/base/error.h"

enum { MANY_SLOTS = 64, THREAD_SLOTS = 32 };

int mill_backend_slots(const mill_backend *backend, int n_thread)
{
  if (backend->default_slot > 0)
    return backend->default_slot;
  /* a CPU's slots grow with its threads: each thread emulates its own stars in batches */
  return backend->kind == MILL_BACKEND_CPU ? THREAD_SLOTS * n_thread : MANY_SLOTS;
}

int mill_backend_find(const char *choice, const mill_backend **backend)
{
  int code = MILL_OK;
  if (strncmp(choice, "cuda", 4) == 0) {
    *backend = mill_backend_cuda(&code);
    return code;
  }
  /* `auto` is the CPU here; a run may choose the GPU once its number of rows is known */
  *backend = mill_backend_cpu(NULL);
  return *backend ? MILL_OK
                  : MILL_ERROR(MILL_ERR_BACKEND, "this CPU is too old: use x86-64-v2 or later");
}
