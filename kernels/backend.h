/* SPDX-License-Identifier: BSD-3-Clause */
/** A backend: one table of functions, chosen at run time.
 *
 *  The pipeline (src/pipeline/pipeline.c) calls only these functions.  A backend owns memory and
 *  computes fits there; it handles no files or ranks. */
#pragma once

#include "kernels/base/host_copy.h"
#include "kernels/base/timing.h"
#include "kernels/star/slot.h"

MILL_EXTERN_C_BEGIN

/** An opened device with its work space. */
typedef struct mill_device mill_device;

enum mill_backend_kind { MILL_BACKEND_CPU, MILL_BACKEND_CUDA };

/** Functions return MILL_OK or an error code with a message.  Data pointers, also those inside
 *  structures, refer to the backend's own memory.
 *
 *  - If overlaps is set, start and advance only queue work.  Until collect or wait returns, the
 *    host must leave the model and the slots of the call alone; it may fill and read other slots.
 *  - After an upload returns, its source may change, unless mill_upload.stays is set.
 *  - Copies run in the order of the calls, and before a later start or advance. */
typedef struct mill_backend {
  const char *name; /**< includes the device's type: "cpu x86-64-v4" */
  int kind;         /**< enum mill_backend_kind */
  int overlaps;     /**< work runs while the host continues */
  int default_slot; /**< preferred number of stars at once; 0: see mill_backend_slots */
  int (*open)(int n_thread, mill_device **out); /**< all opened devices share their memory */
  void (*close)(mill_device *device);
  /** Open thread i of a device as a device of its own (a part), with the same memory and timing.
   *  Parts may run at the same time, but not while the whole device runs.  Close parts before the
   *  whole.  The pointer part is NULL in a backend without parts. */
  int (*part)(mill_device *whole, int i, mill_device **out);
  int (*alloc)(mill_device *device, size_t bytes, void **out); /**< not zeroed */
  void (*release)(mill_device *device, void *memory);
  int (*upload)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Upload n pieces; the device may copy them concurrently. */
  int (*upload_all)(mill_device *device, const mill_upload *piece, int n);
  /** Allocate pinned host memory.  The source of an upload with mill_upload.stays must lie in such
   *  memory; if pin is NULL, it may lie anywhere.  Any thread may call pin. */
  int (*pin)(size_t bytes, void **out);
  void (*unpin)(void *memory);
  /** Wait until the uploads made before the previous call of settle have read their sources.  The
   *  host may then change these sources.  settle is NULL if every upload copies at once. */
  int (*settle)(mill_device *device);
  int (*zero)(mill_device *device, void *to, size_t bytes);
  int (*download)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Download n pieces, with one wait for all. */
  int (*download_all)(mill_device *device, const mill_upload *piece, int n);
  /** Set the model and the slots.  Call bind before the first start and after each change of the
   *  model, while no work is under way.  model: host copy of *d_model.  The array slot [n_slot]
   *  must not move; entry i may change until slot i is started. */
  int (*bind)(mill_device *device, const mill_model *model, const mill_model *d_model,
              mill_slot *const *slot, int n_slot);
  /** Prepare the new slots index [n], compute their initial guess and set their first request. */
  int (*start)(mill_device *device, const int *index, int n);
  /** Run rounds over the given slots, until n_want slots have finished (the CPU ignores n_want) or
   *  max_round rounds are done.  A round computes the templates and likelihoods that slots request,
   *  and continues each fit to its next request.  A slot with MILL_REQ_NONE has finished. */
  int (*advance)(mill_device *device, const int *index, int n, int n_want, int max_round);
  /** Wait for the advance; return the numbers and result rows of its finished slots, each slot
   *  once.  index and result have room for the n slots of the advance. */
  int (*collect)(mill_device *device, int *index, mill_fit_result *result, int *n_finished);
  /** Wait for all queued work. */
  int (*wait)(mill_device *device);
  /** Return a message for the log, or NULL; valid until the next bind.  The pointer remark itself
   *  is NULL in a backend without messages. */
  const char *(*remark)(mill_device *device);
  /** Compute an arm's first n_stored guess templates in float32.  rows and mean have the layout of
   *  mill_model_arm.stored and stored_mean.  m: in host memory.  CPU backends only. */
  int (*store)(mill_device *device, const mill_model *m, int arm, float *rows, double *mean);
  /** Add the device's times since its opening to *total.  NULL in a backend that takes no times. */
  void (*timing)(mill_device *device, mill_timing *total);
} mill_backend;

/** Return the CPU backend of instruction set "x86-64-v2", "x86-64-v3" or "x86-64-v4"; isa NULL: the
 *  best of this machine.  Returns NULL if isa is unknown or this machine lacks it. */
const mill_backend *mill_backend_cpu(const char *isa);

/** Find the backend that `choice` names: the CPU's for auto and cpu, the GPU's for cuda and
 *  cuda+cpu.  After auto a run may still choose the GPU.  MILL_ERR_CONFIG, MILL_ERR_BACKEND. */
int mill_backend_find(const char *choice, const mill_backend **backend);

/** Return how many slots a backend prefers if it runs n_thread threads. */
int mill_backend_slots(const mill_backend *backend, int n_thread);

MILL_EXTERN_C_END
