/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/ranks/schedule.h"

#include <string.h>

/* A chunk is 1/SHARES of a rank's even share of the work left, so that a rank SHARES times slower
 * than the others still ends with them. */
static const double SHARES = 4.0;

/* Lower limit of a chunk's work: the smaller of what a rank does in LEAST_S seconds and LEAST_SHARE
 * of a rank's whole work, but not less than LEAST_ROWS rows. */
static const double LEAST_S = 0.1, LEAST_SHARE = 0.01, LEAST_ROWS = 4.0;

/* Upper limit of a chunk's work: what a rank does in MOST_S seconds.  MOST_S is the default
 * write_interval, so that ranks write neighbouring rows at the same time. */
static const double MOST_S = 5.0;

/* Measured on one core (docs/develop/scaling.md): UNPACK_BYTES_S, packed bytes unpacked per
 * second (40 to 120 million); OPEN_S, seconds to read a file's headers and tables. */
static const double UNPACK_BYTES_S = 80e6, OPEN_S = 2.5e-3;

/* Cost of each exposure after a row's first, which costs 1.  All exposures of a row share the
 * emulator's work, 0.37 of a star's time (docs/develop/performance.md). */
static const double EXPOSURE_COST = 0.6;

/* First row of a chunk. */
typedef struct place {
  int64_t at;  /* index of its first file in the array `order` */
  int64_t row; /* first row in that file */
} place;

struct mill_schedule {
  int n_file;
  mill_schedule_file *file; /* [n_file] */
  int *order;               /* [n_order] files with wanted rows, in the order of drawing */
  int64_t n_order;
  uint8_t *wanted; /* one bit per row; NULL: all rows */
  int64_t n_row_limit;
  place *start; /* [n_chunk + 1] */
  int64_t n_chunk, n_room;
  mill_schedule_sum sum;
};

double mill_schedule_row_cost(double n_exposure)
{
  return n_exposure > 1.0 ? 1.0 + EXPOSURE_COST * (n_exposure - 1.0) : 1.0;
}

double mill_schedule_open_cost(int64_t n_byte, int is_compressed, double rate)
{
  const double unpack_s = is_compressed && n_byte > 0 ? (double)n_byte / UNPACK_BYTES_S : 0.0;
  return rate * (OPEN_S + unpack_s);
}

int mill_schedule_wanted(const mill_schedule *s, int64_t row)
{
  if (s->n_row_limit > 0 && row >= s->n_row_limit)
    return 0;
  return !s->wanted || (s->wanted[row / 8] >> (row % 8) & 1);
}

static int64_t count_wanted(const mill_schedule *s, const mill_schedule_file *file)
{
  int64_t n = 0;
  if (!s->wanted && s->n_row_limit == 0)
    return file->n_row;
  for (int64_t row = file->row_start; row < file->row_start + file->n_row; row++)
    n += mill_schedule_wanted(s, row);
  return n;
}

/* Copy files and wanted rows of a plan, which the caller may free. */
static int copy_plan(const mill_schedule_plan *plan, mill_schedule *s)
{
  s->n_file = plan->n_file;
  s->n_row_limit = plan->n_row_limit;
  MILL_CHECK(MILL_ALLOC(plan->n_file, &s->file));
  if (plan->n_file > 0)
    memcpy(s->file, plan->file, (size_t)plan->n_file * sizeof *s->file);
  if (plan->wanted && plan->n_file > 0) {
    const mill_schedule_file *last = &plan->file[plan->n_file - 1];
    const size_t n_byte = (size_t)(last->row_start + last->n_row) / 8 + 1;
    MILL_CHECK(mill_alloc_bytes(n_byte, 1, (void **)&s->wanted));
    memcpy(s->wanted, plan->wanted, n_byte);
  }
  return MILL_OK;
}

/* List the files with wanted rows in s->order: first the files that are expensive to open, then the
 * others, each group in catalog order.  Add up their rows and costs in s->sum. */
static int order_files(mill_schedule *s)
{
  MILL_OWNED int64_t *n_wanted = NULL;
  MILL_CHECK(MILL_ALLOC(s->n_file, &s->order));
  MILL_CHECK(MILL_ALLOC(s->n_file, &n_wanted));
  for (int i = 0; i < s->n_file; i++) {
    const mill_schedule_file *file = &s->file[i];
    n_wanted[i] = count_wanted(s, file);
    if (n_wanted[i] == 0)
      continue;
    s->sum.n_row += n_wanted[i];
    s->sum.row_cost += (double)n_wanted[i] * file->row_cost;
    s->sum.open_cost += file->open_cost;
  }
  for (int expensive = 1; expensive >= 0; expensive--)
    for (int i = 0; i < s->n_file; i++)
      if (n_wanted[i] > 0 && (s->file[i].open_cost > s->sum.least_cost) == expensive)
        s->order[s->n_order++] = i;
  return MILL_OK;
}

static int add_start(mill_schedule *s, int64_t at, int64_t row)
{
  MILL_CHECK(MILL_GROW(&s->start, &s->n_room, s->n_chunk + 1));
  s->start[s->n_chunk++] = (place){at, row};
  return MILL_OK;
}

/* State of the list of chunks while it is made. */
typedef struct making {
  const mill_schedule_plan *plan;
  double left;   /* cost of the work left */
  double taken;  /* cost of the present chunk so far */
  double target; /* cost at which the present chunk ends */
  int is_open;   /* a chunk has begun and not ended */
} making;

/* Begin a chunk at a row of file order[at], and choose the cost at which it ends. */
static int begin_chunk(mill_schedule *s, making *d, int64_t at, int64_t row)
{
  const double share = d->left / (double)d->plan->n_rank;
  d->target = fmin(share / SHARES, MOST_S * d->plan->rate);
  if (s->n_chunk < d->plan->n_rank) {
    /* a rank takes n_held rows before it finishes its first row: its first chunk costs at least
     * n_held, or an even share if this is less */
    const double even = (s->sum.row_cost + s->sum.open_cost) / (double)d->plan->n_rank;
    d->target = fmax(d->target, fmin((double)d->plan->n_held, even));
  }
  d->target = fmax(d->target, s->sum.least_cost);
  d->taken = 0;
  d->is_open = 1;
  return add_start(s, at, row);
}

/* Divide file order[at], whose wanted rows cost file_left, among chunks. */
static int add_file(mill_schedule *s, making *d, int64_t at, double file_left)
{
  const mill_schedule_file *file = &s->file[s->order[at]];
  /* least work that justifies opening the file */
  const double least = fmax(s->sum.least_cost, file->open_cost);
  for (int64_t row = 0; file_left > 0;) {
    double spent = file_left;
    int64_t end = file->n_row;
    if (!d->is_open)
      MILL_CHECK(begin_chunk(s, d, at, row));
    double room = d->target - d->taken; /* cost that still fits into the chunk */
    if (d->taken > 0 && room < least && room < file->open_cost + file_left) {
      /* the chunk has room for too little of the file: end the chunk before this file */
      MILL_CHECK(begin_chunk(s, d, at, row));
      room = d->target;
    }
    room = fmax(room, least);
    /* cut the file only if this chunk and the next get enough of it */
    if (file_left > 2 * least && file->open_cost + file_left > room + least) {
      const double cost = fmax(room - file->open_cost, least);
      spent = 0; /* unwanted rows cost nothing */
      for (end = row; end < file->n_row && spent < cost; end++)
        spent += mill_schedule_wanted(s, file->row_start + end) ? file->row_cost : 0;
    }
    spent = fmin(spent, file_left); /* spent may be larger by rounding */
    d->taken += spent + file->open_cost;
    d->left -= spent;
    file_left -= spent;
    row = end;
    /* ignore less than half a row left by rounding */
    if (file_left < 0.5 * file->row_cost)
      file_left = 0;
    d->is_open = d->taken < d->target - 0.5; /* 0.5: half of a row with one exposure */
  }
  d->left -= file->open_cost; /* once, although each of its chunks opens the file */
  return MILL_OK;
}

/* Divide all files among chunks, in the order of order_files. */
static int make_chunks(mill_schedule *s, const mill_schedule_plan *plan)
{
  making d = {.plan = plan, .left = s->sum.row_cost + s->sum.open_cost};
  /* one rank needs no division: it takes all files in one chunk */
  if (plan->n_rank == 1 && s->n_order > 0)
    MILL_CHECK(add_start(s, 0, 0));
  for (int64_t at = 0; plan->n_rank > 1 && at < s->n_order; at++) {
    const mill_schedule_file *file = &s->file[s->order[at]];
    MILL_CHECK(add_file(s, &d, at, (double)count_wanted(s, file) * file->row_cost));
  }
  /* a last entry marks the end of the last chunk */
  MILL_CHECK(add_start(s, s->n_order, 0));
  s->n_chunk--;
  s->sum.n_chunk = s->n_chunk;
  return MILL_OK;
}

int mill_schedule_make(const mill_schedule_plan *plan, mill_schedule **out)
{
  MILL_AT_END(mill_schedule_free_at) mill_schedule *s = NULL;
  double cost = 0; /* of all wanted rows; a row with one exposure costs 1 */
  *out = NULL;
  MILL_CHECK(MILL_ALLOC(1, &s));
  MILL_CHECK(copy_plan(plan, s));
  for (int i = 0; i < s->n_file; i++)
    cost += (double)count_wanted(s, &s->file[i]) * s->file[i].row_cost;
  s->sum.least_cost = /* of a chunk */
      fmax(LEAST_ROWS, fmin(LEAST_S * plan->rate, LEAST_SHARE * cost / (double)plan->n_rank));
  MILL_CHECK(order_files(s));
  MILL_CHECK(make_chunks(s, plan));
  return MILL_GIVE(&s, out);
}

void mill_schedule_free(mill_schedule *s)
{
  if (!s)
    return;
  MILL_FREE(s->file, s->order, s->wanted, s->start, s);
}

void mill_schedule_sums(const mill_schedule *s, mill_schedule_sum *sum)
{
  *sum = s->sum;
}

void mill_schedule_begin(const mill_schedule *s, int64_t number, int n, mill_schedule_walk *walk)
{
  memset(walk, 0, sizeof *walk);
  if (number < 0 || number >= s->n_chunk)
    return;
  const int64_t end = number + n < s->n_chunk ? number + n : s->n_chunk;
  const place *from = &s->start[number], *to = &s->start[end];
  *walk = (mill_schedule_walk){
      .at = from->at, .end = to->at, .first_row = from->row, .end_row = to->row};
}

int mill_schedule_next(const mill_schedule *s, mill_schedule_walk *walk, mill_schedule_rows *piece)
{
  /* the walk ends with rows [0, end_row) of the file at `end` */
  if (walk->at > walk->end || (walk->at == walk->end && walk->end_row == 0))
    return 0;
  piece->file = s->order[walk->at];
  piece->first = walk->first_row;
  piece->end = walk->at == walk->end ? walk->end_row : s->file[piece->file].n_row;
  walk->at++;
  walk->first_row = 0;
  return 1;
}
