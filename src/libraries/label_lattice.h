/* SPDX-License-Identifier: BSD-3-Clause */
/** Models at the nodes of a grid of labels, and filling of nodes without a model. */
#ifndef MILL_LABEL_LATTICE_H
#define MILL_LABEL_LATTICE_H

#include "kernels/data/library.h"

typedef struct mill_label_lattice {
  int n_axis;
  int n_node[MILL_MAX_GRID_AXIS];
  double *node[MILL_MAX_GRID_AXIS]; /**< [n_node] mapped labels, ascending, owned */
  int n_all;                        /**< nodes of all labels together */
  int *model;                       /**< [n_all] model at a node, the last label fastest; -1: none;
                                         owned */
  int n_gap;                        /**< nodes without a model */
} mill_label_lattice;

void mill_label_lattice_clear(mill_label_lattice *lattice); /* NULL is allowed */

/** Find the grid of n models with mapped labels [n][n_label].
 *
 *  lib   labels, for messages
 *  name  [n] of the models, for messages
 *  Values of a label that differ by less than 1e-6 of its range are one node.
 *  MILL_ERR_INPUT names two models at one node, or when more than half of the nodes are without a
 *  model; MILL_ERR_MEMORY.  lattice is then left cleared. */
int mill_label_lattice_find(const mill_library *lib, int n, const double *mapped,
                            const char (*name)[64], mill_label_lattice *lattice);

/** Fail when a node has no model: name the first few and the options that help. */
int mill_label_lattice_refuse_gaps(const mill_library *lib, const mill_label_lattice *lattice);

/** Does the node of a model have neighbours with models on both sides along every label of three
 *  nodes or more? */
int mill_label_lattice_is_inner(const mill_label_lattice *lattice, int i_node);

/** Node next to i_node along a label, step -1 or 1; -1: there is none. */
int mill_label_lattice_next(const mill_label_lattice *lattice, int i_node, int l, int step);

/** Values [n_all][n_out] at nodes without a model, from their neighbours.
 *
 *  A node between two nodes with values on a line along a label gets what interpolation between
 *  the nearest ones gives: linear, or with `cubic` a polynomial through up to two on either side,
 *  and then of the labels with most nodes.  Of several labels it is the mean, weighted by the
 *  inverse squared number of steps between the nearest
 *  two.  When no node is between others, those next to a node with a value continue the lines
 *  through the nearest two of a side, the mean of such lines; when there is no such line either,
 *  they get the mean of their neighbours.  A node that was filled counts from the next pass on,
 *  and every pass tries the ways in this order.  MILL_ERR_MEMORY. */
int mill_label_lattice_fill(const mill_label_lattice *lattice, int cubic, int n_out, double *value);

#endif
