/* SPDX-License-Identifier: BSD-3-Clause */
/** A backend: one table of functions, chosen at run time.
 *
 *  The pipeline (src/pipeline/pipeline.c) is written once over this table.  A backend
 *  owns memory and drives the block functions of kernels/; it knows no files,
 *  ranks or science.
 */
#ifndef MILL_BACKEND_H
#define MILL_BACKEND_H

#include "kernels/base/host_copy.h"
#include "kernels/base/timing.h"
#include "kernels/star/slot.h"

MILL_EXTERN_C_BEGIN

/** An opened device with its work space. */
typedef struct mill_device mill_device;

enum mill_backend_kind { MILL_BACKEND_CPU, MILL_BACKEND_CUDA };

/** Every function returns MILL_OK or a code with a message.  Pointers to data
 *  are the backend's own memory; structures hold such pointers too.
 *
 *  Where overlaps is set, start and advance only queue work: until collect or wait returns, the
 *  device owns the named slots and the model.  Meanwhile the host may fill and read other slots.
 *  The source of an upload may change once the call has returned, unless its piece stays.  Copies
 *  are done in the order of the calls, and before a later start or advance. */
typedef struct mill_backend {
  const char *name; /**< with the type of the device: "cpu x86-64-v4" */
  int kind;         /**< enum mill_backend_kind */
  int overlaps;     /**< work runs while the host continues */
  int default_slot; /**< preferred number of stars at once; 0: depends on the threads */
  int (*open)(int n_thread, mill_device **out); /**< several share their memory */
  void (*close)(mill_device *device);
  /** Thread i of a device as a separate device that shares its memory and timing.  Parts work
   *  concurrently, but not while the whole device works; close them first.  NULL: it has none. */
  int (*part)(mill_device *whole, int i, mill_device **out);
  int (*alloc)(mill_device *device, size_t bytes, void **out); /**< not zeroed */
  void (*release)(mill_device *device, void *memory);
  int (*upload)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Several pieces, which the device may copy concurrently. */
  int (*upload_all)(mill_device *device, const mill_upload *piece, int n);
  /** Memory of the host from which the device takes pieces that stay.  Called by any thread.  NULL:
   *  any memory will do. */
  int (*pin)(size_t bytes, void **out);
  void (*unpin)(void *memory);
  /** Wait until pieces that stay may change, of the uploads before the last call of this.  NULL:
   *  they may once the upload has returned. */
  int (*settle)(mill_device *device);
  int (*zero)(mill_device *device, void *to, size_t bytes);
  int (*download)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Several pieces from the device, with one wait for all. */
  int (*download_all)(mill_device *device, const mill_upload *piece, int n);
  /** The model and all slots, before the first start and whenever the model has changed;
   *  not while work is under way.  model: host copy of *d_model.  slot [n_slot] stays where it is,
   *  and an entry may change before the start of that slot. */
  int (*bind)(mill_device *device, const mill_model *model, const mill_model *d_model,
              mill_slot *const *slot, int n_slot);
  /** Prepare newly loaded slots, guess, and make their first request.  index [n]: slot numbers. */
  int (*start)(mill_device *device, const int *index, int n);
  /** Rounds over the given slots, including new ones: emulate, answer, digest.  Runs at least one
   *  and at most max_round rounds, and stops when n_want slots have finished.  Slots whose request
   *  is MILL_REQ_NONE are skipped. */
  int (*advance)(mill_device *device, const int *index, int n, int n_want, int max_round);
  /** Wait for the advance; rows of those of its slots that have finished, each once.
   *  index [n of advance] and result [n of advance]. */
  int (*collect)(mill_device *device, int *index, mill_fit_result *result, int *n_finished);
  /** Wait for all queued work. */
  int (*wait)(mill_device *device);
  /** Message for the log about the device since it was opened; NULL: none.  A device without
   *  messages lacks this function.  Valid until the next bind. */
  const char *(*remark)(mill_device *device);
  /** Rows of a float32 arm's emulator at the model's first n_stored guess templates, as
   *  mill_model_arm.stored (rows) and stored_mean (mean) have them.  The result does not depend on
   *  the number of threads.  m: in the host's memory.  Only the CPU's backends have it. */
  int (*store)(mill_device *device, const mill_model *m, int arm, float *rows, double *mean);
  /** Add the device's times since it was opened to *total; NULL: not counted. */
  void (*timing)(mill_device *device, mill_timing *total);
} mill_backend;

/** The CPU backend for the best instruction set of this machine, or the one
 *  named ("x86-64-v2", "x86-64-v3", "x86-64-v4"; NULL: the best).  NULL when
 *  unknown or unsupported here. */
const mill_backend *mill_backend_cpu(const char *isa);

MILL_EXTERN_C_END

#endif
