/** What the parts of the library file share: library_file.c reads and writes it, library_check.c,
 *  library_digest.c and library_print.c look at what is in it. */
#ifndef MILL_LIBRARY_PARTS_H
#define MILL_LIBRARY_PARTS_H

#include <stddef.h>

#include "io/hdf5/hdf5_util.h"
#include "io/library/library_file.h"
#include "src/libraries/library_make.h"

enum {
  MILL_LIBRARY_MLP = 1,   /**< format of libraries with multilayer perceptrons only */
  MILL_LIBRARY_KINDS = 2, /**< an arm's attribute emulator says which kind it has: mlp, grid, rbf */
  MILL_LIBRARY_ERRORS = 3, /**< arms may have a model error */
  MILL_LIBRARY_LINEAR = 4, /**< a grid says its degree, which may be 1 */
  MILL_LIBRARY_MIN_PIX = 8,
  MILL_LIBRARY_MAX_PIX = 1 << 20,
  MILL_LIBRARY_MAX_GUESS = 100000,
  MILL_LIBRARY_MAX_REPORT = 32768, /**< bytes */
  MILL_LIBRARY_MAX_GUESS_VSINI = sizeof((mill_library){0}.guess_vsini_km_s) / sizeof(double),
  MILL_LIBRARY_N_KIND = MILL_EMULATOR_RBF + 1
};

/** Largest model error, relative to the flux: beyond it a template says nothing. */
#define MILL_LIBRARY_MAX_ERROR 10.0

/** The oldest format that can hold the library: files with what older programs know stay readable
 *  for them, and as they were. */
int mill_library_format(const mill_library *lib);

/** Numbers in the coefficients of a grid, or of radial functions, whose sizes were checked. */
size_t mill_library_grid_size(const mill_spline_grid *grid);
size_t mill_library_rbf_size(const mill_rbf *rbf);

/** Can texts be printed on a terminal? */
int mill_library_is_printable(const char *text);

/** MILL_ERR_LIBRARY when a grid or radial functions cannot take n_label labels. */
int mill_library_check_axes(const mill_arm *arm, int n_label, const char *where);

/** Read a whole dataset into new memory: out is the address of the caller's pointer. */
int mill_library_read_new(const mill_h5_file *file, const char *at, hid_t type, int n_dim,
                          const size_t *dim, void *out);

/** Read weights and biases of a layer; group: "" or "arms/arm0/"; the last layer gives n_pix. */
int mill_library_read_layer(const mill_h5_file *file, const char *group, int i_layer, int n_pix,
                            mill_emulator *net);

#endif
