/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/stars/join.h"

#include <stdlib.h>
#include <string.h>

#include "io/catalog/places.h"
#include "src/system/log.h"

/* A catalog row before joining, as ranks exchange it. */
typedef struct entry {
  int64_t place; /* number of the row in the catalog */
  int64_t owner; /* place of the first row of the same object */
  int64_t row;   /* number of the row in its file */
  int64_t target_id;
  char object[sizeof((mill_catalog_row *)0)->object];
  double ra, dec; /* degrees; NaN: unknown */
  int32_t file, n_exposure, tile_id, night, is_listed;
  int64_t first_exposure; /* index in survey.exposure; set by order_rows */
  mill_star_entries entries;
  mill_kind kind;
} entry;

typedef struct exposure {
  int64_t row;
  double mjd;
  int32_t id, file;
} exposure;

/* Rows in catalog order: of this rank's files or, after joining, of this rank's objects. */
typedef struct survey {
  int64_t n_entry, n_exposure, n_kept; /* n_kept: rows of listed objects */
  entry *entry;                        /* [n_entry] */
  exposure *exposure;                  /* [n_exposure] */
  int64_t *start;                      /* [size + 1] entry.place of each rank's first row */
} survey;

void mill_join_free(mill_join *join)
{
  if (!join)
    return;
  mill_node_array_free(&join->parts);
  mill_node_array_free(&join->starts);
  MILL_FREE(join->n_row_before, join->row_start, join->found, join);
}

/* mill_star_entries.start of an unlisted row: two rows of a table match its position. */
static const int64_t AMBIGUOUS = INT64_MIN;

/* List this rank's rows and exposures; set found: which listed stars have a row. */
static int list_mine(const mill_star_list *stars, const mill_star_tables *tables,
                     const char *const *path, const mill_file_index *index, int file_start,
                     int file_end, survey *mine, unsigned char *found)
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
      e->is_listed =
          !stars || mill_star_list_has(stars, row->target_id, row->identifier, row->object, found);
      const int code = mill_star_entries_find(tables, path[f], row, &e->entries);
      if (e->is_listed || code != MILL_ERR_CONFIG)
        MILL_CHECK(code);
      else /* matters only if another part of the object is listed */
        e->entries.start = AMBIGUOUS;
      memcpy(e->object, row->object, sizeof e->object);
      e->target_id = row->target_id;
      e->ra = row->target_ra;
      e->dec = row->target_dec;
      e->tile_id = row->tile_id;
      e->night = row->night;
      e->kind = row->kind;
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

static int number_places(const mill_mpi *mpi, survey *mine)
{
  MILL_CHECK_MPI(
      MPI_Allgather(&mine->n_entry, 1, MPI_INT64_T, mine->start + 1, 1, MPI_INT64_T, mpi->comm));
  for (int r = 0; r < mpi->size; r++)
    mine->start[r + 1] += mine->start[r];
  for (int64_t i = 0; i < mine->n_entry; i++)
    mine->entry[i].place = mine->entry[i].owner = mine->start[mpi->rank] + i;
  return MILL_OK;
}

/* Return the rank whose files contain the row with this place. */
static int home_of(const mill_mpi *mpi, const survey *mine, int64_t place)
{
  int lo = 0, hi = mpi->size;
  while (hi - lo > 1) {
    const int middle = (lo + hi) / 2;
    *(mine->start[middle] <= place ? &lo : &hi) = middle;
  }
  return lo;
}

/* Rank that collects all rows with this key. */
static int rank_of_key(const mill_mpi *mpi, const void *key, size_t n_byte)
{
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (size_t i = 0; i < n_byte; i++)
    hash = (hash ^ ((const unsigned char *)key)[i]) * 0x100000001b3u;
  return (int)((hash >> 32) % (unsigned)mpi->size);
}

/* ---- by name ---- */

/* Compare two rows for sorting; 0: they are one object.  Rows with names come first, by name; then
 * rows with only a TARGETID; then rows with neither, each an object of its own. */
static int compare_object(const entry *a, const entry *b)
{
  const int kind_a = a->object[0] ? 0 : a->target_id != -1 ? 1 : 2;
  const int kind_b = b->object[0] ? 0 : b->target_id != -1 ? 1 : 2;
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

/* Warn that n rows lie far from the first row of their name: the name may stand for two objects.
 * one: this rank's first such row; NULL: none.  Collective. */
static int tell_far(const mill_mpi *mpi, int64_t n, const entry *one)
{
  int64_t place = one ? one->place : INT64_MAX, first = place;
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT64_T, MPI_MIN, mpi->comm));
  if (one && first == place)
    mill_log_warning(
        "join_by_name: %lld rows, for example '%s' (TARGETID %lld), are joined to a row more than "
        "1 arcmin away; if these are different objects, give them different names and TARGETIDs",
        (long long)n, one->object, (long long)one->target_id);
  return MILL_OK;
}

/* Set owner [n] of rows e [n] to the place of the first row with the same name.  Returns how many
 * rows lie further than MILL_FAR_DEG from this first row; *far: the first of these distant rows. */
static int64_t own_by_first(const entry *e, const entry **sorted, int64_t n, int64_t *owner,
                            const entry **far)
{
  int64_t n_far = 0;
  for (int64_t i = 0; i < n; i++)
    sorted[i] = &e[i];
  if (n > 0)
    qsort(sorted, (size_t)n, sizeof *sorted, compare_entry);
  for (int64_t i = 0, i_first = 0; i < n; i++) {
    if (compare_object(sorted[i], sorted[i_first]) != 0)
      i_first = i;
    const entry *one = sorted[i], *first = sorted[i_first];
    owner[one - e] = first->place;
    if (!mill_place_known(one->ra, one->dec) || !mill_place_known(first->ra, first->dec) ||
        mill_place_distance_deg(one->ra, one->dec, first->ra, first->dec) <= MILL_FAR_DEG)
      continue;
    n_far++;
    if (!*far || one->place < (*far)->place)
      *far = one;
  }
  return n_far;
}

/* Set each row's owner to the first row of its name.  One rank collects all rows of a name. */
static int find_owners(const mill_mpi *mpi, survey *mine)
{
  MILL_OWNED int *rank = NULL;
  MILL_OWNED int64_t *owner = NULL, *owner_of_mine = NULL;
  const entry *far = NULL;
  MILL_OWNED const entry **sorted = NULL;
  MILL_AT_END(mill_exchange_free) mill_exchange met = {0};
  MILL_CHECK(mill_mpi_agree(mpi, mill_error_of(MILL_ALLOC(mine->n_entry, &rank),
                                               MILL_ALLOC(mine->n_entry, &owner_of_mine))));
  for (int64_t i = 0; i < mine->n_entry; i++) {
    const entry *e = &mine->entry[i];
    rank[i] = mpi->rank; /* a row without a name stays here */
    if (e->object[0])
      rank[i] = rank_of_key(mpi, e->object, strnlen(e->object, sizeof e->object));
    else if (e->target_id != -1)
      rank[i] = rank_of_key(mpi, &e->target_id, sizeof e->target_id);
  }
  MILL_CHECK(mill_exchange_send(mpi, rank, mine->entry, mine->n_entry, sizeof(entry), &met));
  MILL_CHECK(mill_mpi_agree(
      mpi, mill_error_of(mill_alloc_bytes((size_t)met.n, sizeof *sorted, (void **)&sorted),
                         MILL_ALLOC(met.n, &owner))));
  const int64_t n_far =
      own_by_first((const entry *)(const void *)met.record, sorted, met.n, owner, &far);
  MILL_CHECK(tell_far(mpi, n_far, far));
  MILL_CHECK(mill_exchange_answer(mpi, &met, owner, sizeof *owner, owner_of_mine));
  for (int64_t i = 0; i < mine->n_entry; i++)
    mine->entry[i].owner = owner_of_mine[i];
  return MILL_OK;
}

/* ---- by position ---- */

/* Position of a row in a strip of declination. */
typedef struct spot {
  int64_t strip, place, owner;
  double ra, dec;
} spot;

/* Places of two owners that are the same object. */
typedef struct pair {
  int64_t a, b;
} pair;

static int compare_spot(const void *a, const void *b)
{
  const spot *x = a, *y = b;
  if (x->strip != y->strip)
    return x->strip < y->strip ? -1 : 1;
  if (x->dec != y->dec)
    return x->dec < y->dec ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

/* Root of i in a union-find forest; halves the path on the way. */
static int64_t root_of(int64_t *parent, int64_t i)
{
  while (parent[i] != i)
    i = parent[i] = parent[parent[i]];
  return i;
}

/* List pairs [*n_pair] of owners (entry.owner) that have positions in s [n] within radius_deg of
 * each other.  Leave out a pair that other pairs link already.  Sorts s; overwrites s[i].owner. */
static int pair_spots(spot *s, int64_t n, double radius_deg, pair **pairs, int64_t *n_pair)
{
  int64_t n_owner = 0;
  MILL_OWNED int64_t *owner = NULL, *parent = NULL;
  *n_pair = 0;
  MILL_CHECK(MILL_ALLOC(n, &owner));
  MILL_CHECK(MILL_ALLOC(n, &parent));
  MILL_CHECK(MILL_ALLOC(n, pairs));
  for (int64_t i = 0; i < n; i++)
    owner[i] = s[i].owner;
  if (n > 0) {
    qsort(owner, (size_t)n, sizeof *owner, mill_by_int64);
    qsort(s, (size_t)n, sizeof *s, compare_spot);
  }
  for (int64_t i = 0; i < n; i++) /* drop repeated owners */
    if (i == 0 || owner[i] != owner[n_owner - 1])
      owner[n_owner++] = owner[i];
  for (int64_t i = 0; i < n_owner; i++)
    parent[i] = i;
  for (int64_t i = 0; i < n; i++) /* s[i].owner becomes an index into `owner` */
    s[i].owner = (const int64_t *)bsearch(&s[i].owner, owner, (size_t)n_owner, sizeof *owner,
                                          mill_by_int64) -
                 owner;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = i + 1; k < n && s[k].strip == s[i].strip && s[k].dec - s[i].dec <= radius_deg;
         k++) {
      const int64_t a = root_of(parent, s[i].owner), b = root_of(parent, s[k].owner);
      if (a == b || mill_place_distance_deg(s[i].ra, s[i].dec, s[k].ra, s[k].dec) > radius_deg)
        continue;
      parent[a > b ? a : b] = a > b ? b : a; /* the earlier owner becomes the root */
      (*pairs)[(*n_pair)++] = (pair){owner[a], owner[b]};
    }
  return MILL_OK;
}

/* Look up the owners of the rows at places key [n].  `owner` may be `key` itself.  Collective. */
static int ask_owners(const mill_mpi *mpi, const survey *mine, const int64_t *key, int64_t n,
                      int64_t *owner)
{
  MILL_OWNED int *rank = NULL;
  MILL_AT_END(mill_exchange_free) mill_exchange asked = {0};
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(n, &rank)));
  for (int64_t i = 0; i < n; i++)
    rank[i] = home_of(mpi, mine, key[i]);
  MILL_CHECK(mill_exchange_send(mpi, rank, key, n, sizeof *key, &asked));
  int64_t *at = (int64_t *)(void *)asked.record;
  for (int i = 0; i < asked.n; i++)
    at[i] = mine->entry[at[i] - mine->start[mpi->rank]].owner;
  return mill_exchange_answer(mpi, &asked, at, sizeof *at, owner);
}

/* Replace each row's owner by the owner's owner until no owner changes.  Collective. */
static int settle_owners(const mill_mpi *mpi, survey *mine)
{
  int has_changed = 1;
  MILL_OWNED int64_t *owner = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(mine->n_entry, &owner)));
  while (has_changed) {
    has_changed = 0;
    for (int64_t i = 0; i < mine->n_entry; i++)
      owner[i] = mine->entry[i].owner;
    MILL_CHECK(ask_owners(mpi, mine, owner, mine->n_entry, owner)); /* owners' owners */
    for (int64_t i = 0; i < mine->n_entry; i++) {
      has_changed |= mine->entry[i].owner != owner[i];
      mine->entry[i].owner = owner[i];
    }
    MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &has_changed, 1, MPI_INT, MPI_MAX, mpi->comm));
  }
  return MILL_OK;
}

/* Replace each row of a pair by its owner.  If both owners are one row, drop the pair; else the
 * earlier owner becomes the owner of the later owner.  *n_left: pairs left on all ranks. */
static int connect_once(const mill_mpi *mpi, survey *mine, pair *pairs, int64_t *n, int64_t *n_left)
{
  MILL_OWNED int *rank = NULL;
  MILL_AT_END(mill_exchange_free) mill_exchange told = {0};
  int64_t n_pair = 0;
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(*n, &rank)));
  int64_t *ends = (int64_t *)(void *)pairs; /* [2 n]: a and b of each pair */
  MILL_CHECK(ask_owners(mpi, mine, ends, 2 * *n, ends));
  for (int64_t i = 0; i < *n; i++) {
    const pair p = pairs[i];
    if (p.a == p.b)
      continue;
    pairs[n_pair] = p.a < p.b ? p : (pair){p.b, p.a};
    rank[n_pair] = home_of(mpi, mine, pairs[n_pair].b);
    n_pair++;
  }
  *n = n_pair;
  MILL_CHECK_MPI(MPI_Allreduce(n, n_left, 1, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_CHECK(mill_exchange_send(mpi, rank, pairs, *n, sizeof *pairs, &told));
  for (int i = 0; i < told.n; i++) {
    const pair p = ((const pair *)(const void *)told.record)[i];
    entry *e = &mine->entry[p.b - mine->start[mpi->rank]];
    e->owner = p.a < e->owner ? p.a : e->owner;
  }
  return MILL_OK;
}

/* List this rank's known positions by strip of declination, and the rank that collects each strip.
 * A position within radius_deg of the next strip is listed in both strips. */
static int list_spots(const mill_mpi *mpi, const survey *mine, double radius_deg, spot **spots,
                      int **rank, int64_t *n)
{
  const double width_deg = 4 * radius_deg; /* of a strip: a quarter of the spots is listed twice */
  *n = 0;
  MILL_CHECK(MILL_ALLOC(2 * mine->n_entry, spots));
  MILL_CHECK(MILL_ALLOC(2 * mine->n_entry, rank));
  for (int64_t i = 0; i < mine->n_entry; i++) {
    const entry *e = &mine->entry[i];
    if (!mill_place_known(e->ra, e->dec))
      continue;
    const int64_t strip = (int64_t)floor(e->dec / width_deg);
    /* 1.01: rounding */
    const int64_t last = (int64_t)floor((e->dec + 1.01 * radius_deg) / width_deg);
    for (int64_t k = strip; k <= last; k++) {
      (*spots)[*n] = (spot){k, e->place, e->owner, e->ra, e->dec};
      (*rank)[(*n)++] = rank_of_key(mpi, &k, sizeof k);
    }
  }
  return MILL_OK;
}

/* Join objects within radius_deg of each other; the first one owns the others.  Collective. */
static int join_near(const mill_mpi *mpi, survey *mine, double radius_deg)
{
  MILL_OWNED int *rank = NULL;
  int64_t n = 0, n_left = 1;
  MILL_OWNED spot *spots = NULL;
  MILL_OWNED pair *pairs = NULL;
  MILL_AT_END(mill_exchange_free) mill_exchange told = {0};
  MILL_CHECK(mill_mpi_agree(mpi, list_spots(mpi, mine, radius_deg, &spots, &rank, &n)));
  MILL_CHECK(mill_exchange_send(mpi, rank, spots, n, sizeof *spots, &told));
  MILL_CHECK(
      mill_mpi_agree(mpi, pair_spots((spot *)(void *)told.record, told.n, radius_deg, &pairs, &n)));
  mill_exchange_free(&told);
  while (n_left > 0) { /* a connected owner may be in more pairs: they now link its new owner */
    MILL_CHECK(connect_once(mpi, mine, pairs, &n, &n_left));
    MILL_CHECK(settle_owners(mpi, mine));
  }
  return MILL_OK;
}

/* ---- the table ---- */

/* Send every row and its exposures to its owner's rank.  Collective. */
static int take_rows(const mill_mpi *mpi, const survey *mine, survey *owned)
{
  MILL_OWNED int *rank = NULL, *rank_of_exposure = NULL;
  int64_t n = 0;
  MILL_AT_END(mill_exchange_free) mill_exchange entries = {0}, exposures = {0};
  MILL_CHECK(mill_mpi_agree(mpi, mill_error_of(MILL_ALLOC(mine->n_entry, &rank),
                                               MILL_ALLOC(mine->n_exposure, &rank_of_exposure))));
  for (int64_t i = 0; i < mine->n_entry; i++) {
    rank[i] = home_of(mpi, mine, mine->entry[i].owner);
    for (int32_t e = 0; e < mine->entry[i].n_exposure; e++)
      rank_of_exposure[n++] = rank[i];
  }
  MILL_CHECK(mill_exchange_send(mpi, rank, mine->entry, mine->n_entry, sizeof(entry), &entries));
  MILL_CHECK(
      mill_exchange_send(mpi, rank_of_exposure, mine->exposure, n, sizeof(exposure), &exposures));
  *owned = (survey){.n_entry = entries.n,
                    .n_exposure = exposures.n,
                    .entry = (entry *)(void *)entries.record,
                    .exposure = (exposure *)(void *)exposures.record};
  entries.record = exposures.record = NULL;
  return MILL_OK;
}

/* Copy class, start or priors from a later part to the joined row's first part, if this lacks
 * them.  Tile and night become -1 if the two parts differ. */
static void combine(entry *first, const entry *other)
{
  const int64_t start = other->entries.start;
  if (start >= 0 ? first->entries.start < 0 : first->entries.start == -MILL_START_ABSENT)
    first->entries.start = start;
  if (first->entries.prior < 0)
    first->entries.prior = other->entries.prior;
  if (!first->kind.spectype[0] && isnan(first->kind.z))
    first->kind = other->kind;
  first->tile_id = first->tile_id == other->tile_id ? first->tile_id : -1;
  first->night = first->night == other->night ? first->night : -1;
}

/* Sort this rank's rows by owner into order [n_entry] (key: owner, place: index in owned->entry).
 * Keep only objects with a listed row (n_kept rows).  Set each entry's first_exposure. */
static void order_rows(survey *owned, mill_keyed *order)
{
  for (int64_t i = 0, n = 0; i < owned->n_entry; i++) { /* n: exposures before row i */
    order[i] = (mill_keyed){owned->entry[i].owner, i};
    owned->entry[i].first_exposure = n;
    n += owned->entry[i].n_exposure;
  }
  if (owned->n_entry > 0)
    qsort(order, (size_t)owned->n_entry, sizeof *order, mill_by_key);
  for (int64_t i = 0, end; i < owned->n_entry; i = end) {
    int is_listed = 0;
    for (end = i; end < owned->n_entry && order[end].key == order[i].key; end++)
      is_listed |= owned->entry[order[end].place].is_listed;
    for (int64_t k = i; k < end && is_listed; k++)
      order[owned->n_kept++] = order[k];
  }
}

/* Fill in `part`, the parts of this rank's joined rows sorted by entry.owner, and `start`, where in
 * `part` each of the n_new rows begins.  Count each row and its exposures in n_row and
 * n_exposure of the file that has the row's first part.  Return the number of exposures. */
static int64_t list_parts(survey *owned, const mill_keyed *order, mill_join_part *part,
                          mill_join_start *start, int64_t *n_new, int64_t *n_row,
                          int64_t *n_exposure)
{
  int64_t n_taken = 0;
  entry *first = NULL; /* of the joined row */
  for (int64_t i = 0; i < owned->n_kept; i++) {
    entry *e = &owned->entry[order[i].place];
    part[i] = (mill_join_part){.file = e->file, .n_exposure = e->n_exposure, .row = e->row};
    if (e->place == e->owner) {
      first = e;
      start[(*n_new)++] = (mill_join_start){.part = i, .exposure = n_taken};
      n_row[e->file]++;
    }
    combine(first, e); /* may change `first`, so copy it again */
    start[*n_new - 1].is_extragalactic = first->kind.is_extragalactic;
    start[*n_new - 1].entries = first->entries;
    n_exposure[first->file] += e->n_exposure;
    n_taken += e->n_exposure;
  }
  return n_taken;
}

/* Make the table of joined rows on all ranks, and count the rows and exposures of all files. */
static int make_table(const mill_mpi *mpi, survey *owned, int n_file, const mill_keyed *order,
                      int64_t *n_row, int64_t *n_exposure, mill_join *join)
{
  int64_t n_joined = 0, n[2] = {owned->n_kept}, before[2] = {0, 0}; /* n: parts, exposures */
  MILL_OWNED mill_join_part *part = NULL;
  MILL_OWNED mill_join_start *start = NULL;
  int code = MILL_OK;
  for (int64_t i = 0; i < n[0] && !code; i++) {
    const entry *e = &owned->entry[order[i].place];
    if (e->entries.start == AMBIGUOUS)
      code = MILL_ERROR(MILL_ERR_CONFIG,
                        "join_by_name: two rows of the table of starts or priors are within 1 "
                        "arcsec of the star at RA %.6f, DEC %.6f: keep one",
                        e->ra, e->dec);
  }
  code = mill_error_of(code, mill_error_of(MILL_ALLOC(n[0], &part), MILL_ALLOC(n[0] + 1, &start)));
  MILL_CHECK(mill_mpi_agree(mpi, code));
  n[1] = list_parts(owned, order, part, start, &n_joined, n_row, n_exposure);
  MILL_CHECK_MPI(MPI_Exscan(n, before, 2, MPI_INT64_T, MPI_SUM, mpi->comm));
  if (mpi->rank == mpi->size - 1) /* the end of the last row */
    start[n_joined++] = (mill_join_start){.part = n[0], .exposure = n[1]};
  for (int64_t i = 0; i < n_joined && mpi->rank > 0; i++) { /* count on from the ranks before */
    start[i].part += before[0];
    start[i].exposure += before[1];
  }
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, n_row, n_file, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, n_exposure, n_file, MPI_INT64_T, MPI_SUM, mpi->comm));
  MILL_CHECK_MPI(
      MPI_Allreduce(MPI_IN_PLACE, join->n_row_before, n_file, MPI_INT64_T, MPI_SUM, mpi->comm));
  for (int f = 0; f < n_file; f++)
    join->row_start[f + 1] = join->row_start[f] + n_row[f];
  MILL_CHECK(mill_node_gather(mpi, part, n[0], sizeof *part, &join->parts));
  MILL_CHECK(mill_node_gather(mpi, start, n_joined, sizeof *start, &join->starts));
  join->part = join->parts.data;
  join->start = join->starts.data;
  return MILL_OK;
}

/* Replace a file's index by its n_row joined rows, which begin at order[*next]. */
static int rebuild(const survey *owned, const mill_keyed *order, int64_t *next, int64_t n_row,
                   int64_t n_exposure, mill_file_index *index)
{
  int err = MILL_OK;
  const mill_file_index old = *index;
  index->n_row = index->n_exposure = 0;
  index->row = NULL;
  index->exposure_row = NULL;
  index->exposure_id = NULL;
  index->exposure_mjd = NULL;
  MILL_TRY(mill_file_index_alloc(index, n_row, n_exposure));
  MILL_TRY(MILL_ALLOC(n_exposure, &index->exposure_file));
  for (int64_t i = 0; i < n_row; i++) {
    const int64_t owner = order[*next].key;
    mill_catalog_row *row = &index->row[index->n_row++];
    const entry *first = &owned->entry[order[*next].place];
    *row = old.row[first->row];
    row->n_exposure = 0;
    row->tile_id = first->tile_id;
    row->night = first->night;
    row->kind = first->kind;
    for (; *next < owned->n_kept && order[*next].key == owner; ++*next) {
      const entry *part = &owned->entry[order[*next].place];
      const exposure *from = owned->exposure + part->first_exposure;
      for (int32_t e = 0; e < part->n_exposure; e++) {
        index->exposure_file[index->n_exposure] = from[e].file;
        mill_file_index_expose(index, from[e].row, from[e].id, from[e].mjd);
      }
    }
  }
done:
  MILL_FREE(old.row, old.exposure_row, old.exposure_id, old.exposure_mjd);
  return err;
}

/* Find each row's owner, the object's first row, by name, then position; join rows on its rank. */
int mill_join_make(const mill_mpi *mpi, double radius_arcsec, const mill_star_list *stars,
                   const mill_star_tables *tables, const char *const *path, int n_file,
                   int file_start, int file_end, mill_file_index *index, int64_t *n_row,
                   int64_t *n_exposure, mill_join **out)
{
  int64_t next = 0;
  survey mine = {0}, owned = {0};
  mill_join *join = NULL;
  mill_keyed *order = NULL;
  *out = NULL;
  const int64_t n_star = stars ? stars->n_number + stars->n_name : 0;
  int err = MILL_ALLOC(1, &join);
  MILL_STEP(MILL_ALLOC(n_star, &join->found));
  MILL_STEP(list_mine(stars, tables, path, index, file_start, file_end, &mine, join->found));
  MILL_STEP(MILL_ALLOC(mpi->size + 1, &mine.start));
  MILL_STEP(MILL_ALLOC(n_file, &join->n_row_before));
  MILL_STEP(MILL_ALLOC(n_file + 1, &join->row_start));
  MILL_TRY(mill_mpi_agree(mpi, err));
  for (int f = 0; f < n_file; f++)
    n_row[f] = n_exposure[f] = 0;
  for (int f = file_start; f < file_end; f++)
    join->n_row_before[f] = index[f - file_start].n_row;
  MILL_TRY(number_places(mpi, &mine));
  MILL_TRY(find_owners(mpi, &mine));
  if (radius_arcsec > 0)
    MILL_TRY(join_near(mpi, &mine, radius_arcsec / 3600.0));
  MILL_TRY(take_rows(mpi, &mine, &owned));
  MILL_FREE(mine.entry, mine.exposure);
  mine = (survey){.start = mine.start};
  MILL_TRY(mill_mpi_agree(mpi, MILL_ALLOC(owned.n_entry, &order)));
  order_rows(&owned, order);
  MILL_TRY(make_table(mpi, &owned, n_file, order, n_row, n_exposure, join));
  for (int f = file_start; f < file_end; f++)
    MILL_STEP(rebuild(&owned, order, &next, n_row[f], n_exposure[f], &index[f - file_start]));
  MILL_TRY(mill_mpi_agree(mpi, err));
  err = MILL_GIVE(&join, out);
done:
  mill_join_free(join);
  MILL_FREE(mine.entry, mine.exposure, mine.start, owned.entry, owned.exposure, order);
  return err;
}
