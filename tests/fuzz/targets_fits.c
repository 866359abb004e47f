/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "io/surveys/redrock.h"
#include "io/surveys/spectra.h"
#include "src/system/log.h"
#include "tests/fuzz/targets.h"

enum { N_ARM = 3, BATCH_EXPOSURES = 16, MAX_EXPOSURES = 4096 };

/* A bad file costs its own rows only, so no other codes are allowed. */
static const int of_a_file[] = {MILL_ERR_INPUT, MILL_ERR_RANGE, -1};

/* Arms take whole channels or cut them by wavelength; some need a line-spread function. */
static void make_library(mill_library *lib)
{
  static const char *const name[N_ARM] = {"b", "r", "blue"};
  static const double first_aa[N_ARM] = {3500.0, 5700.0, 3600.0};
  memset(lib, 0, sizeof *lib);
  lib->n_arm = N_ARM;
  for (int i = 0; i < N_ARM; i++) {
    mill_arm *arm = &lib->arm[i];
    strcpy(arm->name, name[i]);
    arm->n_pix = 30000;
    arm->ln_wave0 = log(first_aa[i]);
    arm->ln_step = 1.5e-5;
    arm->template_sigma_aa = i == 1 ? -1.0 : 0.0;
  }
}

/* Read every value that a run would read, so that an invalid address shows. */
static double touch(const mill_read_batch *batch)
{
  double sum = 0.0;
  for (int i = 0; i < batch->n_segment; i++) {
    const mill_raw_segment *s = &batch->segment[i];
    if (s->use != MILL_SEGMENT_FIT)
      continue;
    for (int k = 0; k < s->n_pix; k++) {
      sum += (double)s->flux[k] + (double)s->ivar[k] + s->wave_aa[k];
      sum += (s->mask ? s->mask[k] : 0) + (s->sigma_aa ? (double)s->sigma_aa[k] : 0.0);
    }
    for (int k = 0; s->resolution && k < s->n_pix * s->n_diag; k++)
      sum += (double)s->resolution[k];
  }
  return sum;
}

/* Read as io/stars/reader.c does: in batches; if a batch fails, its rows one by one. */
static int read_rows(mill_spectra *spectra, const mill_file_index *index)
{
  static volatile double sink;
  mill_read_batch batch;
  int accepted = index->n_exposure > 0;
  const int64_t end = index->n_exposure < MAX_EXPOSURES ? index->n_exposure : MAX_EXPOSURES;
  memset(&batch, 0, sizeof batch);
  for (int64_t at = 0; at < end; at += BATCH_EXPOSURES) {
    const int n = (int)(end - at < BATCH_EXPOSURES ? end - at : BATCH_EXPOSURES);
    int err = mill_spectra_read(spectra, index->exposure_row + at, n, &batch);
    if (fuzz_check_code("read", err, of_a_file) == MILL_OK)
      sink = touch(&batch);
    for (int i = 0; err != MILL_OK && i < n; i++) {
      accepted = 0;
      const int one = mill_spectra_read(spectra, index->exposure_row + at + i, 1, &batch);
      if (fuzz_check_code("read of one", one, of_a_file) == MILL_OK)
        sink = touch(&batch);
    }
    err = mill_spectra_waves(spectra, index->exposure_row + at, n, &batch);
    fuzz_check_code("wavelengths", err, of_a_file);
  }
  (void)sink;
  mill_read_batch_clear(&batch);
  return accepted;
}

/* Read the file with these settings; format NULL: recognise the format. */
static int run_once(const char *path, const mill_spectra_settings *settings,
                    const mill_format *format)
{
  mill_spectra *spectra;
  mill_file_index index;
  int accepted = FUZZ_REFUSED;
  int err = format ? mill_spectra_open_as(path, settings, &format, 1, &spectra)
                   : mill_spectra_open(path, settings, &spectra);
  if (fuzz_check_code("open", err, of_a_file) != MILL_OK)
    return accepted;
  (void)mill_spectra_frame(spectra);
  err = mill_spectra_index(spectra, &settings->config->select, &index);
  fuzz_check_code("index", err, of_a_file);
  if (err == MILL_OK && read_rows(spectra, &index))
    accepted = FUZZ_ACCEPTED;
  if (err == MILL_OK)
    mill_file_index_clear(&index);
  mill_spectra_close(spectra);
  return accepted;
}

static int run_format(const mill_format *format, const uint8_t *bytes, size_t n)
{
  static mill_library lib;
  mill_config config;
  const mill_spectra_settings settings = {
      .lib = &lib, .config = &config, .arm_wanted = {1, 1, 1}, .limits = {4, fuzz_scratch()}};
  int accepted = FUZZ_REFUSED;
  make_library(&lib);
  mill_config_default(&config);
  config.fit.n_cont = 1; /* two pixels are a spectrum here */
  strcpy(config.format, format->name);
  mill_log_open(0, 1, mill_log_level_from_name("error"), NULL);
  const char *path = fuzz_file(bytes, n);
  mill_error_clear();
  for (int exposures = MILL_EXPOSURES_COADD; exposures <= MILL_EXPOSURES_JOINT; exposures++) {
    config.exposures = exposures;
    if (run_once(path, &settings, format) == FUZZ_ACCEPTED)
      accepted = FUZZ_ACCEPTED;
  }
  /* files without a line-spread function: lsf "off" reads their pixels */
  config.format[0] = '\0';
  config.lsf = MILL_LSF_OFF;
  (void)run_once(path, &settings, NULL);
  mill_config_clear(&config);
  return accepted;
}

#define SURVEY(name, is_fits)                                                                      \
  int fuzz_##name(const uint8_t *bytes, size_t n)                                                  \
  {                                                                                                \
    return run_format(&mill_format_##name, bytes, n);                                              \
  }
FUZZ_SURVEYS(SURVEY)

int fuzz_redrock(const uint8_t *bytes, size_t n)
{
  mill_redrock redrock = {0};
  const mill_open_limits limits = {4, fuzz_scratch()};
  mill_error_clear();
  const int err = mill_redrock_read(fuzz_file(bytes, n), &limits, &redrock);
  if (fuzz_check_code("redrock", err, of_a_file) != MILL_OK)
    return FUZZ_REFUSED;
  (void)mill_redrock_find(&redrock, 10);
  mill_redrock_clear(&redrock);
  return FUZZ_ACCEPTED;
}
