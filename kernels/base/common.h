/* SPDX-License-Identifier: BSD-3-Clause */
/** Portability, limits and constants shared by every layer, in the common subset of C11 and CUDA
 *  C++: no variable-length arrays, no bare restrict, explicit casts. */
#pragma once

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MILL_EXTERN_C_BEGIN extern "C" {
#define MILL_EXTERN_C_END   }
#else
#define MILL_EXTERN_C_BEGIN
#define MILL_EXTERN_C_END
#endif

/** MILL_HD_INLINED: always inlined, so that loops over it vectorise; nvcc inlines by itself. */
#ifdef __CUDACC__
#define MILL_HD         __host__ __device__
#define MILL_HD_INLINED MILL_HD static inline
#else
#define MILL_HD
#define MILL_HD_INLINED static inline __attribute__((always_inline))
#endif

/** MILL_HD_CALLED: a serial function, not inlined on a GPU, to save minutes of compile time. */
#ifdef __CUDA_ARCH__
#define MILL_HD_CALLED MILL_HD __noinline__
#else
#define MILL_HD_CALLED MILL_HD
#endif

#define MILL_PI 3.14159265358979323846

/** Speed of light, km/s (exact). */
#define MILL_C_KM_S 299792.458

/** Limits of one library and one fit; a library beyond them is refused. */
enum {
  MILL_MAX_LABEL = 16,     /**< labels of a library (Teff, log g, ...) */
  MILL_MAX_PAR = 18,       /**< velocity, v sin i, the labels and velocity offsets */
  MILL_MAX_ARM = 8,        /**< arms of a library */
  MILL_MAX_LIBRARY = 4,    /**< libraries of a fit */
  MILL_MAX_LAYER = 12,     /**< layers of an emulator */
  MILL_MAX_WIDTH = 1024,   /**< neurons of a hidden layer */
  MILL_MAX_GRID_AXIS = 6,  /**< labels of a grid emulator (4096 terms) */
  MILL_MAX_HULL = 16,      /**< hulls of a library */
  MILL_MAX_CONT = 24,      /**< continuum functions of a segment */
  MILL_MAX_COMPONENT = 16, /**< components of the model error of an arm */
  MILL_WIDTH_ROWS = 2,     /**< error rows for the width of a line-spread function */
  MILL_MAX_ERROR = 18, /**< error rows of a segment: model error, line-spread function and sky */
  MILL_MAX_ROWS = 48,  /**< error rows, continuum functions and parameters of a segment */
  MILL_MAX_GUESS_START = 10, /**< guess templates from which a star may start */
  MILL_MAX_DIAG = 31,        /**< diagonals of a resolution matrix, odd */
  MILL_MAX_NAME = 32         /**< bytes of a label, arm or setup name with its end */
};

/** Packed length of a symmetric matrix of MILL_MAX_PAR rows. */
#define MILL_MAX_COVAR (MILL_MAX_PAR * (MILL_MAX_PAR + 1) / 2)
