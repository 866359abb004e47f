/* SPDX-License-Identifier: BSD-3-Clause */
/* Any format's channels as segments of arms: recognised, cut, converted.  Targeting bits. */

#include "io/surveys/spectra.h"
#include "io/surveys/target_bits.h"
#include "io/surveys/selection.h"
#include "tests/test_folder.h"

enum { ARM_B, ARM_R, ARM_Z, N_ARM, MAX_PIX = 4000, N_DIAG = 3 };

static char path[300];
static mill_library lib;
static mill_config config;
static mill_spectra_settings settings;

/* ---- `toy`, a format for tests: each test sets the channels that toy_read hands over ---- */

static struct toy {
  int n_channel;
  mill_channel channel[4];
} toy;

static double wave[MAX_PIX];
static float flux[MAX_PIX], ivar[MAX_PIX], sigma[MAX_PIX], matrix[N_DIAG * MAX_PIX];
static int32_t mask[MAX_PIX];

static int toy_recognise(const mill_fits_guard *guard)
{
  return guard->n_hdu == 2 && strcmp(guard->hdu[1].name, "TOY") == 0;
}

static int toy_open(void *state, const mill_spectra_settings *given, int *frame)
{
  assert_non_null(*(mill_fits_file **)state);
  (void)given;
  *frame = MILL_FRAME_TOPOCENTRIC;
  return MILL_OK;
}

static void toy_close(void *state)
{
  assert_non_null(state);
}

static int toy_index(void *state, const mill_selection *select, mill_file_index *index)
{
  (void)state;
  (void)select;
  index->n_fits_row = 7;
  return MILL_OK;
}

static int toy_read(void *state, mill_spectra *spectra, const int64_t *exposure, int n)
{
  int err = MILL_OK;
  (void)state;
  (void)exposure;
  for (int k = 0; k < n * toy.n_channel; k++)
    MILL_TRY(mill_spectra_add(spectra, k / toy.n_channel, &toy.channel[k % toy.n_channel]));
done:
  return err;
}

static const mill_format toy_format = {.name = "toy",
                                       .description = "spectra of a test",
                                       .lsf_width_error = 0.1,
                                       .recognise = toy_recognise,
                                       .state_bytes = sizeof(mill_fits_file *),
                                       .open = toy_open,
                                       .close = toy_close,
                                       .index = toy_index,
                                       .read = toy_read};

static void set_arm(int a, const char *name, double min_aa, double max_aa)
{
  mill_arm *arm = &lib.arm[a];
  strcpy(arm->name, name);
  arm->n_pix = 1001;
  arm->ln_wave0 = log(min_aa);
  arm->ln_step = log(max_aa / min_aa) / 1000;
  arm->template_sigma_aa = -1.0;
}

static int make_toy_file(void **state)
{
  fitsfile *fptr;
  int status = make_folder(state);
  snprintf(path, sizeof path, "%s/toy.fits", folder);
  fits_create_diskfile(&fptr, path, &status);
  fits_create_tbl(fptr, BINARY_TBL, 1, 1, (char *[]){"X"}, (char *[]){"K"}, NULL, "TOY", &status);
  fits_close_file(fptr, &status);
  return status;
}

/* Make a library of three arms that overlap, and one channel that covers all arms. */
static MILL_FIXTURE(begin)
{
  memset(&lib, 0, sizeof lib);
  memset(&toy, 0, sizeof toy);
  lib.n_arm = N_ARM;
  set_arm(ARM_B, "b", 3600, 6000);
  set_arm(ARM_R, "r", 5600, 7800);
  set_arm(ARM_Z, "z", 7500, 9900);
  mill_config_default(&config);
  settings = (mill_spectra_settings){
      .lib = &lib, .config = &config, .arm_wanted = {1, 1, 1}, .limits = {100, ""}};
  for (int i = 0; i < MAX_PIX; i++) {
    wave[i] = 3000.0 + 2.0 * i;
    flux[i] = (float)i + 0.25f;
    ivar[i] = (float)i + 0.5f;
    sigma[i] = (float)i + 0.75f;
    mask[i] = i;
    for (int d = 0; d < N_DIAG; d++)
      matrix[d * MAX_PIX + i] = (float)(10000 * d + i);
  }
  toy.n_channel = 1;
  toy.channel[0] = (mill_channel){
      .name = "coadd", .n_pix = MAX_PIX, .wave_aa = wave, .flux = flux, .ivar = ivar, .mask = mask};
  return 0;
}

static MILL_FIXTURE(end)
{
  mill_config_clear(&config);
  return 0;
}

static const mill_format *const toys[] = {&mill_format_desi, &toy_format};

static mill_spectra *open_toy(void)
{
  mill_spectra *spectra = NULL;
  assert_ok(mill_spectra_open_as(path, &settings, toys, 2, &spectra));
  return spectra;
}

/* Exposures 0 ... n - 1 into batch. */
static void read_toy(mill_spectra *spectra, int n, mill_read_batch *batch)
{
  static const int64_t exposure[4] = {0, 1, 2, 3};
  assert_ok(mill_spectra_read(spectra, exposure, n, batch));
}

static mill_read_batch read_one(void)
{
  mill_read_batch batch = {0};
  mill_spectra *spectra = open_toy();
  read_toy(spectra, 1, &batch);
  mill_spectra_close(spectra);
  return batch;
}

/* The segment of an arm, which must be the only one. */
static const mill_raw_segment *segment_of(const mill_read_batch *batch, int arm)
{
  const mill_raw_segment *found = NULL;
  for (int i = 0; i < batch->n_segment; i++)
    if (batch->segment[i].arm == arm) {
      assert_null(found);
      found = &batch->segment[i];
    }
  return found;
}

/* The segment holds the channel's pixels of this range and no others. */
static void check_range(const mill_read_batch *batch, int arm, double min_aa, double max_aa)
{
  const mill_raw_segment *s = segment_of(batch, arm);
  int first = 0, n = 0;
  for (int i = 0; i < MAX_PIX; i++)
    if (wave[i] >= min_aa && wave[i] < max_aa)
      first = n++ == 0 ? i : first;
  if (n == 0) {
    assert_null(s);
    return;
  }
  assert_non_null(s);
  assert_int_equal(s->use, MILL_SEGMENT_FIT);
  assert_int_equal(s->n_pix, n);
  assert_memory_equal(s->wave_aa, wave + first, (size_t)n * sizeof *wave);
  assert_memory_equal(s->flux, flux + first, (size_t)n * sizeof *flux);
  assert_memory_equal(s->ivar, ivar + first, (size_t)n * sizeof *ivar);
  assert_memory_equal(s->mask, mask + first, (size_t)n * sizeof *mask);
}

/* Wavelength of a template's edge when the star moves at vel_km_s. */
static double moved(double wave_aa, double vel_km_s)
{
  const double beta = vel_km_s / 299792.458;
  return wave_aa * sqrt((1 + beta) / (1 - beta));
}

MILL_TEST(bad_wavelengths_are_an_input_error)
{
  static const double bad[] = {NAN, INFINITY, 3000.0, 3018.0, -1.0};
  MILL_AT_END(mill_spectra_close_at) mill_spectra *spectra = open_toy();
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = {0};
    const int64_t exposure = 0;
    wave[10] = bad[i];
    assert_fails(mill_spectra_read(spectra, &exposure, 1, &batch), MILL_ERR_INPUT, "wavelength 10");
    assert_says(path);
    assert_int_equal(batch.n_segment, 0);
  }
}

/* Arms overlap; pixels are usable where templates reach at the velocity limits. */
MILL_TEST(which_pixels_go_to_which_arm)
{
  const double b = moved(3600, 1500), r = moved(5600, 1500), z = moved(7500, 1500);
  const double b_end = moved(6000, -800), r_end = moved(7800, -800), z_end = moved(9900, -800);
  const double b_r = (b_end + r) / 2, r_z = (r_end + z) / 2;
  static const mill_arm_choice narrowed[3] = {{.arm = "b", .min_aa = 4000, .max_aa = 5000},
                                              {.arm = "r", .min_aa = 5000, .max_aa = INFINITY},
                                              {.arm = "z", .max_aa = 8000}},
                               named[3] = {{.arm = "z", .max_aa = INFINITY, .channel = "RED"},
                                           {.arm = "r", .max_aa = INFINITY},
                                           {.arm = "b", .max_aa = INFINITY}};
  const struct {
    const char *channel, *second; /* NULL: one channel */
    unsigned wanted;              /* bits of arms */
    const mill_arm_choice *choice;
    double range[N_ARM][2]; /* of the pixels of an arm; 0, 0: none */
  } row[] = {
      /* cut in the middle of overlaps */
      {"coadd", NULL, 7, NULL, {{b, b_r}, {b_r, r_z}, {r_z, z_end}}},
      /* an arm gets all of the channel with its name; the pipeline leaves out pixels off the arm */
      {"r", NULL, 7, NULL, {[ARM_R] = {0, INFINITY}}},
      /* an arm that is not wanted keeps its channel from the others */
      {"r", NULL, 5, NULL, {{0, 0}}},
      /* and leaves its range of another channel to others */
      {"coadd", NULL, 2, NULL, {[ARM_R] = {r, r_end}}},
      /* arms that are narrowed: an end belongs to its arm */
      {"coadd", NULL, 7, narrowed, {{4000, 5001}, {r, r_z}, {r_z, 8001}}},
      {"b", NULL, 7, narrowed, {{4000, 5001}}},
      /* arm z reads channel RED alone, so it gets all of `red`; arms b and r share `coadd` */
      {"coadd", "red", 7, named, {{b, b_r}, {b_r, r_end}, {z, z_end}}}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    int n_segment = 0;
    end(state);
    begin(state);
    config.fit.min_vel_km_s = -800;
    config.fit.max_vel_km_s = 1500;
    strcpy(toy.channel[0].name, row[k].channel);
    if (row[k].second) {
      toy.channel[toy.n_channel++] = toy.channel[0];
      strcpy(toy.channel[1].name, row[k].second);
    }
    for (int i = 0; i < 3 && row[k].choice; i++)
      config.arm[config.n_arm++] = row[k].choice[i];
    for (int a = 0; a < N_ARM; a++)
      settings.arm_wanted[a] = row[k].wanted >> a & 1;
    MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = read_one();
    for (int a = 0; a < N_ARM; a++) {
      check_range(&batch, a, row[k].range[a][0], row[k].range[a][1]);
      n_segment += row[k].range[a][1] > 0.0;
    }
    assert_int_equal(batch.n_segment, n_segment);
  }
}

MILL_TEST(short_pieces_are_left_out)
{
  /* The piece in r has 19 or 20 pixels; the continuum has 10 functions and needs 20 pixels.  A
   * piece of 19 is left out if b has a piece; else it stays, and the pipeline reports it. */
  for (int k = 0; k < 4; k++) {
    const int n = 19 + k % 2, with_b = k / 2;
    const double begin_aa = moved(5600, 1000), middle_aa = (begin_aa + moved(6000, -1000)) / 2;
    int first = 0;
    while (wave[first] < (with_b ? middle_aa : begin_aa))
      first++;
    settings.arm_wanted[ARM_B] = with_b;
    toy.channel[0].n_pix = first + n;
    MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = read_one();
    assert_int_equal(batch.n_segment, with_b && n == 20 ? 2 : 1);
    const mill_raw_segment *last = &batch.segment[batch.n_segment - 1];
    assert_int_equal(last->use, MILL_SEGMENT_FIT);
    assert_int_equal(last->arm, with_b && n == 19 ? ARM_B : ARM_R);
    assert_true(last->n_pix == n || last->arm == ARM_B);
  }
}

enum { NONE, MATRIX, SIGMA, POWER, REFUSED };

MILL_TEST(policy_of_the_line_spread_function)
{
  static const struct {
    int lsf, matrix, sigma, power, expected;
  } all[] = {{MILL_LSF_AUTO, 1, 1, 1, MATRIX},   {MILL_LSF_AUTO, 0, 1, 1, SIGMA},
             {MILL_LSF_AUTO, 0, 0, 1, POWER},    {MILL_LSF_AUTO, 0, 0, 0, REFUSED},
             {MILL_LSF_MATRIX, 1, 1, 1, MATRIX}, {MILL_LSF_MATRIX, 0, 1, 1, REFUSED},
             {MILL_LSF_SIGMA, 1, 1, 1, SIGMA},   {MILL_LSF_SIGMA, 1, 0, 1, REFUSED},
             {MILL_LSF_OFF, 1, 1, 1, NONE},      {MILL_LSF_RESOLVING_POWER, 1, 1, 1, POWER},
             {MILL_LSF_OFF, 0, 0, 0, NONE},      {MILL_LSF_RESOLVING_POWER, 1, 1, 0, REFUSED}};
  strcpy(toy.channel[0].name, "r");
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    for (int at_instrument = 0; at_instrument < 2; at_instrument++) {
      lib.arm[ARM_R].template_sigma_aa = at_instrument ? -1.0 : 0.5;
      config.lsf = all[i].lsf;
      config.resolving_power = all[i].power ? 1800 : 0;
      toy.channel[0].n_diag = all[i].matrix ? N_DIAG : 0;
      toy.channel[0].resolution = all[i].matrix ? matrix : NULL;
      toy.channel[0].sigma_aa = all[i].sigma ? sigma : NULL;
      const int expected = at_instrument ? NONE : all[i].expected;
      MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = read_one();
      const mill_raw_segment *s = segment_of(&batch, ARM_R);
      assert_int_equal(s->use, expected == REFUSED ? MILL_SEGMENT_NO_LSF : MILL_SEGMENT_FIT);
      assert_int_equal(s->flux != NULL, expected != REFUSED);
      assert_int_equal(s->n_diag, expected == MATRIX ? N_DIAG : 0);
      assert_int_equal(s->resolution != NULL, expected == MATRIX);
      assert_int_equal(s->sigma_aa != NULL, expected == SIGMA || expected == POWER);
      for (int k = 0; k < MAX_PIX && s->sigma_aa; k++)
        if (expected == SIGMA)
          assert_close(s->sigma_aa[k], sigma[k], 0.0);
        else /* sigma of a Gaussian is its FWHM / 2.3548; float32 */
          assert_close(s->sigma_aa[k], wave[k] / 1800 / sqrt(8 * log(2)), 1e-7 * wave[k] / 1800);
    }
  /* an arm's own resolving power or FWHM (the same at all wavelengths) replaces the general one */
  lib.arm[ARM_R].template_sigma_aa = 0.5;
  config.lsf = MILL_LSF_RESOLVING_POWER;
  config.n_arm = 1;
  for (int own = 0; own < 2; own++) {
    config.arm[0] = (mill_arm_choice){.arm = "r", .max_aa = INFINITY, .resolving_power = 2500};
    config.arm[0].resolving_power *= !own;
    config.arm[0].fwhm_aa = own * 2.7;
    MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = read_one();
    const mill_raw_segment *s = segment_of(&batch, ARM_R);
    for (int k = 0; k < s->n_pix; k++) /* float32 */
      assert_close(s->sigma_aa[k], (own ? 2.7 : wave[k] / 2500) / sqrt(8 * log(2)), 2e-7);
  }
}

MILL_TEST(matrix_and_sigma_are_cut_with_the_pixels)
{
  toy.channel[0].n_diag = N_DIAG;
  toy.channel[0].resolution = matrix;
  toy.channel[0].sigma_aa = sigma;
  for (int a = 0; a < N_ARM; a++)
    lib.arm[a].template_sigma_aa = 0.5;
  for (int k = 0; k < 4; k++) {
    const int lsf = k % 2 ? MILL_LSF_SIGMA : MILL_LSF_MATRIX, factor = 1 + k / 2;
    config.lsf = lsf;
    config.lsf_factor = factor;
    config.fit.lsf_width_error = k == 1 ? -INFINITY : 0.02 * k; /* auto; 0, 0.04, 0.06 */
    MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = read_one();
    const mill_raw_segment *s = segment_of(&batch, ARM_R);
    const int first = (int)s->flux[0]; /* flux is the pixel's number */
    assert_true(first > 0 && s->n_pix > 100 && first + s->n_pix < MAX_PIX);
    assert_close(s->width_error, k == 1 ? 0.1 : 0.02 * k, 0);
    for (int i = 0; i < s->n_pix; i++) {
      if (lsf == MILL_LSF_SIGMA)
        assert_close(s->sigma_aa[i], (float)factor * sigma[first + i], 0.0);
      for (int d = 0; d < N_DIAG && lsf == MILL_LSF_MATRIX; d++)
        assert_close(s->resolution[d * s->n_pix + i], matrix[d * MAX_PIX + first + i], 0.0);
    }
  }
}

/* Cameras and widths of docs/use/configuration.md and input.md; DESI's of its pipeline. */
MILL_TEST(cameras_are_those_of_the_surveys)
{
  static const struct {
    const mill_format *format;
    double width_error, camera[3][4]; /* first and last A; FWHM, A; resolving power */
  } of[] = {{&mill_format_desi, 0, {{3600, 5800}, {5760, 7620}, {7520, 9824}}},
            {&mill_format_sdss, 0.1, {{0, 6000}, {6000, INFINITY}}},
            {&mill_format_pfs, 0.1, {{0, 6400}, {6400, 9550}, {9550, INFINITY}}},
            {&mill_format_lamost, 0.06, {{4000, 5800, 2.7}, {5800, INFINITY, 0, 1650}}},
            {&mill_format_lamost_mrs, 0.1, {{4950, 5350, 0, 7500}, {6300, 6800, 0, 7500}}}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (int k = 0; k < of[i].format->n_camera; k++) {
      const mill_arm_choice *c = &of[i].format->camera[k];
      const double found[] = {c->min_aa, c->max_aa, c->fwhm_aa, c->resolving_power};
      assert_memory_equal(found, of[i].camera[k], sizeof found);
      assert_close(of[i].format->lsf_width_error, of[i].width_error, 0);
    }
}

MILL_TEST(equal_wavelengths_are_shared)
{
  MILL_AT_END(mill_read_batch_clear) mill_read_batch batch = {0};
  MILL_AT_END(mill_spectra_close_at) mill_spectra *spectra = open_toy();
  for (int again = 0; again < 2; again++) {
    read_toy(spectra, 3, &batch);
    for (int i = 0; i < 9; i++)
      for (int k = 0; k < i; k++)
        assert_int_equal(batch.segment[i].wave_aa == batch.segment[k].wave_aa, i % 3 == k % 3);
  }
  /* more than are remembered */
  for (int i = 0; i < 100; i++) {
    toy.channel[0].wave_aa = wave + i % 50;
    toy.channel[0].flux = flux + i % 50;
    toy.channel[0].n_pix = MAX_PIX - 50;
    read_toy(spectra, 2, &batch);
    assert_ptr_equal(batch.segment[0].wave_aa, batch.segment[3].wave_aa);
    assert_close(batch.segment[0].wave_aa[0], wave[(int)batch.segment[0].flux[0]], 0.0);
  }
}

/* ---- bits of targeting ---- */

static mill_selection classes(const char *first, const char *second)
{
  mill_selection select = {.n_target_class = second ? 2 : 1};
  snprintf(select.target_class[0], sizeof select.target_class[0], "%s", first);
  if (second)
    snprintf(select.target_class[1], sizeof select.target_class[1], "%s", second);
  return select;
}

static uint64_t bits_of(const mill_selection *select, const char *column)
{
  uint64_t bits;
  for (int i = 0; mill_target_column(i); i++)
    if (strcmp(mill_target_column(i), column) == 0) {
      assert_int_equal(mill_target_bits(select, i, &bits), MILL_OK);
      return bits;
    }
  fail_msg("no column %s", column);
  return 0;
}

static uint64_t fnv1a(uint64_t hash, const char *text)
{
  return *text ? fnv1a((hash ^ (uint64_t)*text) * UINT64_C(0x100000001b3), text + 1) : hash;
}

/* Python made this hash of all columns of desitarget's yaml files, with their bits in order. */
MILL_TEST(bits_are_those_of_desitarget)
{
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
#define COLUMN(name)   hash = fnv1a(hash, name);
#define BIT(bit, name) hash = fnv1a(fnv1a(hash, #bit), name);
#include "io/surveys/target_bits.inc"
#undef BIT
  assert_true(hash == UINT64_C(0x3f2bd9fcb7247df7));
}

#define BIT(n) (UINT64_C(1) << (n))

/* Numbers as desitarget's targetmask.yaml of each survey has them. */
MILL_TEST(bits_by_name)
{
  /* rvspecfit's command for DR1 */
  mill_selection select = classes("SCND_ANY", "STD_*");
  assert_true(bits_of(&select, "DESI_TARGET") == (BIT(62) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "SV1_DESI_TARGET") == (BIT(62) | BIT(33) | BIT(34) | BIT(35)));
  assert_true(bits_of(&select, "MWS_TARGET") == 0);
  assert_true(bits_of(&select, "SCND_TARGET") == 0);
}

MILL_TEST(a_class_that_no_survey_has)
{
  mill_selection select = classes("MWS_ANY", "STD_WD");
  assert_int_equal(mill_target_bits_check(&select, "x.fits"), MILL_OK);
  select = classes("MWS_ANY", "ANY");
  assert_fails(mill_target_bits_check(&select, "x.fits"), MILL_ERR_INPUT, "x.fits: target_classes");
  assert_says("'ANY'");
}

MILL_TEST(names_match_at_their_beginning)
{
  static const struct {
    const char *pattern, *name;
    int matches;
  } tried[] = {{"GA_LR", "GA_LRdisc", 1},    {"LRdisc", "GA_LRdisc", 0},
               {".*disc", "GA_LRdisc", 1},   {"GA_LR$", "GA_LRdisc", 0},
               {"A|GA_LRd", "GA_LRdisc", 1}, {"A|B", "GA_LRdisc", 0},
               {"GA_[HL]R", "GA_LRdisc", 1}, {"ga", "GA_LRdisc", 0},
               {"STD_*", "STD", 1},          {"STD_+", "STD", 0}};
  for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
    const mill_selection select = classes(tried[i].pattern, NULL);
    MILL_AT_END(mill_class_patterns_free_at) mill_class_patterns *patterns;
    assert_int_equal(mill_class_patterns_make(&select, &patterns), MILL_OK);
    if (mill_class_matches(patterns, tried[i].name) != tried[i].matches)
      fail_msg("%s and %s", tried[i].pattern, tried[i].name);
  }
  mill_class_patterns *patterns;
  const mill_selection select = classes("STD", "a(b");
  assert_int_equal(mill_class_patterns_make(&select, &patterns), MILL_ERR_CONFIG);
  assert_null(patterns);
}

int main(void)
{
  return mill_run_tests(make_toy_file, remove_folder, begin, end);
}
