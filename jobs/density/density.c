#include "jobs/density/density.h"

#include <stdio.h>
#include <stdlib.h>

#include "jobs/density/density_map.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "src/run/command_text.h"
#include "src/ranks/mpi_context.h"

static int print_summary(const mill_density_options *o, const mill_density_map *map, int knows_good,
                         double wall_s)
{
  const mill_map_facts *f = &map->facts;
  printf("rows         %lld, used %lld\n", (long long)f->n_row, (long long)f->n_used);
  if (f->n_not_good > 0)
    printf("not good     %lld\n", (long long)f->n_not_good);
  else if (!knows_good && !o->all)
    printf("not good     no catalog says which rows are good: all are taken\n");
  if (f->n_nan > 0)
    printf("no number    %lld\n", (long long)f->n_nan);
  printf("map          %d x %d cells, %lld rows on it, integral %.6g\n", f->axis[0].n, f->axis[1].n,
         (long long)f->n_on_map, f->integral);
  printf("bandwidth    %.6g along %s, %.6g along %s (%s%s)\n", f->axis[0].bandwidth,
         f->axis[0].column, f->axis[1].bandwidth, f->axis[1].column, f->rule,
         f->is_adaptive ? ", adaptive" : "");
  printf("sum          %s, no value is further off than %.2g\n", f->form, f->bound);
  printf("time         %.2f s, %d threads\n", wall_s, o->n_thread);
  printf("density      %s\n", o->output);
  return mill_job_flush("the summary");
}

static int run(const mill_mpi *mpi, int argc, char **argv)
{
  int err = MILL_OK;
  char *command = NULL;
  mill_density_options o;
  mill_density_rows rows = {0};
  mill_density_map map = {0};
  const double start_s = mill_wall_s();
  MILL_TRY(mill_command_text(argc, argv, &command)); /* before argv is permuted */
  MILL_TRY(mill_density_parse(argc, argv, &o));
  if (mill_option_helped(o.help, mpi->rank, mill_density_help.table, mill_density_help.usual))
    goto done;
  if (mpi->size > 1)
    MILL_FAIL(MILL_ERR_USAGE, "density runs on one rank, without mpirun or srun -n");
  MILL_TRY(mill_density_rows_open(&o, &rows));
  MILL_TRY(mill_density_map_make(&o, &rows, &map));
  map.facts.command = command;
  map.facts.n_input = o.n_input;
  map.facts.input = o.input;
  MILL_TRY(mill_map_file_write(o.output, o.overwrite, &map.facts, map.density));
  if (!o.quiet)
    MILL_TRY(print_summary(&o, &map, rows.knows_good, mill_wall_s() - start_s));
done:
  mill_density_rows_close(&rows);
  mill_free(map.density);
  free(command);
  return err;
}

int mill_job_density(int argc, char **argv)
{
  return mill_mpi_job("starmill density", run, argc, argv);
}
