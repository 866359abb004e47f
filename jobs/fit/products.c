/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/export/products.h"

#include <unistd.h>

#include "jobs/fit/output.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/log.h"

int mill_fit_check_products(const mill_fit_call *call, const mill_inputs *inputs)
{
  int err = MILL_OK;
  const char **path = NULL;
  const char *folder = call->options->rvtab_dir;
  if (!folder || call->options->plan)
    goto done;
  MILL_TRY(mill_products_folder(folder, "--rvtab-dir"));
  MILL_TRY(MILL_ALLOC(inputs->n_file, &path));
  for (int i = 0; i < inputs->n_file; i++)
    path[i] = inputs->file[i].path;
  MILL_TRY(mill_products_check_names(inputs->n_file, path, 0));
done:
  mill_free(path);
  return err;
}

int mill_fit_write_products(const mill_fit_call *call, mill_fit_output *out)
{
  int err = MILL_OK;
  const mill_fit_options *options = call->options;
  const mill_result_summary *summary = &out->summary;
  if (!options->rvtab_dir || summary->n_status[MILL_STATUS_NOT_DONE] > 0 ||
      summary->old == MILL_OLD_WAITS || summary->old == MILL_OLD_KEPT)
    goto done;
  /* a result that was finished without models has none, as reported */
  int has_models = options->models && access(options->models, F_OK) == 0;
  MILL_MPI(MPI_Bcast(&has_models, 1, MPI_INT, 0, call->mpi->comm));
  const mill_products want = {
      .result = options->output,
      .models = has_models ? options->models : NULL,
      .output = options->rvtab_dir,
      .tab_prefix = "rvtab-",
      .mod_prefix = has_models ? "rvmod-" : NULL,
      .has_fibermap = 1,
      .overwrite = options->overwrite && out->outcome != MILL_OPEN_FINISHED,
  };
  MILL_TRY(mill_products_write(call->mpi, &want, &out->products));
done:
  if (err != MILL_OK && call->mpi->rank == 0)
    mill_log_error(
        "%s is complete, but files of --rvtab-dir are missing; the same command writes them",
        options->output);
  return err;
}
