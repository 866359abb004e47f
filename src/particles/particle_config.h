/* SPDX-License-Identifier: BSD-3-Clause */
/** The configuration of `starmill particles`: YAML keys of the evolution and of its problems. */
#pragma once

#include <stdio.h>

#include "kernels/particles/particles.h"

enum { MILL_PARTICLE_MAX_RECORD = 4096, MILL_PARTICLE_MAX_PROBLEM = 1000000 };

/** Contents of the configuration file. */
typedef struct mill_particle_config {
  mill_particle_setup setup; /**< setup.record points to record below */
  int record[MILL_PARTICLE_MAX_RECORD];
  double time[MILL_PARTICLE_MAX_RECORD]; /**< times at which densities are wanted */
  int n_time, positions;
  char potential_file[1024], samples_file[1024];
  mill_particle_problem common; /**< values for problems that do not set their own */
  int64_t n_problem;
  mill_particle_problem *problem; /**< [n_problem], owned */
} mill_particle_config;

/** Read and check the file at path into config, which needs no initialisation; free it by
 *  mill_particle_config_clear.  MILL_ERR_CONFIG (with allowed values), MILL_ERR_MEMORY. */
int mill_particle_config_read(const char *path, mill_particle_config *config);
void mill_particle_config_clear(mill_particle_config *config);

/** Print every key with its values and meaning as a Markdown table. */
void mill_particle_config_print_keys(FILE *out);
