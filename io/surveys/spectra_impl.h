/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared by the parts of the spectra reader: spectra.c reads files and fills batches,
 *  spectra_cut.c cuts channels into the library's arms. */
#pragma once

#include "io/surveys/spectra.h"

enum {
  MILL_MAX_PIECE = 2 * MILL_MAX_ARM, /* most pieces of a channel */
  MILL_MAX_KNOWN = 32                /* sets of wavelengths remembered between reads */
};

/* A run of neighbouring pixels of a channel that goes to one arm. */
typedef struct mill_piece {
  int arm, first, n;
  uint64_t wave_number;
  /* in the memory of the batch being read; NULL: not there yet */
  const double *wave_aa;
  const float *sigma_aa; /* from the arm's resolving power or FWHM */
} mill_piece;

/* Wavelengths of a channel, and how they are cut. */
typedef struct mill_known_waves {
  char name[MILL_MAX_NAME];
  int n_pix, air;
  double *given_aa; /* [n_pix] as given, owned */
  double *wave_aa;  /* [n_pix] in vacuum; owned, or the same as given_aa */
  int n_piece;      /* 0: the channel goes to no wanted arm */
  int outside;      /* 1: the channel lies beyond all arms */
  mill_piece piece[MILL_MAX_PIECE];
} mill_known_waves;

/* Settings of this run for an arm of the library. */
typedef struct mill_arm_rule {
  double min_aa, max_aa;           /* configured range, cut to the templates'; 0, inf: none */
  double least_aa, most_aa;        /* templates' usable range within min_aa to max_aa */
  double resolving_power, fwhm_aa; /* configured resolution, 0: none; fwhm_aa has priority */
  int needs_lsf;
} mill_arm_rule;

struct mill_spectra {
  const mill_format *format;
  void *state;
  int frame;
  mill_fits_file *fits; /* NULL: spectra are in memory */
  const char *name;     /* file name for messages; borrowed */
  mill_spectra_settings settings;
  mill_arm_rule arm[MILL_MAX_ARM];
  mill_known_waves known[MILL_MAX_KNOWN];
  int n_known;
  /* state of the read in progress */
  mill_read_batch *batch;
  int n_exposure, n_channel, waves_only;
  char (*channel_name)[MILL_MAX_NAME]; /* [n_channel] owned */
  int64_t channel_room;
};

/** Set the rules of all arms from settings, library and configuration. */
void mill_spectra_set_rules(mill_spectra *spectra);

/** Find how a channel is cut.  Channels of equal name and wavelengths are cut once. */
int mill_spectra_know(mill_spectra *spectra, const mill_channel *channel, mill_known_waves **out);

/** Forget all remembered wavelengths. */
void mill_spectra_forget(mill_spectra *spectra);

/** Return the source of a channel's line-spread function in an arm; MILL_LSF_OFF: none is needed;
 *  MILL_LSF_AUTO: the width is unknown. */
int mill_spectra_lsf(const mill_spectra *spectra, const mill_channel *channel, int arm);
