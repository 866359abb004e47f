/* SPDX-License-Identifier: BSD-3-Clause */
/* 4MOST: containers of L1 spectra, one row a fibre, and files of a single spectrum;
 * docs/use/input.md has the rules and what is assumed. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "io/surveys/selection.h"
#include "io/surveys/single_spectrum.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"

/* Wavelengths that are further apart than GAP are of two cameras: those of the high resolution are
 * joined with gaps of several 100 A.  No camera is wider than WIDEST.  Of both resolutions blue
 * begins below BLUE, green below GREEN. */
static const double GAP = 50.0, WIDEST = 3000.0, BLUE = 4600.0, GREEN = 5800.0;

enum { MAX_PIECE = 3 };

/* Pixels that become one channel. */
typedef struct piece {
  const char *channel;
  int first, n_pix;
} piece;

typedef struct fourmost {
  mill_fits_file *file;     /* borrowed */
  int i_spectra, i_target;  /* HDUs; i_target -1: a file of one spectrum */
  int64_t n_spec;           /* rows */
  int64_t i_row, row_held;  /* the one being read; whose pixels are in spectrum, -1: none */
  int n_pix, air, has_ivar; /* has_ivar: FLUX_IVAR, not ERR_FLUX */
  int flux, noise, mask;    /* columns, as CFITSIO counts */
  double scale;             /* of fluxes */
  int n_piece;
  piece piece[MAX_PIECE];
  mill_single_spectrum spectrum; /* its wavelengths are those of all rows */
} fourmost;

static int find_single(const mill_fits_guard *guard)
{
  const int i_phase3 = mill_single_find_table(guard, "PHASE3SPECTRUM");
  return i_phase3 >= 0 ? i_phase3 : mill_single_find_table(guard, "SPECTRUM");
}

/* Other instruments of ESO have such single spectra too. */
static int recognise(const mill_fits_guard *guard)
{
  return (mill_single_find_table(guard, "SPECTAB") >= 0 &&
          mill_single_find_table(guard, "FIBMETATAB") >= 0) ||
         (find_single(guard) >= 0 && (mill_single_says(guard, "INSTRUME= 'QMOST") ||
                                      mill_single_says(guard, "INSTRUME= '4MOST")));
}

/* ---- structure -------------------------------------------------------- */

static int find_tables(fourmost *f)
{
  const mill_fits_guard *guard = f->file->guard;
  f->i_target = mill_single_find_table(guard, "FIBMETATAB");
  f->i_spectra = mill_single_find_table(guard, "SPECTAB");
  if ((f->i_spectra >= 0) != (f->i_target >= 0))
    return MILL_ERROR(MILL_ERR_INPUT,
                      "%s: has no table %s though it has the other of a container; fetch it again",
                      guard->path, f->i_target < 0 ? "FIBMETATAB" : "SPECTAB");
  if (f->i_spectra < 0)
    f->i_spectra = find_single(guard);
  if (f->i_spectra < 0)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: has neither tables SPECTAB and FIBMETATAB nor a table PHASE3SPECTRUM; give a "
        "container of 4MOST L1 spectra or a file of one, not a catalogue",
        guard->path);
  f->n_spec = guard->hdu[f->i_spectra].axis[1];
  const int64_t wanted = f->i_target < 0 ? 1 : guard->hdu[f->i_target].axis[1];
  if (f->n_spec != wanted)
    return MILL_ERROR_HDU(f->file, f->i_spectra, " has %lld rows, expected %lld: %s",
                          (long long)f->n_spec, (long long)wanted,
                          f->i_target < 0 ? "a file of one spectrum" : "those of FIBMETATAB");
  return MILL_OK;
}

static int find_vectors(fourmost *f)
{
  mill_fits_column c;
  int has_error;
  MILL_CHECK(mill_fits_column_find(f->file, f->i_spectra, "FLUX_IVAR", &f->has_ivar, &c));
  MILL_CHECK(mill_fits_column_find(f->file, f->i_spectra, "ERR_FLUX", &has_error, &c));
  if (!f->has_ivar && !has_error)
    return MILL_ERROR_HDU(f->file, f->i_spectra,
                          " has neither of the columns FLUX_IVAR and ERR_FLUX; fetch it again");
  MILL_CHECK(mill_single_vector(f->file, f->i_spectra, "FLUX", &f->n_pix, &f->flux));
  MILL_CHECK(mill_single_vector(f->file, f->i_spectra, f->has_ivar ? "FLUX_IVAR" : "ERR_FLUX",
                                &f->n_pix, &f->noise));
  return mill_single_vector(f->file, f->i_spectra, "QUAL", &f->n_pix, &f->mask);
}

static int read_row(fourmost *f, int column, int64_t i_row, double *out)
{
  return mill_single_vector_row(f->file, f->i_spectra, column, i_row, f->n_pix, out);
}

/* Of a container: by the keywords of column FLUX. */
static int read_linear_wave(fourmost *f, int medium)
{
  char key[5][FLEN_KEYWORD];
  static const char *const stem[] = {"CRVL", "CDLT", "CRPX", "CUNI", "CTYP"};
  for (int i = 0; i < 5; i++)
    snprintf(key[i], sizeof key[i], "1%s%d", stem[i], f->flux);
  const mill_single_wcs wcs = {key[0], key[1], NULL, key[2], key[3], key[4], ""};
  return mill_single_linear_wave(f->file, f->i_spectra, &wcs, medium, f->n_pix, f->spectrum.wave_aa,
                                 &f->air);
}

/* Of a single spectrum: column WAVE, in air where its UCD has obs.atmos. */
static int read_wave_column(fourmost *f, int medium)
{
  int number = 0;
  char key[FLEN_KEYWORD], unit[FLEN_VALUE] = "", ucd[FLEN_VALUE] = "";
  double *wave_aa = f->spectrum.wave_aa, to_aa = 1.0;
  MILL_CHECK(mill_single_vector(f->file, f->i_spectra, "WAVE", &f->n_pix, &number));
  snprintf(key, sizeof key, "TUNIT%d", number);
  MILL_CHECK(mill_single_key_text(f->file, f->i_spectra, key, unit, sizeof unit, NULL));
  if (!mill_single_unit(unit, &to_aa))
    return MILL_ERROR_HDU(f->file, f->i_spectra, ": %s '%s', expected Angstrom, nm, um or m", key,
                          unit);
  snprintf(key, sizeof key, "TUCD%d", number);
  MILL_CHECK(mill_single_key_text(f->file, f->i_spectra, key, ucd, sizeof ucd, NULL));
  f->air = strstr(ucd, "obs.atmos") != NULL;
  if (!f->air && strncasecmp(ucd, "em.wl", 5) != 0 && medium == MILL_MEDIUM_AUTO)
    return MILL_ERROR_HDU(f->file, f->i_spectra,
                          ": %s '%s' says neither air (em.wl;obs.atmos) nor vacuum (em.wl); set "
                          "medium",
                          key, ucd);
  MILL_CHECK(read_row(f, number, 0, wave_aa));
  for (int i = 0; i < f->n_pix; i++)
    wave_aa[i] *= to_aa;
  return mill_single_check_wave(f->file, f->i_spectra, "column WAVE", f->n_pix, wave_aa);
}

static const char *channel_of(double first_aa, double last_aa)
{
  if (last_aa - first_aa > WIDEST)
    return "joined";
  return first_aa < BLUE ? "blue" : first_aa < GREEN ? "green" : "red";
}

static int find_pieces(fourmost *f)
{
  const double *wave_aa = f->spectrum.wave_aa;
  for (int i = 0, end; i < f->n_pix; i = end) {
    for (end = i + 1; end < f->n_pix && wave_aa[end] - wave_aa[end - 1] <= GAP;)
      end++;
    if (f->n_piece == MAX_PIECE)
      return MILL_ERROR_HDU(f->file, f->i_spectra,
                            ": wavelengths have more than two gaps of %g A, but there are three "
                            "cameras; make the file again",
                            GAP);
    f->piece[f->n_piece++] = (piece){channel_of(wave_aa[i], wave_aa[end - 1]), i, end - i};
  }
  return MILL_OK;
}

static int is_positive(double x)
{
  return isfinite(x) && x > 0.0;
}

/* Are fluxes in physical units?  Most errors of the first spectrum that has any answer for the
 * file. */
static int choose_scale(fourmost *f)
{
  double *noise = f->spectrum.number;
  int n = 0, n_small = 0;
  for (int64_t i = 0; i < f->n_spec && n == 0; i++) {
    MILL_CHECK(read_row(f, f->noise, i, noise));
    for (int k = 0; k < f->n_pix; k++)
      if (is_positive(noise[k])) {
        n++;
        n_small += (f->has_ivar ? 1.0 / sqrt(noise[k]) : noise[k]) < MILL_SINGLE_PHYSICAL;
      }
  }
  f->scale = 2 * n_small > n ? MILL_SINGLE_SCALE : 1.0;
  return MILL_OK;
}

static void close_file(void *state)
{
  fourmost *f = state;
  mill_single_clear(&f->spectrum);
  mill_free(f);
}

static int open_file(mill_fits_file *file, const mill_spectra_settings *settings, int *frame,
                     void **state)
{
  fourmost *f = NULL;
  const int medium = settings->config->medium;
  MILL_CHECK(MILL_ALLOC(1, &f));
  *state = f;
  f->file = file;
  f->row_held = -1;
  MILL_CHECK(find_tables(f));
  MILL_CHECK(find_vectors(f));
  MILL_CHECK(mill_single_resize(&f->spectrum, f->n_pix));
  MILL_CHECK(f->i_target < 0 ? read_wave_column(f, medium) : read_linear_wave(f, medium));
  MILL_CHECK(find_pieces(f));
  MILL_CHECK(choose_scale(f));
  return mill_single_specsys(file, f->i_spectra, frame);
}

/* ---- pixels ----------------------------------------------------------- */

static int hold_row(fourmost *f)
{
  mill_single_spectrum *s = &f->spectrum;
  double *x = s->number;
  if (f->row_held == f->i_row)
    return MILL_OK;
  f->row_held = -1;
  MILL_CHECK(read_row(f, f->flux, f->i_row, x));
  for (int i = 0; i < f->n_pix; i++)
    x[i] *= f->scale;
  mill_single_narrow(x, f->n_pix, s->flux);
  MILL_CHECK(read_row(f, f->noise, f->i_row, x));
  for (int i = 0; i < f->n_pix; i++)
    if (f->has_ivar)
      x[i] /= f->scale * f->scale;
    else
      x[i] = is_positive(x[i]) ? 1.0 / (x[i] * f->scale * (x[i] * f->scale)) : 0.0;
  mill_single_narrow(x, f->n_pix, s->ivar);
  MILL_CHECK(read_row(f, f->mask, f->i_row, x));
  MILL_CHECK(mill_single_mask(f->file, f->i_spectra, "column QUAL", x, f->n_pix, s->mask));
  f->row_held = f->i_row;
  return MILL_OK;
}

static int read_pixels(void *context, mill_channel *channel)
{
  fourmost *f = context;
  const int first = f->piece[channel->wave_token - 1].first;
  MILL_CHECK(hold_row(f));
  channel->flux = f->spectrum.flux + first;
  channel->ivar = f->spectrum.ivar + first;
  channel->mask = f->spectrum.mask + first;
  return MILL_OK;
}

static int read_exposures(void *state, mill_spectra *spectra, const int64_t *number, int n)
{
  fourmost *f = state;
  for (int i = 0; i < n; i++) {
    MILL_CHECK(mill_single_check_row(f->file, number[i], f->n_spec));
    f->i_row = number[i];
    for (int k = 0; k < f->n_piece; k++) {
      const piece *p = &f->piece[k];
      mill_channel channel = {.n_pix = p->n_pix,
                              .wave_aa = f->spectrum.wave_aa + p->first,
                              .air = f->air,
                              .wave_token = k + 1};
      snprintf(channel.name, sizeof channel.name, "%s", p->channel);
      MILL_CHECK(mill_spectra_give(spectra, i, &channel, read_pixels, f));
    }
  }
  return MILL_OK;
}

/* ---- index ------------------------------------------------------------ */

/* Columns of FIBMETATAB; of a single spectrum keywords. */
enum { NAME, STATUS, USE, SN, UID, FIBER, RA, DEC, N_WISH };
static const mill_fits_wish wish[N_WISH] = {
    [NAME] = {"OBJ_NME", MILL_AS_TEXT, 0, 1, 0, 0, {"TRG_NME", "CNAME"}},
    [STATUS] = MILL_WISH("FIB_ST", INT32, 2, 1),
    [USE] = MILL_WISH("FIB_USE", INT32, 1, 1),
    [SN] = MILL_WISH("SNR", DOUBLE, NAN, 0),
    [UID] = {"OBJ_UID", MILL_AS_INT64, -1, 0, MILL_ROW_AT(target_id), {"TRG_UID", NULL}},
    [FIBER] = MILL_ROW_WISH("FIB_ID", INT32, fiber, -1, 0),
    [RA] = {"OBJ_RA", MILL_AS_DOUBLE, NAN, 0, MILL_ROW_AT(target_ra), {"TRG_RA", "RA"}},
    [DEC] = {"OBJ_DEC", MILL_AS_DOUBLE, NAN, 0, MILL_ROW_AT(target_dec), {"TRG_DEC", "DEC"}}};

/* Target type of the fibre in the words of the selection.  FIB_ST 2 is a fibre that is on its
 * target; calibration and guide fibres are no spectra of stars. */
static const char *objtype_of(const mill_fits_values *v, int64_t i)
{
  static const char *const name[] = {"BAD", "OBJ", "REF", "SKY"};
  const int32_t use = v[USE].i32[i];
  return v[STATUS].i32[i] == 2 && use >= 1 && use <= 3 ? name[use] : "BAD";
}

static int index_file(void *state, const mill_selection *select, mill_file_index *index)
{
  int err = MILL_OK;
  fourmost *f = state;
  mill_fits_values values[N_WISH] = {0};
  const int is_single = f->i_target < 0, header[] = {f->i_spectra, 0};
  const mill_fibres fibres = {
      f->file,   is_single ? f->i_spectra : f->i_target, wish, N_WISH, values, f->n_spec, 0, SN,
      objtype_of};
  MILL_TRY(is_single ? mill_single_keys(f->file, header, 2, NAN, wish, N_WISH, values)
                     : mill_fits_columns(f->file, f->i_target, wish, N_WISH, values));
  if (!is_single && !values[SN].there && mill_selection_has_scores(select))
    MILL_TRY(
        MILL_ERROR_HDU(f->file, f->i_target,
                       " has no column SNR, by which minsn_from: scores selects; leave it out"));
  MILL_TRY(mill_fibres_index(&fibres, select, index));
done:
  mill_fits_values_free(N_WISH, values);
  return err;
}

const mill_format mill_format_fourmost = {.name = "4most",
                                          .description =
                                              "4MOST spectra, containers of L1 or one a file",
                                          .recognise = recognise,
                                          .open = open_file,
                                          .close = close_file,
                                          .index = index_file,
                                          .read = read_exposures,
                                          .selects = MILL_SELECTS_SCORES};
