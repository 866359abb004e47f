/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/status/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files/lock_file.h"
#include "io/hdf5/hdf5_util.h"
#include "io/result/result_file.h"
#include "io/result/result_layout.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "io/status/status_file.h"
#include "io/result/result_look.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/progress.h"
#include "src/system/status_json.h"
#include "src/system/status_process.h"

enum { SHOWN_RANKS = 8 };
/* a rank that has had no star for these seconds, and these intervals, gets a line */
static const double SILENT_S = 60.0, SILENT_INTERVALS = 10.0;

enum state { FINISHED, RUNNING, STOPPED, FAILED, DIED, INCOMPLETE, DAMAGED, NONE };
static const struct {
  const char *name, *text;
  int exit_status;
} states[] = {
    [FINISHED] = {"finished", "finished", MILL_STATUS_EXIT_FINISHED},
    [RUNNING] = {"running", "running", MILL_STATUS_EXIT_RUNNING},
    [STOPPED] = {"stopped", "stopped in good order; the same command continues it",
                 MILL_STATUS_EXIT_INCOMPLETE},
    [FAILED] = {"failed", "the last run ended with an error", MILL_STATUS_EXIT_FAILED},
    [DIED] = {"died", "the last run died (killed, or its node lost); the same command continues it",
              MILL_STATUS_EXIT_INCOMPLETE},
    [INCOMPLETE] = {"incomplete",
                    "not finished, and no run is active; the same command continues it",
                    MILL_STATUS_EXIT_INCOMPLETE},
    [DAMAGED] = {"damaged", "finished, but some rows are damaged; the same command refits them",
                 MILL_STATUS_EXIT_INCOMPLETE},
    [NONE] = {"none", "neither result nor status file exists", MILL_STATUS_EXIT_NONE},
};

typedef struct status_job {
  int help, json, all_ranks;
  const char *output, *status; /* paths */
  char default_status[MILL_STATUS_PATH];
  char begun[MILL_MAX_PATH]; /* OUT.h5, or OUT.h5.new that replaces it when it is finished */
  int is_new;                /* the second */
  int has_result;
  json_t *doc; /* of the status file; NULL: there is none */
  double age_s;
  mill_result_peek result;
  mill_damaged_rows damaged; /* of a finished one */
  mill_lock_holder lock;
  enum state state;
} status_job;

static const mill_option_table table = {
    "starmill status",
    "usage: starmill status OUT.h5 [--status FILE] [--ranks] [--json]\n"
    "\n"
    "Show the progress of the fit that writes OUT.h5, from its status file, or from the result\n"
    "file if the run is over or has no status file.  Nothing is changed; MPI is not needed.\n"
    "\n",
    "\n"
    "Exit status: 0 finished, 10 running, 11 nothing there, 12 the last run ended with an\n"
    "error, 75 rows are left and the same command continues, 2 usage, 4 OUT.h5 or the status\n"
    "file cannot be read.\n",
    (const mill_option[]){{"status", MILL_OPTION_TEXT, MILL_AT(status_job, status),
                           .help = "status file (default: OUT.h5.status.json)"},
                          {"ranks", MILL_OPTION_FLAG, MILL_AT(status_job, all_ranks),
                           .help = "print a line per rank even if there are many"},
                          {"json", MILL_OPTION_FLAG, MILL_AT(status_job, json),
                           .help = "JSON instead of text: state, counts, and under \"run\" the "
                                   "contents of the status file (docs/use/formats.md)"},
                          MILL_OPTION_HELP(status_job),
                          {0}}};

const mill_option_help mill_status_help = {&table, NULL};

static int parse(int argc, char **argv, status_job *job)
{
  int first = 0;
  MILL_CHECK(mill_option_parse(&table, argc, argv, job, NULL, &first));
  if (job->help)
    return MILL_OK;
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "name one result file, not %d; see starmill status --help",
                      argc - first);
  job->output = argv[first];
  if (!job->status) {
    MILL_CHECK(mill_status_path(job->output, job->default_status));
    job->status = job->default_status;
  }
  return MILL_OK;
}

/* ---- the status file's values ---- */

static const char *text(const status_job *job, const char *key)
{
  return mill_json_get_text(job->doc, key, "");
}

static int64_t integer(const status_job *job, const char *key)
{
  return mill_json_get_integer(job->doc, key, 0);
}

static double real(const status_job *job, const char *key)
{
  return mill_json_get_real(job->doc, key, (double)NAN);
}

/* ---- what is the case ---- */

/* OUT.h5.new that is finished has yet to become OUT.h5. */
static int is_finished(const status_job *job)
{
  return job->has_result && job->result.finished && !job->is_new;
}

static enum state state_of_result(const status_job *job)
{
  if (job->lock.is_locked && !job->lock.is_gone)
    return RUNNING;
  return !job->has_result ? NONE : is_finished(job) ? FINISHED : INCOMPLETE;
}

/* The result file is the truth about rows, the status file about the run; a status file of an
 * earlier run is ignored. */
static enum state find_state(status_job *job)
{
  const char *said = job->doc ? text(job, "state") : "";
  const int is_locked = job->lock.is_locked && !job->lock.is_gone;
  const int is_done = is_finished(job);
  const int is_alive = job->doc && mill_status_alive(job->doc, &job->age_s);
  if (strcmp(said, "running") == 0) {
    const int is_its_lock =
        job->lock.pid == integer(job, "pid") && strcmp(job->lock.host, text(job, "host")) == 0;
    if (is_done && !is_locked)
      return FINISHED; /* its last status comes in a moment */
    return is_alive || (is_locked && !is_its_lock) ? RUNNING : DIED;
  }
  /* a lock: another run has begun, and not written its status yet */
  if (is_locked || is_done)
    return state_of_result(job);
  if (strcmp(said, "failed") == 0)
    return FAILED;
  if (strcmp(said, "stopped") == 0 && job->has_result)
    return STOPPED;
  return state_of_result(job);
}

static int look(status_job *job)
{
  struct stat begun, now;
  MILL_CHECK(mill_status_read(job->status, &job->doc));
  /* the lock before the result: a run that ends in between shows as finished */
  mill_lock_look(job->output, &job->lock);
  MILL_CHECK(mill_result_begun(job->output, job->begun, sizeof job->begun, &job->is_new));
  if (job->is_new && stat(job->begun, &begun) == 0 && stat(job->output, &now) == 0 &&
      now.st_mtime > begun.st_mtime) { /* left behind: a run without --overwrite came after it */
    MILL_CHECK(mill_resolve_links(job->output, job->begun, sizeof job->begun));
    job->is_new = 0;
  }
  MILL_CHECK(mill_h5_check_output(job->begun));
  MILL_CHECK(mill_result_look(job->begun, &job->has_result, &job->result));
  job->state = find_state(job);
  if (job->state == FINISHED && job->has_result)
    MILL_CHECK(mill_result_damaged(job->begun, job->result.n_row, &job->damaged));
  if (job->damaged.n > 0)
    job->state = DAMAGED;
  return MILL_OK;
}

/* While a run is on, its own counts are newer than the file's. */
static int takes_counts_of_run(const status_job *job)
{
  return job->doc && (job->state == RUNNING || !job->has_result);
}

/* Rows, by the names of the JSON. */
enum { ROWS, DONE, FITTED, N_FAILED, REMAINING, N_COUNT };
static const char *const count_name[N_COUNT] = {"rows", "done", "fitted", "failed", "remaining"};

static void count(const status_job *job, int64_t n[N_COUNT])
{
  const int64_t *n_status = job->result.n_status;
  for (int i = 0; i < N_COUNT; i++)
    n[i] = integer(job, count_name[i]);
  if (takes_counts_of_run(job))
    return;
  n[ROWS] = job->result.n_row;
  n[REMAINING] = n_status[MILL_STATUS_NOT_DONE];
  n[FITTED] = n_status[MILL_STATUS_FITTED];
  n[DONE] = n[ROWS] - n[REMAINING];
  n[N_FAILED] = n[DONE] - n[FITTED];
}

/* ---- text ---- */

static void print_reasons(const status_job *job)
{
  if (takes_counts_of_run(job)) {
    json_t *reasons = json_object_get(job->doc, "failed_by_reason"), *n;
    const char *key;
    json_object_foreach(reasons, key, n)
        printf("  %-16s %lld\n", key, (long long)json_integer_value(n));
    return;
  }
  for (int s = MILL_STATUS_FITTED + 1; s < MILL_N_STATUS; s++)
    if (job->result.n_status[s] > 0)
      printf("  %-16s %lld\n", mill_status_name(s), (long long)job->result.n_status[s]);
}

static void print_counts(const status_job *job)
{
  int64_t n[N_COUNT];
  count(job, n);
  printf("rows         %lld of %lld done (%.1f %%)\n", (long long)n[DONE], (long long)n[ROWS],
         n[ROWS] > 0 ? 100.0 * (double)n[DONE] / (double)n[ROWS] : 100.0);
  printf("fitted       %lld\n", (long long)n[FITTED]);
  printf("not fitted   %lld\n", (long long)n[N_FAILED]);
  print_reasons(job);
  if (n[REMAINING] > 0)
    printf("left         %lld\n", (long long)n[REMAINING]);
}

/* all: what all ranks fit on. */
static void print_rank(const json_t *rank, const char *all)
{
  const char *backend = mill_json_get_text(rank, "backend", all);
  const json_t *gpu = json_object_get(rank, "gpu");
  const double mib = 1.0 / (1 << 20);
  printf("  rank %-4lld %-9s %8lld done  %6.0f MiB (at most %.0f)",
         (long long)mill_json_get_integer(rank, "rank", -1), mill_json_get_text(rank, "stage", "?"),
         (long long)mill_json_get_integer(rank, "done", 0),
         mib * mill_json_get_real(rank, "resident_bytes", 0),
         mib * mill_json_get_real(rank, "peak_bytes", 0));
  if (json_is_object(gpu))
    printf("  GPU %.0f %% busy, %.0f of %.0f MiB",
           mill_json_get_real(gpu, "busy_percent", (double)NAN),
           mib * mill_json_get_real(gpu, "used_bytes", 0),
           mib * mill_json_get_real(gpu, "total_bytes", 0));
  if (strcmp(backend, all) != 0)
    printf("  %s", backend);
  printf("  %s\n", mill_json_get_text(rank, "file", ""));
}

static void print_ranks(const status_job *job)
{
  const json_t *ranks = json_object_get(job->doc, "ranks");
  const size_t n_rank = json_array_size(ranks);
  const double limit_s = fmax(SILENT_S, SILENT_INTERVALS * real(job, "interval_s"));
  for (size_t r = 0; r < n_rank; r++) {
    const json_t *rank = json_array_get(ranks, r);
    const double silent_s = mill_utc_read(text(job, "updated")) -
                            mill_utc_read(mill_json_get_text(rank, "last_star", ""));
    if (job->all_ranks || n_rank <= SHOWN_RANKS)
      print_rank(rank, text(job, "backend"));
    if (job->state == RUNNING && silent_s > limit_s &&
        strcmp(mill_json_get_text(rank, "stage", ""), "fitting") == 0)
      printf("  rank %zu has taken or finished no star for %.0f s\n", r, silent_s);
  }
}

static void print_run(const status_job *job)
{
  char left[16];
  const json_t *error = json_object_get(job->doc, "error");
  const char *message = mill_json_get_text(error, "message", NULL);
  const int64_t rank = mill_json_get_integer(error, "rank", -1);
  const size_t n_rank = json_array_size(json_object_get(job->doc, "ranks"));
  if (message && rank >= 0)
    printf("first error  rank %lld: %s\n", (long long)rank, message);
  else if (message)
    printf("first error  %s\n", message);
  if (job->state == RUNNING) {
    mill_progress_eta(real(job, "left_s"), left, sizeof left);
    printf("rate         %.4g rows/s, about %s left\n", real(job, "rows_per_s"), left);
  } else {
    printf("rate         %.4g rows/s on average\n", real(job, "mean_rows_per_s"));
  }
  printf("run          since %s on %s (process %lld), %zu %s, %lld threads each, %s\n",
         text(job, "started"), text(job, "host"), (long long)integer(job, "pid"), n_rank,
         n_rank == 1 ? "rank" : "ranks", (long long)integer(job, "threads"), text(job, "backend"));
  printf("status       %s, %.0f s old%s\n", job->status, job->age_s,
         job->state == RUNNING &&
                 job->age_s > fmax(SILENT_S, SILENT_INTERVALS * real(job, "interval_s"))
             ? ": a long write, or the run died"
             : "");
  print_ranks(job);
}

static int is_to_be_continued(enum state state)
{
  return states[state].exit_status == MILL_STATUS_EXIT_INCOMPLETE;
}

static void print_text(const status_job *job)
{
  char damaged[MILL_ROWS_TEXT];
  printf("%s: %s\n", job->output, states[job->state].text);
  if (job->state == NONE)
    return;
  if (job->damaged.n > 0)
    printf("damaged      %s\n", mill_damaged_rows_text(&job->damaged, damaged));
  if (job->has_result && job->is_new)
    printf(
        "overwritten  by --overwrite when %s is finished; this status is that of the new result\n",
        job->begun);
  else if (job->doc && is_to_be_continued(job->state) &&
           strstr(text(job, "command"), " --overwrite"))
    puts("continued    by that command without --overwrite, which would start over");
  if (job->has_result || job->doc)
    print_counts(job);
  if (job->doc) {
    print_run(job);
    return;
  }
  if (job->lock.is_locked)
    printf("lock         held by process %lld on %s%s\n", (long long)job->lock.pid,
           job->lock.host[0] ? job->lock.host : "an unknown host",
           job->lock.is_gone ? ", which is gone" : "");
  if (job->has_result)
    printf("run          begun %s on %s (%s)%s%s, %d ended in good order, %.0f s together\n",
           job->result.start, job->result.host, job->result.device,
           job->result.end[0] ? ", last end " : "", job->result.end, job->result.n_run,
           job->result.wall_s);
}

/* ---- JSON ---- */

static void put_result(const status_job *job, mill_json *json)
{
  const mill_result_peek *r = &job->result;
  if (!job->has_result) {
    mill_json_null(json, "result");
    return;
  }
  mill_json_open(json, "result", '{');
  mill_json_bool(json, "finished", r->finished);
  mill_json_integer(json, "rows", r->n_row);
  mill_json_integer(json, "warned", r->n_warned);
  mill_json_integer(json, "damaged", job->damaged.n);
  mill_json_open(json, "rows_by_status", '{');
  for (int s = 0; s < MILL_N_STATUS; s++)
    mill_json_integer(json, mill_status_name(s), r->n_status[s]);
  mill_json_close(json);
  mill_json_text(json, "start_time", r->start);
  mill_json_text(json, "end_time", r->end[0] ? r->end : NULL);
  mill_json_text(json, "device", r->device);
  mill_json_text(json, "host", r->host);
  mill_json_integer(json, "runs", r->n_run);
  mill_json_real(json, "wall_s", r->wall_s);
  mill_json_close(json);
}

static int print_json(const status_job *job)
{
  int64_t n[N_COUNT];
  mill_json json = {.out = stdout};
  mill_json_open(&json, NULL, '{');
  mill_json_text(&json, "state", states[job->state].name);
  mill_json_integer(&json, "exit_status", states[job->state].exit_status);
  mill_json_text(&json, "output", job->output);
  count(job, n);
  for (int i = 0; i < N_COUNT && (job->has_result || job->doc); i++)
    mill_json_integer(&json, count_name[i], n[i]);
  put_result(job, &json);
  if (job->doc) {
    mill_json_real(&json, "run_age_s", job->age_s);
    mill_json_node(&json, "run", job->doc);
  } else {
    mill_json_null(&json, "run");
  }
  return mill_json_close(&json);
}

int mill_job_status(int argc, char **argv)
{
  int err = MILL_OK, exit_status = 0;
  status_job job;
  memset(&job, 0, sizeof job);
  MILL_TRY(parse(argc, argv, &job));
  if (mill_option_helped(job.help, 0, &table, NULL))
    goto done;
  MILL_TRY(look(&job));
  if (job.json)
    MILL_TRY(print_json(&job));
  else
    print_text(&job);
  MILL_TRY(mill_job_flush("the status"));
  exit_status = states[job.state].exit_status;
done:
  if (err != MILL_OK) {
    /* an unreadable status file is not an unreadable spectrum */
    exit_status = err == MILL_ERR_INPUT ? mill_error_exit_status(MILL_ERR_OUTPUT)
                                        : mill_error_exit_status(err);
    fprintf(stderr, "starmill status: %s\n", mill_error_message());
  }
  json_decref(job.doc);
  return exit_status;
}
