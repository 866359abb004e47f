#include "jobs/select/select.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/files/whole_file.h"
#include "jobs/options/job_steps.h"
#include "jobs/options/option_table.h"
#include "jobs/select/expression.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

enum { BLOCK_ROWS = 65536, PRINT_TARGETID = 0, PRINT_IDENTIFIER, PRINT_ROW };

typedef struct select_job {
  int help, overwrite, print;
  const char *output;
  mill_result_table table;
  mill_expression expression;
  mill_stored_rows printed; /* of the column that is printed */
  char *fits_row, *catalog_row, *print_row, *value, *is_true;
  char *list; /* what is printed */
  int64_t n_list, n_room, n_true, n_without;
} select_job;

static const mill_option_table table = {
    "starmill select",
    "usage: starmill select OUT.h5 EXPRESSION [--output LIST.txt]\n"
    "\n"
    "Print the TARGETIDs of the rows of a result for which an expression is true, one a line,\n"
    "as --targetid-file reads them: starmill select OUT.h5 'SN_R > 10 && FEH < -2'\n"
    "\n"
    "Names are columns of /fits and /catalog, in CFITSIO's syntax for selecting rows:\n"
    "  < <= == != >= > && || !   + - * / **   abs() sqrt() log10() near() angsep() isnull()\n"
    "  (RVS_WARN & 256) != 0     a bit of flags\n"
    "  SPECTYPE == 'STAR'        a text\n"
    "  COVAR[1] < 4              an element of a vector, from 1\n"
    "A comparison with a value that is missing (NaN) or infinite is never true, nor is its\n"
    "negation.\n"
    "\n",
    "\n"
    "Exit status: 0 done, also where no row is true, 2 usage, or an expression that means\n"
    "nothing, 4 OUT.h5 cannot be read or the list not be written.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, MILL_AT(select_job, output), .argument = "LIST.txt",
         .help = "write the list there instead of to standard output"},
        {"overwrite", MILL_OPTION_FLAG, MILL_AT(select_job, overwrite),
         .help = "replace it when it is there"},
        {"print", MILL_OPTION_CHOICE, MILL_AT(select_job, print),
         .words = (const char *const[]){"targetid", "identifier", "row", NULL},
         .help = "what stands in a line: TARGETID (default), IDENTIFIER for surveys without "
                 "TARGETIDs, or the row from 0 on"},
        MILL_OPTION_HELP(select_job),
        {0}}};

const mill_option_help mill_select_help = {&table, NULL};

/* ---- the list ---- */

static int put_line(select_job *job, const char *text)
{
  const int64_t n = (int64_t)strlen(text);
  MILL_CHECK(MILL_GROW(&job->list, &job->n_room, job->n_list + n + 1));
  memcpy(job->list + job->n_list, text, (size_t)n);
  job->list[job->n_list + n] = '\n';
  job->n_list += n + 1;
  return MILL_OK;
}

/* To standard output as it comes; a list in a file is written in one piece. */
static int flush_list(select_job *job)
{
  if (job->output)
    return MILL_OK;
  if (fwrite(job->list, 1, (size_t)job->n_list, stdout) != (size_t)job->n_list ||
      fflush(stdout) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "cannot print the list: %s", strerror(errno));
  job->n_list = 0;
  return MILL_OK;
}

static int put_row(select_job *job, int64_t row, int64_t k)
{
  char text[128];
  int64_t target;
  const char *at = job->print_row + (size_t)k * job->printed.row_size;
  if (job->print == PRINT_ROW) {
    snprintf(text, sizeof text, "%" PRId64, row);
  } else if (job->print == PRINT_IDENTIFIER) {
    snprintf(text, sizeof text, "%.*s", (int)job->printed.row_size, at);
  } else {
    memcpy(&target, at, sizeof target);
    if (target < 0) {
      job->n_without++;
      return MILL_OK;
    }
    snprintf(text, sizeof text, "%" PRId64, target);
  }
  return put_line(job, text);
}

/* ---- rows ---- */

static int read_block(const select_job *job, const mill_stored_rows *rows, int64_t at, int64_t n,
                      char *row)
{
  return rows->n_column > 0 ? mill_stored_rows_read(rows, at, n, row, job->value) : MILL_OK;
}

static int select_rows(select_job *job)
{
  const mill_expression *e = &job->expression;
  const size_t widest[] = {e->fits.widest, e->catalog.widest, job->printed.widest};
  size_t most = 1;
  for (int i = 0; i < 3; i++)
    most = widest[i] > most ? widest[i] : most;
  const int64_t n_block = job->table.n_row < BLOCK_ROWS ? job->table.n_row : BLOCK_ROWS;
  MILL_CHECK(MILL_ALLOC((size_t)n_block * most, &job->value));
  MILL_CHECK(MILL_ALLOC((size_t)n_block * e->fits.row_size, &job->fits_row));
  MILL_CHECK(MILL_ALLOC((size_t)n_block * e->catalog.row_size, &job->catalog_row));
  MILL_CHECK(MILL_ALLOC((size_t)n_block * job->printed.row_size, &job->print_row));
  MILL_CHECK(MILL_ALLOC(n_block, &job->is_true));
  for (int64_t at = 0; at < job->table.n_row; at += n_block) {
    const int64_t n = job->table.n_row - at < n_block ? job->table.n_row - at : n_block;
    MILL_CHECK(read_block(job, &e->fits, at, n, job->fits_row));
    MILL_CHECK(read_block(job, &e->catalog, at, n, job->catalog_row));
    MILL_CHECK(read_block(job, &job->printed, at, n, job->print_row));
    MILL_CHECK(mill_expression_answer(e, job->fits_row, job->catalog_row, n, job->is_true));
    for (int64_t k = 0; k < n; k++)
      if (job->is_true[k]) {
        job->n_true++;
        MILL_CHECK(put_row(job, at + k, k));
      }
    MILL_CHECK(flush_list(job));
  }
  return MILL_OK;
}

/* The one column that is printed. */
static void choose_printed(select_job *job)
{
  static const char *const name[] = {"TARGETID", "IDENTIFIER"};
  const mill_stored_rows *from =
      job->print == PRINT_IDENTIFIER ? &job->table.catalog : &job->table.fits;
  job->printed.path = from->path;
  job->printed.n_row = from->n_row;
  for (int i = 0; job->print != PRINT_ROW && i < from->n_column; i++)
    if (strcmp(mill_result_table_name(&from->column[i]), name[job->print]) == 0)
      mill_expression_add_column(&job->printed, &from->column[i]);
}

static int run(select_job *job, const char *path, const char *expression)
{
  char temporary[4096];
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", job->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the result", path));
  if (job->output)
    MILL_CHECK(mill_refuse_existing(job->output, job->overwrite));
  if (job->output && snprintf(temporary, sizeof temporary, "%s.tmp-%ld", job->output,
                              (long)getpid()) >= (int)sizeof temporary)
    return MILL_ERROR(MILL_ERR_USAGE, "the path of the list is too long");
  MILL_CHECK(mill_result_table_open(path, MILL_ERR_OUTPUT, &job->table));
  MILL_CHECK(mill_expression_bind(expression, &job->table, &job->expression));
  choose_printed(job);
  MILL_CHECK(select_rows(job));
  if (job->n_without > 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%" PRId64 " of the %" PRId64
                      " rows have no TARGETID: give --print identifier, or --print row",
                      job->n_without, job->n_true);
  if (job->output)
    MILL_CHECK(mill_whole_file_write(job->output, temporary, job->list ? job->list : "",
                                     (size_t)job->n_list));
  if (job->output)
    printf("%" PRId64 " of %" PRId64 " rows: %s\n", job->n_true, job->table.n_row, job->output);
  return MILL_OK;
}

int mill_job_select(int argc, char **argv)
{
  int err = MILL_OK, first = 0;
  select_job job = {0};
  MILL_TRY(mill_option_parse(&table, argc, argv, &job, NULL, &first));
  if (mill_option_helped(job.help, 0, &table, NULL))
    goto done;
  if (argc - first != 2)
    MILL_FAIL(MILL_ERR_USAGE,
              "give a result and one expression in quotes, not %d arguments; see "
              "starmill select --help",
              argc - first);
  MILL_TRY(run(&job, argv[first], argv[first + 1]));
done:
  err = mill_job_end("select", err);
  mill_result_table_close(&job.table);
  MILL_FREE(job.fits_row, job.catalog_row, job.print_row, job.value, job.is_true, job.list);
  return err;
}
