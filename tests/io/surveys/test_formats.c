/* SPDX-License-Identifier: BSD-3-Clause */
/* Every format alike: what is written is what is read, and files that are wrong are refused. */
#include "tests/io/surveys/samples.h"

/* ---- what is written is what is read ---- */

static void same_row(const mill_catalog_row *got, const mill_catalog_row *wanted)
{
  assert_int_equal(got->target_id, wanted->target_id);
  assert_int_equal(got->fits_row, wanted->fits_row);
  assert_int_equal(got->fiber, wanted->fiber);
  assert_int_equal(got->exp_id, wanted->exp_id);
  assert_int_equal(got->ref_id, wanted->ref_id);
  assert_int_equal(got->n_exposure, 1);
  assert_close(got->target_ra, wanted->target_ra, 0.0);
  assert_close(got->target_dec, wanted->target_dec, 0.0);
  assert_true(got->z == wanted->z || (isnan(got->z) && isnan(wanted->z)));
  assert_string_equal(got->object, wanted->object);
  assert_string_equal(got->spectype, wanted->spectype);
  assert_string_equal(got->subtype, wanted->subtype);
  assert_string_equal(got->ref_cat, wanted->ref_cat);
  if (wanted->identifier[0])
    assert_string_equal(got->identifier, wanted->identifier);
}

/* Floats bit for bit; any NaN is a NaN. */
static void same_floats(const float *got, const float *wanted, int n, const char *what)
{
  assert_non_null(got);
  for (int i = 0; i < n; i++)
    if (memcmp(&got[i], &wanted[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(wanted[i])))
      fail_msg("%s of pixel %d is %.9g, written as %.9g", what, i, (double)got[i],
               (double)wanted[i]);
}

static void same_spectrum(const mill_raw_segment *got, const sample_spectrum *wanted)
{
  const int n = wanted->n_pix;
  assert_int_equal(got->use, MILL_SEGMENT_FIT);
  assert_int_equal(got->exposure, wanted->exposure);
  assert_int_equal(got->arm, wanted->arm);
  assert_int_equal(got->n_pix, n);
  assert_int_equal(got->n_diag, wanted->n_diag);
  assert_memory_equal(got->wave_aa, wanted->wave, (size_t)n * sizeof(double));
  same_floats(got->flux, wanted->flux, n, "flux");
  same_floats(got->ivar, wanted->ivar, n, "ivar");
  assert_int_equal(got->mask != NULL, wanted->has_mask);
  assert_int_equal(got->sigma_aa != NULL, wanted->has_sigma);
  if (wanted->has_mask)
    assert_memory_equal(got->mask, wanted->mask, (size_t)n * sizeof(int32_t));
  if (wanted->has_sigma)
    same_floats(got->sigma_aa, wanted->sigma, n, "sigma");
  if (wanted->n_diag)
    same_floats(got->resolution, wanted->matrix, n * wanted->n_diag, "resolution");
}

MILL_TEST(what_is_written_is_read)
{
  for (int kind = 0; kind < N_SAMPLE_KIND; kind++)
    for (uint64_t seed = 1; seed <= 20; seed++) {
      printf("%s, seed %d\n", sample_kinds[kind].name, (int)seed);
      write_sample(kind, seed, "");
      /* WEAVE's sky is no star: all fibres that are on a target */
      one.config.select.n_objtype = kind == WEAVE ? 2 : 0;
      strcpy(one.config.select.objtype[0], "T");
      strcpy(one.config.select.objtype[1], "C");
      one_file f = one_file_open(&one, one.path);
      assert_int_equal(mill_spectra_frame(f.spectra), s.frame);
      assert_int_equal(f.index.n_row, s.n_row);
      assert_int_equal(f.index.n_exposure, s.n_row);
      for (int i = 0; i < s.n_row; i++)
        same_row(&f.index.row[i], &s.row[i]);
      assert_int_equal(f.batch.n_segment, s.n_spectrum);
      for (int i = 0; i < s.n_spectrum; i++)
        same_spectrum(&f.batch.segment[i], &s.spectrum[i]);
      /* from the last exposure to the first, one by one, and wavelengths alone */
      for (int64_t e = f.index.n_exposure - 1; e >= 0; e--) {
        const int64_t number = f.index.exposure_row[e];
        assert_int_equal(mill_spectra_read(f.spectra, &number, 1, &f.batch), MILL_OK);
        for (int i = 0, k = 0; i < s.n_spectrum; i++)
          if (s.spectrum[i].exposure == e) {
            sample_spectrum alone = s.spectrum[i];
            alone.exposure = 0;
            same_spectrum(&f.batch.segment[k++], &alone);
          }
        assert_int_equal(mill_spectra_waves(f.spectra, &number, 1, &f.batch), MILL_OK);
        assert_true(f.batch.n_segment > 0 && !f.batch.segment[0].flux);
      }
      static const int64_t none[] = {-1, 1000};
      for (int i = 0; i < 2; i++)
        assert_int_equal(mill_spectra_read(f.spectra, &none[i], 1, &f.batch), MILL_ERR_RANGE);
      one_file_close(&f);
    }
}

/* ---- which format it is ---- */

MILL_TEST(formats_know_their_own)
{
  static const struct {
    int kind;
    const char *edits;
    int is_known;
  } file[] = {{SDSS, "SPECOBJ+COMMENT", 1},
              {SDSS, "-SPECOBJ", 0},
              {SDSS, "-COADD", 0},
              {SDSS, "COADD/1", 0}, /* as LAMOST has it */
              {LAMOST, "COADD/2", 0},
              {LAMOST_IMAGE, "!TELESCOP;+TELESCOP= 'SDSS 2.5-M'", 0},
              {LAMOST_IMAGE, "/5,4", 0},
              {WEAVE, "-BLUE_DATA", 1}, /* a cut file, which opening refuses */
              {WEAVE, "-FIBTABLE", 0},
              {DESI, "-FIBERMAP", 1},
              {GENERIC, "-SPECTRA", 0}};
  for (int kind = 0; kind < N_SAMPLE_KIND; kind++) {
    write_sample(kind, 1, "");
    for (int other = 0; other < N_SAMPLE_KIND; other++) {
      one.format = sample_kinds[other].format;
      assert_int_equal(one_recognises(&one, one.path),
                       sample_kinds[other].format == sample_kinds[kind].format);
    }
  }
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    write_sample(file[i].kind, 1, file[i].edits);
    assert_int_equal(one_recognises(&one, one.path), file[i].is_known);
  }
}

/* ---- files that are wrong ---- */

typedef struct wrong {
  int kind;
  const char *edits, *part, *other;
  int exposures;
} wrong;

static const char no_arm[] = "-B_FLUX;-B_WAVELENGTH;-B_IVAR;-B_MASK;-B_RESOLUTION;-R_FLUX;"
                             "-R_WAVELENGTH;-R_IVAR;-R_MASK;-R_RESOLUTION";

static const wrong wrong_file[] = {
    {DESI, "-B_WAVELENGTH", "no HDU B_WAVELENGTH", "", 0},
    {DESI, "-B_FLUX", "no HDU B_FLUX", "", 0},
    {DESI, "-R_IVAR", "no HDU R_IVAR", "", 0},
    {DESI, "-R_RESOLUTION", "no HDU R_RESOLUTION though", "", 0},
    {DESI, "-B_MASK", "no HDU B_MASK though", "", 0},
    {DESI, "B_FLUX/5,5", "(B_FLUX) is an image [5][5], expected an image [5][4]", "", 0},
    {DESI, "B_FLUX/4,4", "(B_FLUX) is an image [4][4], expected an image [5][4]", "", 0},
    {DESI, "B_RESOLUTION/4,4,5", "(B_RESOLUTION) has 4 diagonals", "", 0},
    {DESI, "B_RESOLUTION/4,9999,5", "diagonals", "", 0},
    {DESI, "B_WAVELENGTH @2=4000", "(B_WAVELENGTH)", "pixel 2 is 4000", 0},
    {DESI, "B_WAVELENGTH @3=nan", "(B_WAVELENGTH)", "pixel 3 is nan", 0},
    {DESI, "B_MASK ~E", "(B_MASK) must hold integers", "", 0},
    {DESI, no_arm, "none of the library's arms (COADD_FLUX, B_FLUX, R_FLUX", "", 0},
    {DESI, "FIBERMAP-TARGETID", "(FIBERMAP)", "no column TARGETID", 0},
    {DESI, "FIBERMAP-OBJTYPE", "(FIBERMAP)", "no column OBJTYPE", 0},
    {SDSS, "-COADD", "no table COADD", "", 0},
    {SDSS, "-SPECOBJ", "no table SPECOBJ or SPALL", "", 0},
    {SDSS, "SPECOBJ/2", "HDU 3 (SPECOBJ)", "has 2 rows", 0},
    {SDSS, "SPECOBJ-PLATE", "(SPECOBJ)", "no column PLATE", 0},
    {SDSS, "COADD-flux", "HDU 2 (COADD)", "no column flux", 0},
    {SDSS, "COADD-LogLam", "HDU 2 (COADD)", "no column loglam", 0},
    {SDSS, "COADD-ivar", "HDU 2 (COADD)", "no column ivar", 0},
    {SDSS, "COADD-AND_MASK", "HDU 2 (COADD)", "no column and_mask", 0},
    {SDSS, "COADD-wdisp", "HDU 2 (COADD)", "no column wdisp", 0},
    {SDSS, "COADD flux~2E", "HDU 2 (COADD)", "rows with 2 values of column flux", 0},
    {SDSS, "COADD ivar~2E", "HDU 2 (COADD)", "rows of 2 values", 0},
    {SDSS, "COADD wdisp~4A", "HDU 2 (COADD)", "column wdisp must hold a fixed number", 0},
    {SDSS, "COADD/1", "HDU 2 (COADD)", "expected a spectrum", 0},
    {SDSS, "COADD/0", "HDU 2 (COADD)", "0 rows", 0},
    {SDSS, "COADD LogLam@3=nan", "(COADD): column loglam", "pixel 3 is nan", 0},
    {SDSS, "COADD LogLam@3=3.6", "(COADD): column loglam", "pixel 3 is 3981", 0},
    {SDSS, "COADD LogLam@5=400", "(COADD): column loglam", "pixel 5 is inf", 0},
    {SDSS, "+VACUUM  = 'yes'", "HDU 1: keyword VACUUM", "must hold T or F", 0},
    {SDSS, "-@3;-@4;-@5", "holds no single exposures", "exposures: coadd", MILL_EXPOSURES_SINGLE},
    {LAMOST, "COADD-flux", "HDU 2 (COADD)", "no column FLUX", 0},
    {LAMOST, "COADD-IVAR", "HDU 2 (COADD)", "no column IVAR", 0},
    {LAMOST, "COADD-WAVELENGTH", "HDU 2 (COADD)", "no column WAVELENGTH", 0},
    {LAMOST, "COADD-ANDMASK", "HDU 2 (COADD)", "no column ANDMASK", 0},
    {LAMOST, "COADD IVAR~3E", "HDU 2 (COADD)", "column IVAR has 1 rows of 3 values", 0},
    {LAMOST, "COADD flux~1E", "HDU 2 (COADD)", "expected a spectrum", 0},
    {LAMOST, "COADD WAVELENGTH@2=nan", "(COADD): column WAVELENGTH", "pixel 2 is nan", 0},
    {LAMOST, "COADD WAVELENGTH@2=3600", "(COADD): column WAVELENGTH", "pixel 2 is 3600", 0},
    {LAMOST, "COADD WAVELENGTH@0=-1", "(COADD): column WAVELENGTH", "pixel 0 is -1", 0},
    {LAMOST, "COADD ANDMASK@2=0.5", "(COADD): column ANDMASK", "pixel 2 is 0.5", 0},
    {LAMOST, "COADD ANDMASK@2=nan", "(COADD): column ANDMASK", "pixel 2 is nan", 0},
    {LAMOST, "COADD ANDMASK@2=1e12", "(COADD): column ANDMASK", "integers of 32 bits", 0},
    {LAMOST, "!HELIO;+HELIO   = 'yes'", "HDU 1: keyword HELIO", "must hold T or F", 0},
    {LAMOST, "COADD/2", "HDU 2 (COADD)", "2 rows with", 0},
    /* CFITSIO 4.2 aborts when it is asked for the integer in these */
    {LAMOST, "!FIBERID;+FIBERID = 'a text of more than thirty characters'",
     "HDU 1: keyword FIBERID must hold an integer of 32 bits", "", 0},
    {LAMOST, "!FIBERID;+FIBERID = 2147483648",
     "HDU 1: keyword FIBERID must hold an integer of 32 bits, not 2.14748e+09", "", 0},
    {LAMOST_IMAGE, "/5,4", "neither a table COADD nor", "5 rows", 0},
    {LAMOST_IMAGE, "/1,5", "HDU 1", "1 pixels a row", 0},
    {WEAVE, "-BLUE_IVAR", "no HDU BLUE_IVAR", "fetch it again", 0},
    {WEAVE, "-BLUE_SENSFUNC", "no HDU BLUE_SENSFUNC", "fetch it again", 0},
    {WEAVE, "-RED_DATA", "no HDU RED_DATA", "fetch it again", 0},
    {WEAVE, "-FIBTABLE", "no table FIBTABLE", "not a cube", 0},
    {WEAVE, "BLUE_IVAR/5,4", "HDU 3 (BLUE_IVAR)", "5 rows of 4 pixels of BLUE_DATA", 0},
    {WEAVE, "BLUE_DATA/4,5,1", "HDU 2 (BLUE_DATA)", "not a cube", 0},
    {WEAVE, "FIBTABLE/4", "HDU 2 (BLUE_DATA)", "4 of FIBTABLE", 0},
    {WEAVE, "FIBTABLE-CNAME", "FIBTABLE", "CNAME", 0},
    {WEAVE, "FIBTABLE CNAME~40A;FIBTABLE CNAME@0=WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
     "CNAME 'WWWW", "row 0", 0},
    {WEAVE, "FIBTABLE-Status", "FIBTABLE", "STATUS", 0},
    {WEAVE, "FIBTABLE-TARGUSE", "FIBTABLE", "TARGUSE", 0},
    {WEAVE, "BLUE_DATA!CRVAL1", "HDU 2 (BLUE_DATA)", "CRVAL1", 0},
    {WEAVE, "BLUE_DATA!CD1_1", "HDU 2 (BLUE_DATA)", "CD1_1 or CDELT1", 0},
    {WEAVE, "BLUE_DATA!CD1_1;BLUE_DATA+CD1_1   = 'x'", "HDU 2 (BLUE_DATA)", "CD1_1", 0},
    {WEAVE, "BLUE_DATA!CD1_1;BLUE_DATA+CD1_1   =                -0.25", "HDU 2 (BLUE_DATA)",
     "ascending", 0},
    {WEAVE, "BLUE_DATA!CTYPE1;BLUE_DATA+CTYPE1  = 'AWAV-LOG'", "HDU 2 (BLUE_DATA)",
     "on a linear scale", 0},
    {WEAVE, "BLUE_DATA!CTYPE1;BLUE_DATA+CTYPE1  = 'LINEAR'", "(BLUE_DATA): CTYPE1 'LINEAR'",
     "set medium", 0},
    {WEAVE, "BLUE_DATA!CUNIT1;BLUE_DATA+CUNIT1  = 'Hz'", "HDU 2 (BLUE_DATA)", "CUNIT1 'Hz'", 0},
    {GENERIC, "-SPECTRA", "no binary table SPECTRA", "docs/use/formats.md", 0},
    {GENERIC, "SPECTRA-NAME", "HDU 2 (SPECTRA)", "NAME", 0},
    {GENERIC, "SPECTRA-WAVELENGTH", "HDU 2 (SPECTRA)", "WAVELENGTH", 0},
    {GENERIC, "SPECTRA-FLUX", "HDU 2 (SPECTRA)", "FLUX", 0},
    {GENERIC, "SPECTRA-IVAR", "HDU 2 (SPECTRA)", "neither of the columns IVAR and ERROR", 0},
    {GENERIC, "SPECTRA MASK>ERROR", "IVAR and ERROR", "both of", 0},
    {GENERIC, "SPECTRA MASK>FLUX", "FLUX", "two columns", 0},
    {GENERIC, "SPECTRA FLUX~3E", "WAVELENGTH has 4 values", "FLUX 3", 0},
    {GENERIC, "SPECTRA IVAR~1E", "IVAR holds 1 values", "a row is one spectrum", 0},
    {GENERIC, "SPECTRA FLUX~4A", "column FLUX", "numbers", 0},
    {GENERIC, "SPECTRA MASK~4E", "column MASK", "integers", 0},
    {GENERIC, "SPECTRA+TSCAL5  =                  0.5", "column MASK", "integers", 0},
    {GENERIC, "SPECTRA MASK~4K;SPECTRA+TSCAL5  =                  0.5", "column MASK",
     "scaled integers", 0},
    {GENERIC, "SPECTRA NAME~6B", "NAME", "HDU 2", 0},
    {GENERIC, "SPECTRA RA>EXPOSURE;SPECTRA EXPOSURE~K;SPECTRA EXPOSURE@1=1152921504606846976",
     "EXPOSURE of row 1", "beyond 32 bits", 0},
    {GENERIC, "SPECTRA WAVELENGTH#", "column WAVELENGTH has no unit", "Angstrom, nm or um", 0},
    {GENERIC, "SPECTRA WAVELENGTH#GHz", "the unit 'GHz'", "column WAVELENGTH", 0},
    {GENERIC, "SPECTRA LSF_SIGMA#km/s", "the unit 'km/s'", "column LSF_SIGMA", 0},
    {GENERIC, "SPECTRA IVAR>ERROR;SPECTRA ERROR#mJy;SPECTRA FLUX#Jy",
     "column ERROR has the unit 'mJy'", "FLUX 'Jy'", 0},
    {GENERIC, "SPECTRA!MEDIUM", "keyword MEDIUM", "set medium", 0},
    {GENERIC, "SPECTRA!MEDIUM;SPECTRA+MEDIUM  = 'water'", "MEDIUM is 'water'", "'vacuum' or 'air'",
     0},
    {GENERIC, "SPECTRA!FRAME;SPECTRA+FRAME   = 'galactic'", "FRAME is 'galactic'", "barycentric",
     0},
    {GENERIC, "SPECTRA NAME@1= ", "NAME of row 1", "1 to 31 characters", 0},
    {GENERIC, "SPECTRA NAME~40A;SPECTRA NAME@0=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "NAME of row 0",
     "1 to 31 characters", 0},
    {GENERIC, "SPECTRA RA>ARM;SPECTRA ARM~40A;SPECTRA ARM@0=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
     "ARM of row 0", "31 characters", 0},
};

MILL_TEST(files_that_are_wrong_are_refused)
{
  for (size_t i = 0; i < sizeof wrong_file / sizeof *wrong_file; i++) {
    const wrong *w = &wrong_file[i];
    write_sample(w->kind, 1, w->edits);
    strcpy(one.config.format, one.format->name);
    one.config.exposures = w->exposures;
    one_refuses(&one, w->part, w->other);
  }
  /* forced on a file of another format */
  for (int kind = 0; kind < N_SAMPLE_KIND; kind++) {
    write_sample((kind + 2) % N_SAMPLE_KIND, 1, "");
    one.format = sample_kinds[kind].format;
    if (one.format != sample_kinds[(kind + 2) % N_SAMPLE_KIND].format) {
      strcpy(one.config.format, one.format->name);
      one_refuses(&one, " has ", "");
    }
  }
}

/* A plain file cut where an HDU ends, everywhere: refused, or a whole file of fewer arms. */
MILL_TEST(cuts_between_hdus_are_noticed)
{
  for (int kind = 0; kind < GENERIC; kind++) {
    write_sample(kind, 1, "");
    strcpy(one.config.format, one.format->name);
    fits_maker m = recipe_make(&s.file);
    for (int i = 1; i < m.n_hdu; i++) {
      mill_spectra *spectra = NULL;
      maker_save_bytes(one.path, m.bytes, m.hdu_start[i]);
      const int err = mill_spectra_open_as(one.path, &one.settings, &one.format, 1, &spectra);
      /* DESI, 5 to 7: all that arm b must have and nothing of r, as a file of one arm without
       * masks or matrices may be; SDSS, from 3: the exposures are not asked for */
      const int is_whole = kind == DESI ? i >= 5 && i <= 7 : kind == SDSS && i >= 3;
      if (is_whole ? err != MILL_OK : err != MILL_ERR_INPUT)
        fail_msg("%s, cut before HDU %d: code %d, '%s'", sample_kinds[kind].name, i + 1, err,
                 mill_error_message());
      mill_spectra_close(spectra);
    }
    maker_clear(&m);
  }
}

/* ---- frame, medium, fibres ---- */

MILL_TEST(frames_of_the_headers)
{
  static const struct {
    int kind;
    const char *edits;
    int exposures, frame;
  } file[] = {{SDSS, "!HELIO_RV", 0, MILL_FRAME_UNKNOWN},
              {SDSS, "+HELIO   =                    F", 0, MILL_FRAME_TOPOCENTRIC},
              {SDSS, "!HELIO_RV", MILL_EXPOSURES_JOINT, MILL_FRAME_HELIOCENTRIC},
              {SDSS, "@3+HELIO   =                    F", MILL_EXPOSURES_JOINT, MILL_FRAME_UNKNOWN},
              {LAMOST, "!HELIO;+HELIO   =                    F", 0, MILL_FRAME_TOPOCENTRIC},
              {LAMOST, "!HELIO;+HELIO_RV=            -29.28083", 0, MILL_FRAME_HELIOCENTRIC},
              {LAMOST, "!HELIO", 0, MILL_FRAME_UNKNOWN},
              {WEAVE, "+SPECSYS = 'BARYCENT'", 0, MILL_FRAME_BARYCENTRIC},
              {GENERIC, "SPECTRA!FRAME", 0, MILL_FRAME_UNKNOWN}};
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    write_sample(file[i].kind, 1, file[i].edits);
    one.config.exposures = file[i].exposures;
    mill_spectra *spectra = one_open(&one, one.path);
    assert_int_equal(mill_spectra_frame(spectra), file[i].frame);
    mill_spectra_close(spectra);
  }
}

MILL_TEST(medium_of_the_headers)
{
  static const struct {
    int kind;
    const char *edits;
    int medium, is_air;
  } file[] = {{SDSS, "+VACUUM  =                    F", MILL_MEDIUM_AUTO, 1},
              {SDSS, "", MILL_MEDIUM_AUTO, 0},
              {LAMOST, "+VACUUM  =                    F", MILL_MEDIUM_AUTO, 1},
              {WEAVE,
               "BLUE_DATA!CTYPE1;BLUE_DATA!CRPIX1;BLUE_DATA!CUNIT1;BLUE_DATA+CTYPE1  = 'LINEAR'",
               MILL_MEDIUM_VACUUM, 0},
              {WEAVE, "", MILL_MEDIUM_AUTO, 1},
              {GENERIC, "SPECTRA!MEDIUM;SPECTRA+MEDIUM  = 'Air'", MILL_MEDIUM_AUTO, 1},
              {GENERIC, "SPECTRA!MEDIUM", MILL_MEDIUM_VACUUM, 0}};
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    write_sample(file[i].kind, 1, file[i].edits);
    one.config.medium = file[i].medium;
    one_file f = one_file_open(&one, one.path);
    /* samples have vacuum wavelengths, but WEAVE's are written as air */
    const double wave = file[i].kind == WEAVE ? 3650.25 : s.spectrum[0].wave[1];
    assert_close(f.batch.segment[0].wave_aa[1], file[i].is_air ? mill_air_to_vacuum(wave) : wave,
                 0.0);
    one_file_close(&f);
  }
}

MILL_TEST(rows_that_are_selected)
{
  static int64_t target[] = {20, 30};
  static const struct {
    int kind;
    const char *edits, *objtype; /* "": the usual ones */
    int n_target, n_row;
  } file[] = {{SDSS, "", "", 0, 1},
              {SDSS, "SPECOBJ OBJTYPE@0=SKY", "", 0, 0},
              {SDSS, "SPECOBJ OBJTYPE@0=SKY", "SKY", 0, 1},
              {SDSS, "", "SKY", 0, 0},
              {SDSS, "", "", 2, 0}, /* it has no TARGETID */
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'F-std   '", "", 0, 1},
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'F-std   '", "F-STD", 0, 1},
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'Sky     '", "", 0, 0},
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'Unused  '", "", 0, 0},
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'PosErr  '", "", 0, 0},
              {LAMOST, "!FIB_TYPE;+FIB_TYPE= 'Dead    '", "", 0, 0},
              {LAMOST, "", "F-STD", 0, 0},
              {WEAVE, "", "", 0, 3},
              {WEAVE, "", "SKY", 0, 1},
              {WEAVE, "", "C", 0, 1},
              {DESI, "", "", 0, 5},
              {DESI, "", "", 2, 2},
              {DESI, "", "SKY", 0, 0},
              {GENERIC, "SPECTRA TARGETID@2=20", "", 2, 1}};
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    mill_file_index index;
    write_sample(file[i].kind, 1, file[i].edits);
    one.config.select.n_objtype = file[i].objtype[0] != '\0';
    strcpy(one.config.select.objtype[0], file[i].objtype);
    one.config.select.target_id = file[i].n_target ? target : NULL;
    one.config.select.n_target_id = (size_t)file[i].n_target;
    mill_spectra *spectra = one_open(&one, one.path);
    one_index(&one, spectra, &index);
    if (index.n_row != file[i].n_row)
      fail_msg("%s, %s, %s: %d rows", sample_kinds[file[i].kind].name, file[i].edits,
               file[i].objtype, (int)index.n_row);
    mill_file_index_clear(&index);
    mill_spectra_close(spectra);
  }
  one.config.select.target_id = NULL;
  one.config.select.n_target_id = 0;
}

MILL_EACH_TEST_MAIN(begin, end)
