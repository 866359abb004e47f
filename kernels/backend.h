/* SPDX-License-Identifier: BSD-3-Clause */
/** A backend: one table of functions, chosen at run time.
 *
 *  The pipeline (src/pipeline/pipeline.c) calls only these functions.  A backend owns memory and
 *  runs the block functions of kernels/; it handles no files or ranks. */
#pragma once

#include "kernels/base/host_copy.h"
#include "kernels/base/timing.h"
#include "kernels/star/slot.h"

MILL_EXTERN_C_BEGIN

/** An opened device with its work space. */
typedef struct mill_device mill_device;

enum mill_backend_kind { MILL_BACKEND_CPU, MILL_BACKEND_CUDA };

/** Every function returns MILL_OK, or a code with a message.  Data pointers, also those inside
 *  structures, refer to the backend's own memory.
 *
 *  With overlaps set, start and advance only queue work: until collect or wait returns, the device
 *  owns the named slots and the model.  The host may fill and read other slots meanwhile.  After an
 *  upload returns, its source may change, unless mill_upload.stays is set.  Copies run in the order
 *  of the calls, and before a later start or advance. */
typedef struct mill_backend {
  const char *name; /**< includes the device's type: "cpu x86-64-v4" */
  int kind;         /**< enum mill_backend_kind */
  int overlaps;     /**< work runs while the host continues */
  int default_slot; /**< preferred number of stars at once; 0: depends on the threads */
  int (*open)(int n_thread, mill_device **out); /**< all opened devices share their memory */
  void (*close)(mill_device *device);
  /** Open thread i of a device as a separate device with the same memory and timing.  Parts run
   *  concurrently, but not while the whole device runs; close parts before the whole.  This pointer
   *  is NULL in a backend without parts. */
  int (*part)(mill_device *whole, int i, mill_device **out);
  int (*alloc)(mill_device *device, size_t bytes, void **out); /**< not zeroed */
  void (*release)(mill_device *device, void *memory);
  int (*upload)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Upload n pieces; the device may copy them concurrently. */
  int (*upload_all)(mill_device *device, const mill_upload *piece, int n);
  /** Allocate pinned host memory for the pieces of uploads with mill_upload.stays; any thread may
   *  call pin.  It is NULL in a backend that takes such pieces from any memory. */
  int (*pin)(size_t bytes, void **out);
  void (*unpin)(void *memory);
  /** Call number k of settle waits for all uploads made before call k - 1; then their sources with
   *  mill_upload.stays may change.  A backend whose uploads copy at once has no settle (NULL). */
  int (*settle)(mill_device *device);
  int (*zero)(mill_device *device, void *to, size_t bytes);
  int (*download)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Download n pieces, with one wait for all. */
  int (*download_all)(mill_device *device, const mill_upload *piece, int n);
  /** Bind the model and all slots.  Call bind before the first start and after each change of the
   *  model, never while work is under way.  model: host copy of *d_model.  The array slot [n_slot]
   *  must not move; an entry may change before the start of that slot. */
  int (*bind)(mill_device *device, const mill_model *model, const mill_model *d_model,
              mill_slot *const *slot, int n_slot);
  /** Prepare new slots, numbers index [n]; compute their initial guess, set their first request. */
  int (*start)(mill_device *device, const int *index, int n);
  /** Run 1 to max_round rounds over the given slots (new ones too), until n_want slots have
   *  finished (the CPU ignores n_want).  A round emulates templates, answers the slots' requests
   *  and digests the answers, except for slots whose request is MILL_REQ_NONE. */
  int (*advance)(mill_device *device, const int *index, int n, int n_want, int max_round);
  /** Wait for the advance; return the numbers and result rows of its finished slots, each slot
   *  once.  index and result have room for the n slots of the advance. */
  int (*collect)(mill_device *device, int *index, mill_fit_result *result, int *n_finished);
  /** Wait for all queued work. */
  int (*wait)(mill_device *device);
  /** Return a message about the device for the log, or NULL; valid until the next bind.  A backend
   *  that never has a message has no such function (remark is NULL). */
  const char *(*remark)(mill_device *device);
  /** Evaluate a float32 arm's emulator at the model's first n_stored guess templates; rows and mean
   *  have the layout of mill_model_arm.stored and stored_mean.  The bits do not depend on the
   *  number of threads.  m: in host memory.  CPU backends only. */
  int (*store)(mill_device *device, const mill_model *m, int arm, float *rows, double *mean);
  /** Add the times of the device since its opening to *total.  NULL: times are not taken. */
  void (*timing)(mill_device *device, mill_timing *total);
} mill_backend;

/** Return the CPU backend of instruction set isa ("x86-64-v2", "x86-64-v3", "x86-64-v4"; NULL: the
 *  best of this machine).  NULL if isa is unknown or this machine lacks it. */
const mill_backend *mill_backend_cpu(const char *isa);

/** Find the backend of a configuration's word: cpu, cuda, cuda+cpu (the GPU's backend) or auto.
 *  auto gives the CPU's backend; a run that knows its number of rows may then choose another.
 *  MILL_ERR_CONFIG, MILL_ERR_BACKEND. */
int mill_backend_find(const char *choice, const mill_backend **backend);

/** Return the preferred number of stars at once of a backend with n_thread threads. */
int mill_backend_slots(const mill_backend *backend, int n_thread);

MILL_EXTERN_C_END
