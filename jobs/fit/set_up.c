/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/steps.h"

#include "io/catalog/sampled_fit.h"
#include "io/library/library_file.h"
#include "io/surveys/formats.h"
#include "src/config/arms.h"
#include "src/pipeline/several.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/shipped_file.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

/* A loading step that the watchdog watches. */
typedef struct loading {
  const mill_fit_call *call;
  mill_fit_setup *setup;
  int (*load)(const mill_fit_call *call, mill_fit_setup *setup);
  const char *path, *what;
} loading;

static int load_watched(void *context)
{
  const loading *l = context;
  MILL_WATCHED(MILL_WATCH_START, 0, "%s: %s", l->path, l->what);
  return l->load(l->call, l->setup);
}

/* Select the stars of `starmill sample` among the fitted stars, by the options. */
static int choose_sampled(const mill_fit_options *options, mill_config *config)
{
  const mill_sampled_wish wish = {
      .is_listing = options->n_object > 0 || options->object_file,
      .flag = options->flag,
      .least_sn = options->least_sn,
      .most_sn = options->most_sn,
      .part = options->part,
      .seed = options->sample.seed,
  };
  config->fit.sample = options->sample;
  return mill_sampled_choose(options->fit, &wish, config);
}

/* Settle the configuration, and the paths of libraries, status file and stop file. */
static int load_config(const mill_fit_call *call, mill_fit_setup *setup)
{
  const mill_fit_options *options = call->options;
  mill_config_clear(&setup->config);
  mill_config_default(&setup->config);
  if (options->config)
    MILL_CHECK(mill_config_read(&setup->config, options->config));
  if (options->fit)
    MILL_CHECK(mill_sampled_read_config(options->fit, &setup->config));
  /* keep the libraries of the sampled fit: options may change template_lib */
  memcpy(setup->fitted, setup->config.template_lib, sizeof setup->config.template_lib);
  MILL_CHECK(mill_fit_options_apply(options, &setup->config));
  if (options->fit)
    MILL_CHECK(choose_sampled(options, &setup->config));
  if (call->observer && call->observer->instead) /* do not look for a GPU */
    snprintf(setup->config.backend, sizeof setup->config.backend, "cpu");
  MILL_CHECK(mill_fit_options_running(options, &setup->running));
  MILL_CHECK(mill_config_check(&setup->config));
  if (options->print_config)
    return MILL_OK;
  if (!options->output)
    return MILL_ERROR(MILL_ERR_USAGE, "no output: give --output FILE; see starmill %s --help",
                      options->fit ? "sample" : "fit");
  mill_config *config = &setup->config;
  if (options->fit && options->n_library == 0 && config->n_template_lib > 1) {
    config->n_template_lib = 1;
    if (call->mpi->rank == 0)
      mill_log_warning("%s was fitted with several libraries: sampling the stars fitted with "
                       "%s; --library chooses another",
                       options->fit, config->template_lib[0]);
  }
  if (config->n_template_lib == 0)
    config->n_template_lib = setup->library_came =
        mill_shipped_libraries(config->template_lib[0], sizeof config->template_lib[0],
                               options->fit ? 1 : MILL_MAX_LIBRARY);
  if (config->n_template_lib == 0)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no library: give --library FILE, or set template_lib in the configuration "
                      "(share/starmill/" MILL_SHIPPED_LIBRARY " or oba.h5 is not installed)");
  if (options->status)
    snprintf(setup->status_path, sizeof setup->status_path, "%s", options->status);
  else
    MILL_CHECK(mill_status_path(options->output, setup->status_path));
  const char *stop_file = setup->running.stop_file;
  if (snprintf(setup->stop_file, sizeof setup->stop_file, "%s%s",
               stop_file ? stop_file : options->output,
               stop_file ? "" : ".stop") >= (int)sizeof setup->stop_file)
    return MILL_ERROR(MILL_ERR_USAGE, "the path of the stop file is too long; give a shorter one");
  return MILL_OK;
}

/* Read the libraries.  `starmill sample` needs the library that its stars were fitted with. */
static int load_libraries(const mill_fit_call *call, mill_fit_setup *setup)
{
  const mill_config *config = &setup->config;
  for (int i = 0; i < config->n_template_lib; i++) {
    MILL_CHECK(mill_library_read(config->template_lib[i], &setup->library[i]));
    setup->n_library = i + 1;
  }
  if (call->options->fit)
    MILL_CHECK(mill_sampled_check_library(call->options->fit, setup->library, setup->n_library,
                                          &setup->start_library));
  setup->lib = setup->library[0];
  return MILL_OK;
}

/* If no wavelength ranges are configured, take the cameras of the inputs' format as arms.
 * `starmill sample` keeps the arms of its fit.  Collective. */
static int choose_cameras(const mill_fit_call *call, mill_fit_setup *setup)
{
  mill_config *config = &setup->config;
  const mill_format *format = NULL;
  mill_input_request request;
  if (!mill_config_lacks_ranges(config, &setup->lib) || call->options->fit)
    return MILL_OK;
  mill_fit_options_inputs(call->options, &request);
  MILL_CHECK(mill_mpi_agree(call->mpi, call->mpi->rank == 0
                                           ? mill_input_names_format(&request, config, &format)
                                           : MILL_OK));
  /* other ranks have no format and no cameras_of; they get the arms from rank 0 below */
  MILL_CHECK(mill_mpi_agree(
      call->mpi, format ? mill_format_take_cameras(format->name, &setup->lib, config) : MILL_OK));
  /* the option replaces the cameras' widths, too */
  const int is_given = call->options->resolving_power && config->resolving_power > 0.0;
  for (int i = 0; i < config->n_arm && is_given; i++)
    config->arm[i].resolving_power = config->arm[i].fwhm_aa = 0.0;
  if (!is_given && config->cameras_of[0] && config->resolving_power > 0.0 &&
      config->lsf == MILL_LSF_AUTO && mill_arm_has_width(format->camera))
    mill_log_info("resolving_power: %g is not used for the cameras of %s, whose widths are known; "
                  "set lsf: resolving_power to use it instead of these",
                  config->resolving_power, config->cameras_of);
  MILL_CHECK_MPI(MPI_Bcast(&config->n_arm, 1, MPI_INT, 0, call->mpi->comm));
  MILL_CHECK_MPI(MPI_Bcast(config->arm, (int)sizeof config->arm, MPI_BYTE, 0, call->mpi->comm));
  MILL_CHECK_MPI(
      MPI_Bcast(config->cameras_of, (int)sizeof config->cameras_of, MPI_CHAR, 0, call->mpi->comm));
  return MILL_OK;
}

/* `sample`: cut setup->lib as the fit did, to the wavelengths common to all libraries of the fit.
 * setup->library [0] is the sampled library; read the fit's other libraries into [1], [2], ... */
static int cut_as_in_fit(mill_fit_setup *setup)
{
  mill_library *next = setup->library + 1;
  for (int k = 0; setup->fitted[k][0]; k++) {
    const int is_sampled = k + 1 == setup->start_library; /* which counts from 1 */
    mill_library *lib = is_sampled ? setup->library : next++;
    if (!is_sampled) {
      int code; /* the library's code in the fit: not used here */
      if (mill_library_read(setup->fitted[k], lib) != MILL_OK ||
          mill_sampled_check_library(setup->config.start, lib, 1, &code) != MILL_OK) {
        mill_log_warning("%s; restore this library, or stars may get STATUS OTHER_SPECTRUM",
                         mill_error_message());
        continue;
      }
      MILL_CHECK(mill_config_cut_arms(&setup->config, lib));
    }
    if (k == 0) /* the first library's grid, as in the fit */
      memcpy(setup->lib.arm, lib->arm, sizeof lib->arm);
    MILL_CHECK(mill_arms_in_common(lib, &setup->lib));
  }
  return MILL_OK;
}

/* Make setup->lib represent all libraries: common wavelengths, joined names, one digest. */
static int unite_libraries(mill_fit_setup *setup)
{
  int label[MILL_MAX_LABEL]; /* mill_several_match needs it; not used here */
  mill_sha256 sha;
  setup->lib = setup->library[0];
  for (int k = 1; k < setup->n_library; k++) {
    MILL_CHECK(mill_several_match(&setup->lib, &setup->library[k], label));
    MILL_CHECK(mill_arms_in_common(&setup->library[k], &setup->lib));
  }
  if (setup->start_library > 0) /* `sample`: the sampled fit may have had more libraries */
    MILL_CHECK(cut_as_in_fit(setup));
  if (setup->n_library == 1)
    return MILL_OK;
  mill_sha256_init(&sha);
  for (int k = 0; k < setup->n_library; k++) {
    char *name = setup->lib.name;
    const size_t n = k > 0 ? strlen(name) : 0;
    snprintf(name + n, sizeof setup->lib.name - n, "%s%s", k > 0 ? " + " : "",
             setup->library[k].name);
    mill_sha256_update(&sha, setup->library[k].hash, sizeof setup->library[k].hash);
  }
  mill_sha256_final(&sha, setup->lib.hash);
  return MILL_OK;
}

/* Cut the libraries to the configured arms, and derive the fit's settings from the libraries. */
static int bind_libraries(const mill_fit_call *call, mill_fit_setup *setup)
{
  mill_config *config = &setup->config;
  if (!call->options->fit) /* starmill sample keeps the fit's sampling */
    mill_config_choose_sampling(setup->library, setup->n_library, config);
  /* from last to first: config->fit must end up bound to library 0 */
  for (int k = setup->n_library - 1; k >= 0; k--) {
    MILL_CHECK(mill_config_cut_arms(config, &setup->library[k]));
    MILL_CHECK(mill_library_add_sky(config->sky_components, &setup->library[k], config->sky_hash));
    /* last argument 1: refuse missing labels.  Only a fit's first library must have all; `sample`
     * may begin with another one */
    MILL_CHECK(mill_config_bind(config, &setup->library[k], k == 0 && setup->start_library <= 1));
  }
  if (call->options->fit && config->sky_components[0])
    MILL_CHECK(mill_sampled_check_same(call->options->fit, "sky_components", config->sky_components,
                                       config->sky_hash, "restore the file, or fit again"));
  MILL_CHECK(unite_libraries(setup));
  mill_config_arms(config, &setup->lib, setup->arm_wanted);
  const int tells = call->mpi->rank == 0, tells_sky = tells && config->sky_components[0];
  for (int a = 0; a < setup->lib.n_arm; a++)
    if (tells_sky && setup->arm_wanted[a] && setup->library->arm[a].sky.n_component == 0)
      mill_log_warning("sky_components: %s has no group for arm %s, so the arm is fitted without "
                       "sky components; the key arms can give the arm the name of a group",
                       config->sky_components, setup->lib.arm[a].name);
  for (int k = 0; k < setup->n_library; k++) /* before the output is made */
    MILL_CHECK(mill_device_model_check(&setup->library[k], &config->fit));
  for (int k = 0; k < setup->library_came && tells; k++)
    mill_log_info("no --library: fitting with %s, shipped with starmill", config->template_lib[k]);
  return MILL_OK;
}

/* Check priors and read their table.  `sample` uses its fit's table, or that of --prior-table. */
static int load_priors(const mill_fit_call *call, mill_fit_setup *setup)
{
  mill_config *config = &setup->config;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  MILL_CHECK(
      mill_prior_check(setup->library, setup->n_library, &config->fit, call->mpi->rank == 0));
  if (!config->prior_table[0])
    return MILL_OK;
  /* The fit's first library has all labels.  It is [0]; if another library is sampled
   * (start_library > 1), it is [1], where cut_as_in_fit has read it if it could. */
  const int i_first = setup->start_library > 1 && setup->library[1].n_label > 0;
  MILL_CHECK(mill_prior_table_read(config->prior_table, setup->library + i_first, setup->n_library,
                                   setup->library, &config->fit, &limits, call->mpi->rank == 0,
                                   &setup->priors));
  snprintf(config->prior_hash, sizeof config->prior_hash, "%s",
           mill_prior_table_stars(setup->priors)->hash);
  if (call->options->fit && !call->options->prior_table)
    MILL_CHECK(mill_sampled_check_same(
        call->options->fit, "prior_table", config->prior_table, config->prior_hash,
        "set --prior-table to the table that the fit used, or to a new one to change the priors"));
  return MILL_OK;
}

/* Read the table of starting points, if there is one, and note its digest. */
static int load_start(const mill_fit_call *call, mill_fit_setup *setup)
{
  mill_config *config = &setup->config;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  if (!config->start[0])
    return MILL_OK;
  MILL_CHECK(mill_start_table_read(config->start, setup->library, setup->n_library, &config->fit,
                                   &limits, call->options->fit != NULL, setup->start_library,
                                   &setup->start));
  snprintf(config->start_hash, sizeof config->start_hash, "%s",
           mill_start_table_stars(setup->start)->hash);
  return MILL_OK;
}

/* Refuse a file with two roles.  mill_inputs_index later checks the inputs that a catalog names. */
static int check_roles(const mill_fit_call *call, mill_fit_setup *setup)
{
  const mill_fit_options *options = call->options;
  mill_file_roles *roles = &setup->roles;
  MILL_CHECK(mill_file_roles_write(roles, "--output", options->output));
  MILL_CHECK(mill_file_roles_write(roles, "--models", options->models));
  MILL_CHECK(mill_file_roles_write(roles, "--log", options->log));
  MILL_CHECK(mill_file_roles_write(roles, "--input-table", options->input_table));
  MILL_CHECK(mill_file_roles_write(roles, options->status ? "--status" : "the status file",
                                   setup->status_path));
  MILL_CHECK(mill_file_roles_write(roles, options->stop_file ? "--stop-file" : "the stop file",
                                   setup->stop_file));
  MILL_CHECK(
      mill_refuse_data(setup->stop_file, options->stop_file ? "--stop-file" : "the stop file"));
  if (options->log)
    MILL_CHECK(mill_log_refuse_other(options->log));
  if (options->input_table)
    MILL_CHECK(mill_input_table_check(options->input_table));
  if (options->input_table && !options->plan)
    MILL_CHECK(mill_input_table_check_output(options->input_table));
  if (options->input_table && setup->config.join_by_name)
    return MILL_ERROR(MILL_ERR_USAGE, "--input-table lists files one by one, but join_by_name "
                                      "joins rows of several files: use only one of them");
  for (int i = 0; i < setup->config.n_template_lib; i++)
    MILL_CHECK(mill_file_roles_read(roles, "the library", setup->config.template_lib[i]));
  MILL_CHECK(mill_file_roles_read(roles, "--config", options->config));
  MILL_CHECK(mill_file_roles_read(roles, "--catalog", options->catalog));
  MILL_CHECK(mill_file_roles_read(roles, "--object-file", options->object_file));
  MILL_CHECK(mill_file_roles_read(roles, "--numbers-file", options->numbers_file));
  MILL_CHECK(mill_file_roles_read(roles, "the table to start from", setup->config.start));
  MILL_CHECK(mill_file_roles_read(roles, "the table of priors", setup->config.prior_table));
  MILL_CHECK(
      mill_file_roles_read(roles, "the components of the sky", setup->config.sky_components));
  MILL_CHECK(mill_file_roles_read(roles, "the redrock file", setup->config.select.redrock_file));
  for (int i = 0; i < options->n_input; i++)
    MILL_CHECK(mill_file_roles_read(roles, "the input", options->input[i]));
  return MILL_OK;
}

/* Rank 0: check all output paths before any file is made and before hours of indexing inputs. */
static int check_outputs(const mill_fit_call *call, mill_fit_setup *setup)
{
  const mill_fit_options *options = call->options;
  MILL_CHECK(check_roles(call, setup));
  MILL_CHECK(mill_board_check_path(setup->status_path));
  MILL_CHECK(mill_check_output(options->output, "output"));
  MILL_CHECK(mill_refuse_new(options->output, "output")); /* OLD.new is for --overwrite of OLD */
  if (options->models) {
    MILL_CHECK(mill_check_output(options->models, "models"));
    MILL_CHECK(mill_refuse_new(options->models, "models"));
  }
  if (options->overwrite)
    MILL_CHECK(mill_refuse_foreign(options->output, "--output", "starmill result"));
  if (options->overwrite && options->models)
    MILL_CHECK(mill_refuse_foreign(options->models, "--models", "starmill models"));
  return MILL_OK;
}

static int watch_stops(const mill_fit_call *call, mill_fit_setup *setup)
{
  int err = MILL_OK;
  const int is_fit = !call->observer && !call->options->plan;
  if (is_fit && call->mpi->rank == 0)
    err = mill_stop_file_absent(setup->stop_file);
  MILL_STEP(mill_stop_watch_start(call->mpi, is_fit ? setup->stop_file : NULL,
                                  setup->running.time_limit_s, call->start_wall_s, &setup->stop));
  return mill_mpi_agree(call->mpi, err);
}

/* Rank 0 checks the outputs, and reads each file before other ranks: a fault is reported once. */
int mill_fit_set_up(const mill_fit_call *call, mill_fit_setup *setup)
{
  const mill_config *config = &setup->config;
  const char *library = config->template_lib[0];
  loading outputs = {call, setup, check_outputs, call->options->output, "looking at what is there"},
          libraries = {call, setup, load_libraries, library, "reading the library"},
          arms = {call, setup, bind_libraries, library, "cutting its arms"},
          start = {call, setup, load_start, config->start, "reading the table to start from"},
          priors = {call, setup, load_priors, config->prior_table, "reading the table of priors"};
  int code = mill_stop_signal_catch();
  if (code == MILL_OK && call->mpi->rank == 0)
    code = load_watched(&outputs);
  MILL_CHECK(mill_mpi_agree(call->mpi, code));
  code =
      mill_log_open(call->mpi->rank, call->mpi->size, mill_log_level_from_name(config->log_level),
                    call->options->plan ? NULL : call->options->log);
  MILL_CHECK(mill_mpi_agree(call->mpi, code));
  MILL_CHECK(watch_stops(call, setup));
  MILL_CHECK(mill_mpi_rank0_first(call->mpi, load_watched, &libraries));
  MILL_CHECK(choose_cameras(call, setup));
  MILL_CHECK(mill_mpi_rank0_first(call->mpi, load_watched, &arms));
  MILL_CHECK(mill_mpi_rank0_first(call->mpi, load_watched, &start));
  MILL_CHECK(mill_mpi_rank0_first(call->mpi, load_watched, &priors));
  return mill_fit_same_settings(call->mpi, config, &setup->lib);
}

int mill_fit_load_config(const mill_fit_call *call, mill_fit_setup *setup)
{
  const char *path = call->options->config;
  loading all = {call, setup, load_config, path ? path : "what the options name", "reading it"};
  return mill_mpi_rank0_first(call->mpi, load_watched, &all);
}

void mill_fit_setup_clear(mill_fit_setup *setup)
{
  mill_start_table_free(setup->start);
  mill_prior_table_free(setup->priors);
  for (int i = 0; i < MILL_MAX_LIBRARY; i++)
    mill_library_clear(&setup->library[i]);
  mill_config_clear(&setup->config);
}
