/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/stars/join.h"

#include <stdlib.h>
#include <string.h>

#include "io/catalog/places.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/log.h"

/* A row, as ranks send it to each other. */
typedef struct entry {
  char object[sizeof((mill_catalog_row *)0)->object];
  int64_t target_id, row, place; /* place: in the catalog */
  double ra, dec;                /* degrees, NaN where there are none */
  int32_t file, n_exposure;
} entry;

typedef struct exposure {
  int64_t row;
  double mjd;
  int32_t id, file;
} exposure;

/* The entries of all ranks, in catalog order. */
typedef struct survey {
  int64_t n_entry, n_exposure;
  entry *entry;            /* [n_entry] */
  exposure *exposure;      /* [n_exposure] */
  int64_t *exposure_start; /* [n_entry] */
  int64_t *owner;          /* [n_entry] place of the row that takes it */
} survey;

void mill_join_free(mill_join *join)
{
  if (!join)
    return;
  MILL_FREE(join->n_row_before, join->row_start, join->part_start, join->first_exposure, join->part,
            join);
}

/* This rank's rows and exposures. */
static int list_mine(const mill_file_index *index, int file_start, int file_end, survey *mine)
{
  int64_t n_row = 0, n_exposure = 0;
  for (int f = file_start; f < file_end; f++) {
    n_row += index[f - file_start].n_row;
    n_exposure += index[f - file_start].n_exposure;
  }
  MILL_CHECK(MILL_ALLOC(n_row, &mine->entry));
  MILL_CHECK(MILL_ALLOC(n_exposure, &mine->exposure));
  for (int f = file_start; f < file_end; f++) {
    const mill_file_index *from = &index[f - file_start];
    for (int64_t i = 0; i < from->n_row; i++) {
      const mill_catalog_row *row = &from->row[i];
      entry *e = &mine->entry[mine->n_entry++];
      memcpy(e->object, row->object, sizeof e->object);
      e->target_id = row->target_id;
      e->ra = row->target_ra;
      e->dec = row->target_dec;
      e->row = i;
      e->file = f;
      e->n_exposure = row->n_exposure;
      for (int64_t k = row->first_exposure; k < row->first_exposure + row->n_exposure; k++)
        mine->exposure[mine->n_exposure++] =
            (exposure){from->exposure_row[k], from->exposure_mjd[k], from->exposure_id[k], f};
    }
  }
  return MILL_OK;
}

/* Names before identifiers before rows that have neither, which equal nothing. */
static int compare_object(const entry *a, const entry *b)
{
  const int kind_a = a->object[0] ? 0 : a->target_id >= 0 ? 1 : 2;
  const int kind_b = b->object[0] ? 0 : b->target_id >= 0 ? 1 : 2;
  if (kind_a != kind_b)
    return kind_a - kind_b;
  if (kind_a == 0)
    return strncmp(a->object, b->object, sizeof a->object);
  if (kind_a == 1)
    return (a->target_id > b->target_id) - (a->target_id < b->target_id);
  return (a->place > b->place) - (a->place < b->place);
}

static int compare_entry(const void *a, const void *b)
{
  const entry *x = *(const entry *const *)a, *y = *(const entry *const *)b;
  const int by_object = compare_object(x, y);
  return by_object ? by_object : (x->place > y->place) - (x->place < y->place);
}

/* The first row of each object takes the others. */
static int find_owners(survey *all)
{
  int err = MILL_OK;
  const entry **sorted = NULL;
  int64_t n_exposure = 0;
  MILL_TRY(MILL_ALLOC(all->n_entry, &all->owner));
  MILL_TRY(MILL_ALLOC(all->n_entry, &all->exposure_start));
  MILL_TRY(mill_alloc_bytes((size_t)all->n_entry, sizeof *sorted, (void **)&sorted));
  for (int64_t i = 0; i < all->n_entry; i++) {
    all->entry[i].place = i;
    all->exposure_start[i] = n_exposure;
    n_exposure += all->entry[i].n_exposure;
    sorted[i] = &all->entry[i];
  }
  if (all->n_entry > 0)
    qsort(sorted, (size_t)all->n_entry, sizeof *sorted, compare_entry);
  for (int64_t i = 0, first = 0; i < all->n_entry; i++) {
    if (i > 0 && compare_object(sorted[i], sorted[i - 1]) != 0)
      first = i;
    all->owner[sorted[i]->place] = sorted[first]->place;
  }
done:
  mill_free(sorted);
  return err;
}

static int compare_dec(const void *a, const void *b)
{
  const entry *x = *(const entry *const *)a, *y = *(const entry *const *)b;
  if (x->dec != y->dec)
    return x->dec < y->dec ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static double distance_deg(const entry *a, const entry *b)
{
  return mill_place_distance_deg(a->ra, a->dec, b->ra, b->dec);
}

static int64_t owner_of(const survey *all, int64_t i)
{
  while (all->owner[i] != i)
    i = all->owner[i];
  return i;
}

/* Tell of rows of one name that are far from its first: two objects, or a name that stands for
 * none.  A number that is no position tells nothing. */
static void tell_far(const survey *all)
{
  int64_t n = 0;
  const entry *one = NULL;
  for (int64_t i = 0; i < all->n_entry; i++) {
    const entry *e = &all->entry[i], *first = &all->entry[all->owner[i]];
    if (mill_place_known(e->ra, e->dec) && mill_place_known(first->ra, first->dec) &&
        distance_deg(e, first) > MILL_FAR_DEG && n++ == 0)
      one = e;
  }
  if (n > 0)
    mill_log_warning(
        "join_by_name: %lld rows are more than 1 arcmin from the first of their name or "
        "TARGETID, such as '%s' (TARGETID %lld), but joined to it: are they one object?",
        (long long)n, one->object, (long long)one->target_id);
}

/* Objects near each other become one, whose owner is the first of all. */
static int join_near(survey *all, double radius_deg)
{
  int err = MILL_OK;
  const entry **sorted = NULL;
  int64_t n = 0;
  MILL_TRY(mill_alloc_bytes((size_t)all->n_entry, sizeof *sorted, (void **)&sorted));
  for (int64_t i = 0; i < all->n_entry; i++)
    if (mill_place_known(all->entry[i].ra, all->entry[i].dec))
      sorted[n++] = &all->entry[i];
  if (n > 0)
    qsort(sorted, (size_t)n, sizeof *sorted, compare_dec);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = i + 1; k < n && sorted[k]->dec - sorted[i]->dec <= radius_deg; k++) {
      const int64_t a = owner_of(all, sorted[i]->place), b = owner_of(all, sorted[k]->place);
      if (a != b && distance_deg(sorted[i], sorted[k]) <= radius_deg)
        all->owner[a > b ? a : b] = a > b ? b : a;
    }
  /* an owner stands before what it owns */
  for (int64_t i = 0; i < all->n_entry; i++)
    all->owner[i] = all->owner[all->owner[i]];
done:
  mill_free(sorted);
  return err;
}

/* The table of rows and parts. */
static int make_table(const survey *all, int n_file, int64_t *n_row, int64_t *n_exposure,
                      mill_join *join)
{
  int err = MILL_OK;
  int64_t *new_row = NULL, *n_filled = NULL, n_new = 0;
  join->n_file = n_file;
  MILL_TRY(MILL_ALLOC(n_file, &join->n_row_before));
  MILL_TRY(MILL_ALLOC(n_file + 1, &join->row_start));
  MILL_TRY(MILL_ALLOC(all->n_entry, &new_row));
  for (int f = 0; f < n_file; f++)
    n_row[f] = n_exposure[f] = 0;
  for (int64_t i = 0; i < all->n_entry; i++) {
    const entry *e = &all->entry[i];
    join->n_row_before[e->file]++;
    if (all->owner[i] == i) {
      new_row[i] = n_new++;
      n_row[e->file]++;
    }
    n_exposure[all->entry[all->owner[i]].file] += e->n_exposure;
  }
  for (int f = 0; f < n_file; f++)
    join->row_start[f + 1] = join->row_start[f] + n_row[f];
  MILL_TRY(MILL_ALLOC(n_new + 1, &join->part_start));
  MILL_TRY(MILL_ALLOC(n_new + 1, &join->first_exposure));
  MILL_TRY(MILL_ALLOC(n_new, &n_filled));
  MILL_TRY(MILL_ALLOC(all->n_entry, &join->part));
  for (int64_t i = 0; i < all->n_entry; i++) {
    const int64_t row = new_row[all->owner[i]];
    join->part_start[row + 1]++;
    join->first_exposure[row + 1] += all->entry[i].n_exposure;
  }
  for (int64_t row = 0; row < n_new; row++) {
    join->part_start[row + 1] += join->part_start[row];
    join->first_exposure[row + 1] += join->first_exposure[row];
  }
  for (int64_t i = 0; i < all->n_entry; i++) {
    const entry *e = &all->entry[i];
    const int64_t row = new_row[all->owner[i]];
    join->part[join->part_start[row] + n_filled[row]++] =
        (mill_join_part){.file = e->file, .n_exposure = e->n_exposure, .row = e->row};
  }
done:
  mill_free(new_row);
  mill_free(n_filled);
  return err;
}

/* The index of a file of this rank as it is after joining. */
static int rebuild(const survey *all, const mill_join *join, const int64_t *place_start, int f,
                   int64_t n_exposure, mill_file_index *index)
{
  int err = MILL_OK;
  const int64_t first_row = join->row_start[f], n_row = join->row_start[f + 1] - first_row;
  const mill_file_index old = *index;
  index->n_row = index->n_exposure = 0;
  index->row = NULL;
  index->exposure_row = NULL;
  index->exposure_id = NULL;
  index->exposure_mjd = NULL;
  MILL_TRY(mill_file_index_alloc(index, n_row, n_exposure));
  MILL_TRY(MILL_ALLOC(n_exposure, &index->exposure_file));
  for (int64_t i = first_row; i < first_row + n_row; i++) {
    mill_catalog_row *row = &index->row[index->n_row++];
    *row = old.row[join->part[join->part_start[i]].row];
    row->n_exposure = 0;
    for (int64_t p = join->part_start[i]; p < join->part_start[i + 1]; p++) {
      const mill_join_part *part = &join->part[p];
      const exposure *from =
          all->exposure + all->exposure_start[place_start[part->file] + part->row];
      for (int32_t k = 0; k < part->n_exposure; k++) {
        index->exposure_file[index->n_exposure] = from[k].file;
        mill_file_index_expose(index, from[k].row, from[k].id, from[k].mjd);
      }
    }
  }
done:
  MILL_FREE(old.row, old.exposure_row, old.exposure_id, old.exposure_mjd);
  return err;
}

int mill_join_make(const mill_mpi *mpi, double radius_arcsec, int n_file, int file_start,
                   int file_end, mill_file_index *index, int64_t *n_row, int64_t *n_exposure,
                   mill_join **out)
{
  int err = MILL_OK;
  survey mine = {0}, all = {0};
  mill_join *join = NULL;
  int64_t *place_start = NULL;
  static const char too_many[] = "too many rows to join: fit parts of the catalog";
  *out = NULL;
  MILL_TRY(mill_mpi_agree(mpi, list_mine(index, file_start, file_end, &mine)));
  MILL_TRY(mill_mpi_gather(mpi, mine.entry, mine.n_entry, sizeof(entry), too_many,
                           (void **)&all.entry, &all.n_entry));
  MILL_TRY(mill_mpi_gather(mpi, mine.exposure, mine.n_exposure, sizeof(exposure), too_many,
                           (void **)&all.exposure, &all.n_exposure));
  err = MILL_ALLOC(1, &join);
  if (err == MILL_OK)
    err = find_owners(&all);
  if (err == MILL_OK && mpi->rank == 0)
    tell_far(&all);
  if (err == MILL_OK && radius_arcsec > 0)
    err = join_near(&all, radius_arcsec / 3600.0);
  if (err == MILL_OK)
    err = make_table(&all, n_file, n_row, n_exposure, join);
  if (err == MILL_OK)
    err = MILL_ALLOC(n_file + 1, &place_start);
  for (int f = 0; f < n_file && err == MILL_OK; f++)
    place_start[f + 1] = place_start[f] + join->n_row_before[f];
  for (int f = file_start; f < file_end && err == MILL_OK; f++)
    err = rebuild(&all, join, place_start, f, n_exposure[f], &index[f - file_start]);
  MILL_TRY(mill_mpi_agree(mpi, err));
  *out = join;
  join = NULL;
done:
  mill_join_free(join);
  MILL_FREE(place_start, mine.entry, mine.exposure, all.entry, all.exposure, all.exposure_start,
            all.owner);
  return err;
}
