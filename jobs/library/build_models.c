/* SPDX-License-Identifier: BSD-3-Clause */
/* The models of a grid: index, selection, and known defects. */
#include "jobs/library/build_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/log.h"
#include "src/system/order.h"
#include "src/system/regular_file.h"

/* ---- lists of names ------------------------------------------------------------------------- */

typedef struct names {
  int64_t n, n_room;
  char (*name)[MILL_GRID_NAME]; /* sorted, each once */
  unsigned char *met;           /* [n] a model has it */
} names;

enum { MAX_NAMED = 5 /* names in a message */ };

/* A name a line; # begins a remark. */
static int read_names(const char *option, const char *path, names *out)
{
  int err = MILL_OK;
  FILE *file = NULL;
  char line[4096];
  if (!path)
    return MILL_OK;
  MILL_TRY(mill_regular_stream(path, "a list of names", MILL_ERR_INPUT, &file));
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "#\r\n")] = '\0';
    size_t n = strlen(line);
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'))
      line[--n] = '\0';
    const char *name = line + strspn(line, " \t");
    if (!*name)
      continue;
    if (strlen(name) >= MILL_GRID_NAME) /* as names in the file are cut */
      name += strlen(name) - MILL_GRID_NAME + 1;
    MILL_TRY(MILL_GROW(&out->name, &out->n_room, out->n + 1));
    memset(out->name[out->n], 0, MILL_GRID_NAME);
    snprintf(out->name[out->n++], MILL_GRID_NAME, "%s", name);
  }
  if (ferror(file))
    MILL_FAIL(MILL_ERR_INPUT, "%s: cannot be read", path);
  if (out->n == 0)
    MILL_FAIL(MILL_ERR_INPUT, "--%s %s: has no names", option, path);
  qsort(out->name, (size_t)out->n, sizeof *out->name, mill_by_text);
  int64_t n = 1;
  for (int64_t i = 1; i < out->n; i++) /* each once */
    if (strcmp(out->name[i], out->name[n - 1]) != 0)
      memmove(out->name[n++], out->name[i], MILL_GRID_NAME);
  out->n = n;
  MILL_TRY(MILL_ALLOC(out->n, &out->met));
done:
  if (file)
    fclose(file);
  return err;
}

/* Is the name in the list?  Marks it as found. */
static int has_name(names *list, const char *name)
{
  char(*found)[MILL_GRID_NAME] = NULL;
  if (list->n > 0)
    found = bsearch(name, list->name, (size_t)list->n, sizeof *list->name, mill_by_text);
  if (found)
    list->met[found - list->name] = 1;
  return found != NULL;
}

/* Names that no model has: how many, and the first of them into text. */
static int64_t count_not_met(const names *list, char *text, size_t size)
{
  int64_t n = 0;
  size_t at = 0;
  text[0] = '\0';
  for (int64_t i = 0; i < list->n; i++) {
    if (list->met[i])
      continue;
    if (n++ < MAX_NAMED && at < size)
      at += (size_t)snprintf(text + at, size - at, "%s%s", n > 1 ? ", " : "", list->name[i]);
  }
  if (n > MAX_NAMED && at < size)
    snprintf(text + at, size - at, ", ...");
  return n;
}

/* Names of --list must exist; names of --exclude-list may be missing. */
static int check_names(const mill_build_job *job, const names list[2])
{
  char text[(MAX_NAMED + 1) * (MILL_GRID_NAME + 2)];
  int64_t n = count_not_met(&list[0], text, sizeof text);
  if (n > 0)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "--list %s: %lld of its %lld names match no model (a file's name without "
                      "folder and .fits, or \"row 7\"): %s",
                      job->options.list, (long long)n, (long long)list[0].n, text);
  n = count_not_met(&list[1], text, sizeof text);
  if (n > 0 && job->mpi.rank == 0)
    mill_log_warning("--exclude-list %s: %lld of its %lld names match no model: %s",
                     job->options.exclude_list, (long long)n, (long long)list[1].n, text);
  return MILL_OK;
}

/* ---- selection ------------------------------------------------------------------------------ */

static int find_label(const mill_build_job *job, const char *name)
{
  for (int l = 0; l < job->info.n_label; l++)
    if (strcmp(job->info.label[l], name) == 0)
      return l;
  return -1;
}

static int check_ranges(const mill_build_job *job)
{
  const mill_build_options *o = &job->options;
  for (int i = 0; i < o->in.n_keep + o->n_exclude; i++) {
    const int keeps = i < o->in.n_keep;
    const char *name = keeps ? o->in.keep[i].name : o->exclude[i - o->in.n_keep].name;
    if (find_label(job, name) < 0)
      return MILL_ERROR(MILL_ERR_USAGE, "--%s %s: not one of the labels (--labels)",
                        keeps ? "keep" : "exclude", name);
  }
  return MILL_OK;
}

static int is_inside(const mill_build_job *job, const mill_named *range, const double *label)
{
  const double x = label[find_label(job, range->name)];
  return x >= range->min && x <= range->max;
}

/* One with bad labels is wanted as far as they do not say otherwise: it is named. */
static int is_wanted(const mill_build_job *job, const mill_model_entry *entry, names list[2])
{
  const mill_build_options *o = &job->options;
  const int is_listed = has_name(&list[0], entry->name), is_out = has_name(&list[1], entry->name);
  if ((list[0].n > 0 && !is_listed) || is_out)
    return 0;
  if (entry->why[0])
    return 1;
  for (int i = 0; i < o->in.n_keep; i++)
    if (!is_inside(job, &o->in.keep[i], entry->label))
      return 0;
  for (int i = 0; i < o->n_exclude;) { /* all ranges of one --exclude */
    int inside = 1;
    const double group = o->exclude[i].length;
    for (; i < o->n_exclude && o->exclude[i].length == group; i++)
      inside &= is_inside(job, &o->exclude[i], entry->label);
    if (inside)
      return 0;
  }
  return 1;
}

/* ---- index ---------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
  return ((const mill_model_entry *)a)->index - ((const mill_model_entry *)b)->index;
}

static int index_files(const mill_build_job *job, mill_model_entry **all, int64_t *n_all)
{
  int err = MILL_OK;
  const mill_mpi *mpi = &job->mpi;
  const int n = mill_model_source_n(job->source);
  mill_model_entry *mine = NULL;
  int64_t n_mine = 0;
  if (mpi->rank == 0)
    mill_log_info("reading the labels of %d models", n);
  err = MILL_ALLOC(n / mpi->size + 1, &mine);
  for (int i = mpi->rank; i < n && err == MILL_OK; i += mpi->size)
    err = mill_model_source_entry(job->source, i, &mine[n_mine++]);
  MILL_TRY(mill_mpi_agree(mpi, err));
  MILL_TRY(
      mill_mpi_gather(mpi, mine, n_mine, sizeof *mine, "too many models", (void **)all, n_all));
  qsort(*all, (size_t)*n_all, sizeof **all, compare_entries);
done:
  mill_free(mine);
  return err;
}

/* ---- what is wrong -------------------------------------------------------------------------- */

typedef struct place {
  double label[MILL_MAX_GRID_AXIS];
  int is_good, model;
} place;

static int compare_places(const void *a, const void *b)
{
  const place *x = a, *y = b;
  for (int l = 0; l < MILL_MAX_GRID_AXIS; l++)
    if (x->label[l] != y->label[l])
      return x->label[l] < y->label[l] ? -1 : 1;
  return x->is_good != y->is_good ? y->is_good - x->is_good : x->model - y->model;
}

int mill_build_doubles(mill_grid_info *info)
{
  int err = MILL_OK, n = 0;
  place *sorted = NULL;
  const size_t n_label = (size_t)info->n_label;
  MILL_TRY(MILL_ALLOC(info->n_model, &sorted));
  for (int i = 0; i < info->n_model; i++) {
    if (info->status[i] == MILL_GRID_BAD)
      continue;
    sorted[n].is_good = info->status[i] == MILL_GRID_GOOD;
    memcpy(sorted[n].label, info->value + (size_t)i * n_label, n_label * sizeof *info->value);
    sorted[n++].model = i;
  }
  qsort(sorted, (size_t)n, sizeof *sorted, compare_places);
  for (int i = 1, first = 0; i < n; i++) {
    if (memcmp(sorted[i].label, sorted[first].label, sizeof sorted[i].label) != 0) {
      first = i;
      continue;
    }
    info->status[sorted[i].model] = MILL_GRID_BAD;
    snprintf(info->why[sorted[i].model], MILL_GRID_WHY, "it has the same labels as %s",
             info->name[sorted[first].model]);
  }
done:
  mill_free(sorted);
  return err;
}

static int check_labels(const mill_build_job *job)
{
  int first = -1;
  const mill_grid_info *info = &job->info;
  const size_t n_label = (size_t)info->n_label;
  for (int i = info->n_model - 1; i >= 0; i--)
    if (info->status[i] == MILL_GRID_TO_DO)
      first = i;
  if (first < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "none of the %d models can be used; %s: %s", info->n_model,
                      info->name[0], info->why[0]);
  for (size_t l = 0; l < n_label; l++) {
    const double x = info->value[(size_t)first * n_label + l];
    int varies = 0;
    for (int i = first; i < info->n_model && !varies; i++)
      varies = info->status[i] == MILL_GRID_TO_DO && info->value[(size_t)i * n_label + l] != x;
    if (!varies)
      return MILL_ERROR(MILL_ERR_INPUT,
                        "label %s is %g in all models, so it cannot be learned: omit it from "
                        "--labels, or give models in which it varies",
                        info->label[l], x);
  }
  return MILL_OK;
}

static int take_wanted(mill_build_job *job, const mill_model_entry *all, int64_t n_all)
{
  int err = MILL_OK;
  names list[2] = {{0}};
  mill_grid_info *info = &job->info;
  const size_t n_label = (size_t)info->n_label;
  MILL_TRY(read_names("list", job->options.list, &list[0]));
  MILL_TRY(read_names("exclude-list", job->options.exclude_list, &list[1]));
  MILL_TRY(MILL_ALLOC((size_t)n_all * n_label, &info->value));
  MILL_TRY(MILL_ALLOC(n_all, &info->name));
  MILL_TRY(MILL_ALLOC(n_all, &info->why));
  MILL_TRY(MILL_ALLOC(n_all, &info->status));
  MILL_TRY(MILL_ALLOC(n_all, &job->index));
  MILL_TRY(MILL_ALLOC(n_all, &info->stamp));
  for (int64_t i = 0; i < n_all; i++) {
    if (!is_wanted(job, &all[i], list))
      continue;
    const int k = info->n_model++;
    job->index[k] = all[i].index;
    for (size_t l = 0; l < n_label; l++) /* -0 is 0 */
      info->value[(size_t)k * n_label + l] = all[i].label[l] + 0.0;
    memcpy(info->name[k], all[i].name, MILL_GRID_NAME);
    memcpy(info->why[k], all[i].why, MILL_GRID_WHY);
    info->status[k] = all[i].why[0] ? MILL_GRID_BAD : MILL_GRID_TO_DO;
    info->stamp[k] = all[i].stamp;
  }
  MILL_TRY(check_names(job, list));
  if (info->n_model == 0)
    MILL_FAIL(MILL_ERR_INPUT, "--keep, --exclude and --list leave none of %lld models",
              (long long)n_all);
  MILL_TRY(mill_build_doubles(info));
  MILL_TRY(check_labels(job));
done:
  MILL_FREE(list[0].name, list[1].name, list[0].met, list[1].met);
  return err;
}

int mill_build_models(mill_build_job *job)
{
  int err = MILL_OK;
  mill_model_entry *all = NULL;
  int64_t n_all = 0;
  MILL_TRY(mill_mpi_agree(&job->mpi, check_ranges(job)));
  MILL_TRY(index_files(job, &all, &n_all));
  MILL_TRY(mill_mpi_agree(&job->mpi, take_wanted(job, all, n_all)));
done:
  mill_free(all);
  return err;
}
