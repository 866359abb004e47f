/** Tangents of an emulator in fewer directions: those that its templates' tangents have.
 *
 *  The last layer takes n_in numbers to pixels.  Tangents of templates lie near a space of far fewer
 *  dimensions, in which they are made while a fit is still far from its end.  The space is that of
 *  the principal components of the guess templates' tangents in pixels, each of length one:
 *  what is left out is least in pixels, for labels of any unit. */
#ifndef MILL_ROUGH_TANGENTS_H
#define MILL_ROUGH_TANGENTS_H

#include "kernels/data/library.h"

/** Two layers that take the place of the last one for tangents: down, then up. */
typedef struct mill_rough_layers {
  int n;       /**< numbers between them, a multiple of 8; 0: there are none that save anything */
  float *down; /**< [n][n_in], owned */
  float *up;   /**< [n_out][n], owned */
} mill_rough_layers;

/** Make them for the last layer of an emulator.
 *
 *  n, input  in   tangents of templates, [n][n_in] inputs of that layer
 *  out       out  to be given to mill_rough_layers_clear, after an error too
 *
 *  MILL_ERR_MEMORY, MILL_ERR_INTERNAL where LAPACK fails. */
int mill_rough_layers_make(const mill_emulator *e, int n, const float *input,
                           mill_rough_layers *out);

void mill_rough_layers_clear(mill_rough_layers *layers);

#endif
