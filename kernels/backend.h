/** A backend: one table of functions, chosen at run time.
 *
 *  The pipeline (src/pipeline.c) is written once over this table.  A backend
 *  owns memory and drives the block functions of kernels/; it knows no files,
 *  ranks or science.
 */
#ifndef MILL_BACKEND_H
#define MILL_BACKEND_H

#include "kernels/slot.h"
#include "kernels/timing.h"

MILL_EXTERN_C_BEGIN

/** An opened device with its work space. */
typedef struct mill_device mill_device;

/** Every function returns MILL_OK or a code with a message.  Pointers to data
 *  are the backend's own memory; structures hold such pointers too. */
typedef struct mill_backend {
  const char *name; /**< "cpu x86-64-v4": recorded in the result file */
  int (*open)(int n_thread, mill_device **out);
  void (*close)(mill_device *device);
  int (*alloc)(mill_device *device, size_t bytes, void **out); /**< not zeroed */
  void (*release)(mill_device *device, void *memory);
  int (*upload)(mill_device *device, void *to, const void *from, size_t bytes);
  int (*zero)(mill_device *device, void *to, size_t bytes);
  int (*download)(mill_device *device, void *to, const void *from, size_t bytes);
  /** Prepare freshly loaded slots, guess, and make their first request. */
  int (*start)(mill_device *device, const mill_model *model, mill_slot *const *slot, int n);
  /** n_round rounds over the given slots: emulate, answer, digest.  Slots whose
   *  request is MILL_REQ_NONE are passed over. */
  int (*round)(mill_device *device, const mill_model *model, mill_slot *const *slot, int n,
               int n_round);
  /** Add to *total what this device has spent since it was opened; NULL: not counted. */
  void (*timing)(mill_device *device, mill_timing *total);
} mill_backend;

/** The CPU backend for the best instruction set of this machine, or the one
 *  named ("x86-64-v2", "x86-64-v3", "x86-64-v4"; NULL: the best).  NULL when
 *  unknown or unsupported here. */
const mill_backend *mill_backend_cpu(const char *isa);

MILL_EXTERN_C_END

#endif
