/* SPDX-License-Identifier: BSD-3-Clause */
/** One format behind io/surveys/spectra.h with a library whose arms are named as its channels, so
 *  that every channel arrives whole. */
#ifndef MILL_TEST_ONE_FORMAT_H
#define MILL_TEST_ONE_FORMAT_H

#include "tests/mill_test.h"

#include <zlib.h>

#include "io/surveys/spectra.h"
#include "kernels/base/error.h"
#include "tests/io/fits/fits_maker.h"

enum { ONE_COADD, ONE_B, ONE_R, ONE_BLUE, ONE_RED, ONE_SPECTRUM, ONE_N_ARM };

typedef struct one_format {
  const mill_format *format;
  char folder[1024], path[1100];
  mill_library lib;
  mill_config config;
  mill_spectra_settings settings;
} one_format;

/** has_lsf: the library wants a line-spread function. */
static inline void one_begin(one_format *one, const mill_format *format, int has_lsf)
{
  static const char *const arm[ONE_N_ARM] = {"coadd", "b", "r", "blue", "red", "spectrum"};
  memset(one, 0, sizeof *one);
  one->format = format;
  maker_folder(one->folder, sizeof one->folder);
  snprintf(one->path, sizeof one->path, "%s/x.fits", one->folder);
  mill_config_default(&one->config);
  one->lib.n_arm = ONE_N_ARM;
  for (int i = 0; i < ONE_N_ARM; i++) {
    strcpy(one->lib.arm[i].name, arm[i]);
    one->lib.arm[i].template_sigma_aa = has_lsf ? 0.0 : -1.0;
    one->settings.arm_wanted[i] = 1;
  }
  one->settings.lib = &one->lib;
  one->settings.config = &one->config;
  one->settings.limits.gzip_limit_mib = MILL_GZIP_LIMIT_MIB;
}

static inline void one_end(one_format *one)
{
  maker_remove_folder(one->folder);
  mill_config_clear(&one->config);
}

static inline mill_spectra *one_open(one_format *one, const char *path)
{
  mill_spectra *spectra;
  assert_ok(mill_spectra_open_as(path, &one->settings, &one->format, 1, &spectra));
  assert_string_equal(mill_spectra_format_name(spectra), one->format->name);
  return spectra;
}

static inline void one_index(one_format *one, mill_spectra *spectra, mill_file_index *index)
{
  assert_ok(mill_spectra_index(spectra, &one->config.select, index));
}

/** Read all exposures of the index. */
static inline void one_read(mill_spectra *spectra, const mill_file_index *index,
                            mill_read_batch *batch)
{
  assert_ok(mill_spectra_read(spectra, index->exposure_row, (int)index->n_exposure, batch));
}

/** The file at one->path is refused, when it is opened, indexed or read, with all parts in the
 *  message, and its name. */
static inline void one_refuses(one_format *one, const char *part, const char *other)
{
  mill_spectra *spectra = NULL;
  mill_file_index index = {0};
  mill_read_batch batch = {0};
  mill_error_clear();
  int err = mill_spectra_open_as(one->path, &one->settings, &one->format, 1, &spectra);
  if (err == MILL_OK)
    err = mill_spectra_index(spectra, &one->config.select, &index);
  if (err == MILL_OK)
    err = mill_spectra_read(spectra, index.exposure_row, (int)index.n_exposure, &batch);
  if (err != MILL_ERR_INPUT || !strstr(mill_error_message(), part) ||
      !strstr(mill_error_message(), other) || !strstr(mill_error_message(), one->path))
    fail_msg("expected '%s' and '%s', got %d and '%s'", part, other, err, mill_error_message());
  mill_read_batch_clear(&batch);
  mill_file_index_clear(&index);
  mill_spectra_close(spectra);
}

/** What the format itself says of a file, and of none of its own. */
static inline int one_recognises(const one_format *one, const char *path)
{
  mill_fits_guard *guard;
  assert_ok(mill_fits_guard_open(path, NULL, &guard));
  const int known = one->format->recognise(guard);
  mill_fits_guard_close(guard);
  return known;
}

/** CRC-32 of n values of 4 bytes (8 where wide) as they lie in a little-endian memory. */
static inline uint32_t one_crc(const void *values, int n, int wide)
{
  return (uint32_t)crc32(0, values, (uInt)n * (wide ? 8 : 4));
}

/** A file that is open, indexed and read. */
typedef struct one_file {
  mill_spectra *spectra;
  mill_file_index index;
  mill_read_batch batch;
} one_file;

static inline one_file one_file_open(one_format *one, const char *path)
{
  one_file f = {0};
  f.spectra = one_open(one, path);
  one_index(one, f.spectra, &f.index);
  one_read(f.spectra, &f.index, &f.batch);
  return f;
}

/** How many arrays of wavelengths the segments have. */
static inline int one_n_wave(const mill_read_batch *batch)
{
  int n = 0;
  for (int i = 0, k; i < batch->n_segment; i++) {
    for (k = 0; k < i && batch->segment[k].wave_aa != batch->segment[i].wave_aa;)
      k++;
    n += k == i && batch->segment[i].wave_aa;
  }
  return n;
}

static inline void one_file_close(one_file *f)
{
  mill_read_batch_clear(&f->batch);
  mill_file_index_clear(&f->index);
  mill_spectra_close(f->spectra);
}

#endif
