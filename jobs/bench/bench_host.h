/** A device that fits nothing, in no time: what is left of a run is the work of the host. */
#ifndef MILL_BENCH_HOST_H
#define MILL_BENCH_HOST_H

#include "kernels/backend.h"

/** Stars are copied into buffers as the CUDA backend copies them into its pinned ones
 *  (kernels/base/host_copy.h), and an eighth of the slots is done whenever the pipeline asks.  Rows
 *  are FITTED with nothing in them. */
const mill_backend *mill_bench_host_backend(void);

#endif
