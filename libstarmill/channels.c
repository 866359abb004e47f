/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of a spectra file's channels without a template library. */
#include "libstarmill/handle.h"

struct starmill_channels {
  mill_config config;
  /* a substitute library whose single arm covers all wavelengths; no channel has its name */
  mill_library all;
  mill_spectra_settings settings;
  mill_spectra *spectra;
  mill_read_batch batch;
  char flux_unit[MILL_FLUX_UNIT];
};

void starmill_channels_close(starmill_channels *channels)
{
  if (!channels)
    return;
  MILL_FILES_LOCKED;
  mill_read_batch_clear(&channels->batch);
  mill_spectra_close(channels->spectra);
  mill_config_clear(&channels->config);
  mill_free(channels);
}

MILL_CLOSER(starmill_channels, starmill_channels_close)

/* Open the file with c->all as library: its arm covers all wavelengths, so no channel is cut. */
static int open_channels(const char *path, const char *config, starmill_channels **channels)
{
  const mill_selection all = {.fiberstatus_allowed = UINT64_MAX}; /* a fit may allow all bits */
  mill_file_index index;
  MILL_AT_END(starmill_channels_close_at) starmill_channels *c = NULL;
  MILL_CHECK(MILL_ALLOC(1, &c));
  mill_config_default(&c->config);
  if (config)
    MILL_CHECK(mill_config_read_text(&c->config, "the configuration", config, strlen(config)));
  /* no arm is selected, and no channel is too short for a continuum */
  c->config.n_arm = c->config.fit.n_cont = 0;
  /* two pixels, at 1 A and e^20 A */
  c->all.n_arm = 1;
  c->all.arm[0] = (mill_arm){.name = "-", .n_pix = 2, .ln_step = 20.0, .template_sigma_aa = -1.0};
  c->settings = (mill_spectra_settings){
      .lib = &c->all,
      .config = &c->config,
      .arm_wanted = {1},
      .limits = {c->config.gzip_limit_mib, c->config.scratch},
  };
  MILL_FILES_LOCKED;
  MILL_CHECK(mill_spectra_open(path, &c->settings, &c->spectra));
  /* the generic format then knows which rows belong together */
  MILL_CHECK(mill_spectra_index(c->spectra, &all, &index));
  mill_file_index_clear(&index);
  return MILL_GIVE(&c, channels);
}

int starmill_channels_open(const char *path, const char *config, starmill_channels **channels,
                           starmill_error *error)
{
  MILL_REFUSE_NULL(error, path, channels);
  return mill_tell(open_channels(path, config, channels), error);
}

int starmill_channels_read(starmill_channels *channels, int64_t exposure, int *n,
                           starmill_error *error)
{
  MILL_REFUSE_NULL(error, channels, n);
  MILL_FILES_LOCKED;
  const int err = mill_spectra_read(channels->spectra, &exposure, 1, &channels->batch);
  *n = channels->batch.n_segment;
  return mill_tell(err, error);
}

static int channel_at(starmill_channels *channels, int i, starmill_spectrum *spectrum)
{
  MILL_CHECK(mill_check_index("channel", i, channels->batch.n_segment));
  const mill_raw_segment *s = &channels->batch.segment[i];
  MILL_FILES_LOCKED;
  MILL_CHECK(mill_spectra_flux_unit(channels->spectra, s, channels->flux_unit));
  *spectrum = (starmill_spectrum){.name = mill_spectra_channel(channels->spectra, s),
                                  .n_pix = s->n_pix,
                                  .wave = s->wave_aa,
                                  .flux = s->flux,
                                  .ivar = s->ivar,
                                  .mask = s->mask,
                                  .flux_unit = channels->flux_unit};
  return MILL_OK;
}

int starmill_channels_at(starmill_channels *channels, int i, starmill_spectrum *spectrum,
                         starmill_error *error)
{
  MILL_REFUSE_NULL(error, channels, spectrum);
  return mill_tell(channel_at(channels, i, spectrum), error);
}
