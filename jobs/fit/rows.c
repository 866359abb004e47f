/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include <stdlib.h>

#include "src/system/log.h"
#include "src/system/regular_file.h"

/* Resolve wave_mask: auto.  It masks DESI's dichroic in DESI files, nothing in other formats. */
static int settle_wave_mask(mill_fit_setup *setup, const mill_inputs *inputs)
{
  int n_desi = 0, n_other = 0, i_other = 0;
  if (!setup->config.wave_mask_auto)
    return MILL_OK;
  for (int i = 0; i < inputs->n_file; i++) {
    const char *format = inputs->file[i].format;
    if (strcmp(format, "desi") == 0)
      n_desi++;
    else if (format[0] && n_other++ == 0)
      i_other = i;
  }
  if (n_desi > 0 && n_other > 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "wave_mask: auto masks the dichroic of DESI, but %s is of format %s: set "
                      "wave_mask ([] for none), or fit the surveys one by one",
                      inputs->file[i_other].path, inputs->file[i_other].format);
  if (n_other > 0)
    setup->config.fit.n_wave_mask = 0;
  return MILL_OK;
}

/* Log masks that lie outside all arms: they may be meant for a wider library, or be a mistake. */
static void tell_masks(const mill_fit_setup *setup)
{
  const mill_fit_settings *set = &setup->config.fit;
  for (int i = 0; i < set->n_wave_mask && !setup->config.wave_mask_auto; i++) {
    int n = 0;
    for (int a = 0; a < setup->lib.n_arm; a++)
      n +=
          mill_arm_overlaps(&setup->lib.arm[a], set->wave_mask[i].min_aa, set->wave_mask[i].max_aa);
    if (n == 0)
      mill_log_info("wave_mask: [%g, %g] A is outside all arms of the library and masks nothing",
                    set->wave_mask[i].min_aa, set->wave_mask[i].max_aa);
  }
}

/* Indices of counts of rows, n [N_COUNT].  The first indices are those of enum mill_start_found. */
enum { HAS_PRIOR = MILL_START_OF_OTHER + 1, BY_IDENTIFIER, N_COUNT };

/* Add the rows of file f to the counts n.  If found is not NULL, mark in it the listed stars that
 * have a row, and count the rows whose IDENTIFIER is listed (BY_IDENTIFIER). */
static int count_file(const mill_fit_setup *setup, const mill_inputs *inputs, int f, int64_t *n,
                      unsigned char *found)
{
  MILL_AT_END(mill_file_index_clear) mill_file_index loaded = {0};
  const mill_file_index *index = &inputs->index[f - inputs->file_start];
  if (!index->row && index->n_row > 0) {
    /* the cast drops const, as this callback's type demands; inputs do not change */
    MILL_CHECK(mill_inputs_load((void *)(uintptr_t)inputs, f, &loaded));
    index = &loaded;
  }
  for (int64_t i = 0; i < index->n_row; i++) {
    const mill_catalog_row *row = &index->row[i];
    mill_star_entries at;
    if (found)
      mill_star_list_has(setup->config.select.star, row->target_id, row->identifier, row->object,
                         found);
    n[BY_IDENTIFIER] +=
        found && mill_star_list_has(setup->config.select.star, -1, row->identifier, "", NULL);
    if (inputs->join)
      at = inputs->join->start[inputs->join->row_start[f] + i].entries;
    else
      MILL_CHECK(mill_star_entries_find(&inputs->tables, inputs->file[f].path, row, &at));
    n[HAS_PRIOR] += at.prior >= 0;
    n[at.start >= 0 ? MILL_START_GIVEN : -at.start]++; /* else -start is a mill_start_found */
  }
  return MILL_OK;
}

/* Count the rows, and warn of listed stars without a row.  No warning if inputs are skipped. */
static int count_rows(const mill_fit_call *call, const mill_fit_setup *setup,
                      const mill_inputs *inputs, int64_t n[N_COUNT])
{
  int code = MILL_OK;
  int64_t mine[N_COUNT] = {0};
  char first[MILL_STAR_NAME];
  MILL_OWNED unsigned char *found = NULL;
  const mill_star_list *stars = call->options->skip_done ? NULL : setup->config.select.star;
  const int64_t n_star = stars ? stars->n_number + stars->n_name : 0;
  if (stars)
    code = MILL_ALLOC(n_star, &found);
  if (found && inputs->join) /* also stars whose row was joined to another row */
    memcpy(found, inputs->join->found, (size_t)n_star);
  for (int f = inputs->file_start; f < inputs->file_end && code == MILL_OK; f++)
    code = count_file(setup, inputs, f, mine, found);
  MILL_CHECK(mill_mpi_agree(call->mpi, code));
  MILL_CHECK_MPI(MPI_Allreduce(mine, n, N_COUNT, MPI_INT64_T, MPI_SUM, call->mpi->comm));
  if (stars)
    MILL_CHECK_MPI(
        MPI_Allreduce(MPI_IN_PLACE, found, (int)n_star, MPI_BYTE, MPI_BOR, call->mpi->comm));
  const int64_t n_missing = stars ? mill_star_list_missing(stars, found, first) : 0;
  if (n_missing > 0 && inputs->n_row > 0 && call->mpi->rank == 0)
    mill_log_warning("objects: %lld of %lld listed stars have no selected row in the inputs, the "
                     "first '%s'",
                     (long long)n_missing, (long long)n_star, first);
  return MILL_OK;
}

/* Log how many rows have a start in the table.  Fail if no row has a start, since the table then
 * probably belongs to other stars; a part of a job array (STARMILL_PART) may lack starts. */
static int tell_starts(const mill_fit_call *call, const mill_fit_setup *setup, const int64_t *n)
{
  const char *path = setup->config.start;
  const int64_t n_other = n[MILL_START_OF_OTHER];
  const int64_t n_guessed = n[MILL_START_ABSENT] + n[MILL_START_NOT_FINITE] + n_other;
  char other[64] = "", why[192];
  if (n_other > 0)
    snprintf(other, sizeof other, "%lld fitted with another --library, ", (long long)n_other);
  snprintf(why, sizeof why, "%lld not found, %s%lld without finite values within the limits",
           (long long)n[MILL_START_ABSENT], other, (long long)n[MILL_START_NOT_FINITE]);
  if (n[MILL_START_GIVEN] == 0 && n_guessed > 0 && !getenv("STARMILL_PART"))
    return MILL_ERROR(MILL_ERR_CONFIG, "start: %s has values for none of the %lld rows (%s): %s",
                      path, (long long)n_guessed, why,
                      n_other == n_guessed ? "give that library"
                                           : "is it the table of these stars?");
  if (call->mpi->rank != 0)
    return MILL_OK;
  const int64_t n_repeated = mill_start_table_stars(setup->start)->n_repeated;
  if (!call->options->fit && n_repeated > 0)
    mill_log_warning("start: %lld rows of %s repeat a star; the first finite row is used",
                     (long long)n_repeated, path);
  if (n_guessed > 0)
    mill_log_warning("start: %lld of %lld rows start from %s; the others %s: %s",
                     (long long)n[MILL_START_GIVEN], (long long)(n[MILL_START_GIVEN] + n_guessed),
                     path, call->options->fit ? "are not sampled" : "start from the guess", why);
  else
    mill_log_info("start: all %lld rows start from %s", (long long)n[MILL_START_GIVEN], path);
  return MILL_OK;
}

/* Compare paths by file name, without folders and .gz. */
static int compare_names(const void *a, const void *b)
{
  char name[2][NAME_MAX + 1];
  for (int k = 0; k < 2; k++) {
    const char *base = mill_base_name(*(const char *const *)(k ? b : a));
    snprintf(name[k], sizeof name[k], "%.*s", (int)strlen(base) - 3 * mill_is_gz(base), base);
  }
  return strcmp(name[0], name[1]);
}

/* Set same [2] to two inputs with equal file names and IDENTIFIERs made of these names, if there
 * are any: IDENTIFIER has no folder. */
static int find_same_name(const mill_inputs *inputs, const char *same[2])
{
  int n = 0;
  MILL_OWNED const char **path = NULL;
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &path));
  for (int i = 0; i < inputs->n_file; i++)
    if (inputs->file[i].n_row > 0 && inputs->file[i].named_by_file)
      path[n++] = inputs->file[i].path;
  qsort(path, (size_t)n, sizeof *path, compare_names);
  for (int i = 1; i < n; i++)
    if (compare_names(&path[i], &path[i - 1]) == 0) {
      same[0] = path[i - 1];
      same[1] = path[i];
    }
  return MILL_OK;
}

int mill_fit_settle_rows(const mill_fit_call *call, mill_fit_setup *setup,
                         const mill_inputs *inputs)
{
  int64_t n[N_COUNT];
  const char *same[2] = {0};
  MILL_CHECK(mill_mpi_agree(call->mpi, settle_wave_mask(setup, inputs)));
  if (call->mpi->rank == 0)
    tell_masks(setup);
  if (call->mpi->rank == 0 && inputs->n_row == 0)
    mill_log_warning("no star to fit: %s; the result has no rows",
                     inputs->n_unreadable == inputs->n_file
                         ? "no input could be read"
                         : "the selection (objects, objtypes, target_classes, minexpid, maxexpid, "
                           "fiberstatus_allowed_bits, redrock, minsn with minsn_from: scores) "
                           "keeps no row of the inputs");
  const int last = inputs->n_file - 1;
  if (setup->config.fit.epochs && inputs->n_row > 0 && call->mpi->rank == 0 &&
      inputs->exposure_start[last] + inputs->n_exposure[last] == inputs->n_row)
    mill_log_warning("epochs: no row has more than one exposure; exposures: joint or join_by_name "
                     "put a star's exposures into one row");
  if (!setup->start && !setup->priors && !setup->config.select.star)
    return MILL_OK;
  const mill_star_rows *table[] = {setup->priors ? mill_prior_table_stars(setup->priors) : NULL,
                                   setup->start ? mill_start_table_stars(setup->start) : NULL};
  MILL_CHECK(mill_mpi_agree(call->mpi, find_same_name(inputs, same)));
  for (int i = 0; i < 2 && same[0]; i++)
    if (table[i] && mill_star_rows_by(table[i], MILL_BY_IDENTIFIER))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s: %s finds stars by IDENTIFIER, which holds the file name, but %s and "
                        "%s have the same name: rename one, or use TARGETID or OBJECT instead",
                        table[i]->key, table[i]->path, same[0], same[1]);
  MILL_CHECK(count_rows(call, setup, inputs, n));
  if (n[BY_IDENTIFIER] > 0 && same[0] && call->mpi->rank == 0)
    mill_log_warning("objects: %s and %s have the same name, so a listed IDENTIFIER may select "
                     "rows of both: rename one, or list TARGETIDs",
                     same[0], same[1]);
  if (setup->start)
    MILL_CHECK(tell_starts(call, setup, n));
  setup->n_prior = n[HAS_PRIOR];
  /* a part of a job array (STARMILL_PART) may lack priors */
  if (setup->priors && setup->n_prior == 0 && inputs->n_row > 0 && !getenv("STARMILL_PART"))
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "prior_table: %s has priors for none of the %lld rows: is it the table of "
                      "these stars?",
                      setup->config.prior_table, (long long)inputs->n_row);
  return MILL_OK;
}
