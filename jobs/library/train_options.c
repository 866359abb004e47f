/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/train_options.h"

#include <stdlib.h>

#include "src/run/backend_choice.h"

/* Bits of mill_option.tasks: the emulators that an option applies to. */
enum {
  NETWORK = 1 << MILL_TRAIN_NETWORK,
  RADIAL = 1 << MILL_TRAIN_RADIAL,
  GRIDS = 1 << MILL_TRAIN_SPLINES | 1 << MILL_TRAIN_LINEAR,
  FUNCTIONS = RADIAL | GRIDS
};

static const char *const emulator_words[] = {"network", "radial", "splines", "linear", NULL};
static const char *const product_words[] = {"float32", "tf32", "bf16", NULL};
static_assert(MILL_TRAIN_COSINE == 0 && MILL_TRAIN_PLATEAU == 1 && MILL_TRAIN_L2 == 0 &&
                  MILL_TRAIN_L1 == 1 && MILL_TRAIN_HUBER == 2 && MILL_TRAIN_NOISE == 0 &&
                  MILL_TRAIN_SPREAD == 1 && MILL_TRAIN_COMPONENTS == 0 && MILL_TRAIN_PIXELS == 1 &&
                  MILL_TRAIN_FLOAT32 == 0 && MILL_TRAIN_TF32 == 1 && MILL_TRAIN_BF16 == 2,
              "order of the words");

/* Read the neurons of the hidden layers, as 256,256,200. */
static int take_hidden(const mill_option *row, const char *text, void *base)
{
  mill_train_settings *net = &((mill_train_options *)base)->arm.net;
  int n = 0;
  for (const char *at = text; n < MILL_MAX_LAYER - 1; at++) {
    char *end = NULL;
    const long width = strtol(at, &end, 10);
    if (end == at || width < 1 || width > MILL_MAX_WIDTH || (*end != ',' && *end != '\0'))
      break;
    net->width[n++] = (int)width;
    at = end;
    if (*end == '\0') {
      net->n_hidden = n;
      return MILL_OK;
    }
  }
  return MILL_ERROR(MILL_ERR_USAGE,
                    "--%s %s: give the number of neurons (1 to %d) of each of at most %d hidden "
                    "layers, e.g. 256,256,200",
                    row->name, text, MILL_MAX_WIDTH, MILL_MAX_LAYER - 1);
}

#define AT(member)  MILL_AT(mill_train_options, member)
#define NET(member) AT(arm.net.member)
const mill_option_table mill_library_train_table = {
    "starmill library train",
    "usage: starmill library train --output LIB.h5 [options] GRID.h5\n"
    "\n"
    "train makes a library from the spectra of a grid file (library build): a network for each "
    "arm,\n"
    "trained by all ranks, or functions of the labels.  The same command continues a network that\n"
    "was stopped.\n"
    "\n",
    "\n"
    "Runs python3, or the Python that the environment variable STARMILL_PYTHON names; it needs\n"
    "numpy, scipy, h5py and cffi.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .argument = "LIB.h5",
         .help = "the library to write"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace LIB.h5 if it exists"},
        {"emulator", MILL_OPTION_CHOICE, AT(emulator), .words = emulator_words,
         .help = "emulator of the spectra: a network; radial functions through scattered labels; "
                 "cubic splines or linear interpolation over a grid of labels"},
        {"left-out", MILL_OPTION_REAL, AT(left_out), .max = 0.5, .argument = "PART",
         .help = "fraction of models that measure the library and do not train it (default 0.1). "
                 "Then radial, splines and linear emulators are made anew from all models. With 0 "
                 "there is no report, and a network's last layer is not solved by least squares"},
        {"seed", MILL_OPTION_SEED, AT(seed), .argument = "N",
         .help = "seed of the choice of models to leave out, and of a network's first weights and "
                 "batches (default 1)"},
        {"components", MILL_OPTION_COUNT, AT(n_component), .min = 1, .max = MILL_MAX_WIDTH,
         .help = "principal components per arm. Default for network: enough to leave 1e-8 of the "
                 "variance, at most 256; for radial and splines: 128; for linear: enough to leave "
                 "each model an rms residual of 1e-5, at most 1024"},
        {"model-error", MILL_OPTION_COUNT, AT(n_error), .max = MILL_MAX_COMPONENT, .argument = "N",
         .help = "store the templates' errors, measured on the models left out, for use by fits: N "
                 "principal components and the rms of the rest (default: none)"},
        {"guess-templates", MILL_OPTION_COUNT, AT(n_guess), .min = 1, .max = 10000,
         .help = "templates of the initial guess (default 300)"},
        {"hulls", MILL_OPTION_CHOICE, AT(hulls), .words = MILL_WORDS("pairs", "whole"),
         .help = "hulls that bound the labels in fits: a hull for each pair of labels, or one hull "
                 "over all labels"},
        {"unfinished", MILL_OPTION_FLAG, AT(unfinished), .help = "use an unfinished grid file"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 1, .max = 4096,
         .help = "threads per rank (default: its share of the cores); the result depends on them "
                 "by rounding at most"},
        MILL_OPTION_HELP(mill_train_options),
        {.name = "network"},
        {"hidden", MILL_OPTION_OTHER, .take = take_hidden, .argument = "N,N,...", .tasks = NETWORK,
         .help = "neurons of the hidden layers (default 256,256,200)"},
        {"epochs", MILL_OPTION_COUNT, NET(n_epoch), .min = 1, .max = 10000000, .tasks = NETWORK,
         .help = "passes over all models (default 400)"},
        {"batch", MILL_OPTION_COUNT, NET(batch), .min = 1, .max = 1 << 20, .tasks = NETWORK,
         .help = "models per step, over all ranks (default 64)"},
        {"rate", MILL_OPTION_REAL, NET(rate), .min = MILL_ABOVE_0, .max = 0.999, .tasks = NETWORK,
         .help = "initial learning rate (default 0.005)"},
        {"least-rate", MILL_OPTION_REAL, NET(least_rate), .max = 0.999, .tasks = NETWORK,
         .help = "final learning rate (default 1e-6)"},
        {"schedule", MILL_OPTION_CHOICE, NET(schedule), .words = MILL_WORDS("cosine", "plateau"),
         .tasks = NETWORK,
         .help = "decay of the rate: half a cosine over all epochs, or by --factor when the loss "
                 "of the models left out has not fallen for --patience epochs"},
        {"patience", MILL_OPTION_COUNT, NET(patience), .min = 1, .max = 1000000, .tasks = NETWORK,
         .help = "epochs that --schedule plateau waits for a lower loss (default 20)"},
        {"factor", MILL_OPTION_REAL, NET(factor), .min = 0.001, .max = 0.999, .tasks = NETWORK,
         .help = "--schedule plateau multiplies the rate by this (default 0.5)"},
        {"stop-after", MILL_OPTION_COUNT, NET(stop_after), .max = 10000000, .tasks = NETWORK,
         .help =
             "stop after this many epochs without a lower loss of the models left out; 0: never"},
        {"decay", MILL_OPTION_REAL, NET(decay), .max = 100, .tasks = NETWORK,
         .help = "decoupled weight decay (default 0)"},
        {"loss", MILL_OPTION_CHOICE, NET(loss), .words = MILL_WORDS("l2", "l1", "huber"),
         .tasks = NETWORK, .help = "loss of a pixel; l1 and huber need --last pixels"},
        {"huber", MILL_OPTION_REAL, NET(huber), .min = MILL_ABOVE_0, .max = DBL_MAX,
         .tasks = NETWORK,
         .help = "residual, in the unit of --unit, above which huber is linear (default 1)"},
        {"unit", MILL_OPTION_CHOICE, AT(arm.unit), .words = MILL_WORDS("noise", "spread"),
         .tasks = NETWORK,
         .help = "unit of residuals: the noise of a spectrum with the same S/N everywhere, or each "
                 "pixel's spread over the models"},
        {"sn", MILL_OPTION_REAL, AT(arm.sn), .min = MILL_ABOVE_0, .max = DBL_MAX, .tasks = NETWORK,
         .help = "S/N of --unit noise (default 100)"},
        {"linear-flux", MILL_OPTION_FLAG, AT(is_linear), .tasks = NETWORK,
         .help = "learn flux instead of its logarithm"},
        {"last", MILL_OPTION_CHOICE, AT(arm.last), .words = MILL_WORDS("components", "pixels"),
         .tasks = NETWORK,
         .help = "last layer: fixed principal components of the spectra, whose scores the network "
                 "learns; or weights of every pixel, which are trained too"},
        {"memory", MILL_OPTION_REAL, AT(arm.keep_gib), .max = DBL_MAX, .argument = "GIB",
         .tasks = NETWORK,
         .help = "with --last pixels: memory (GiB) that a rank may use for the spectra of an arm "
                 "(default 4); larger spectra are read from the file at every step"},
        {"backend", MILL_OPTION_CHOICE, AT(backend), .words = mill_backend_words, .tasks = NETWORK,
         .help = "device for components and gradients: the CPU, or a GPU for each rank, by cuBLAS "
                 "and cuSOLVER; auto: the GPU if starmill bench crossover --keep found it "
                 "faster for steps of this size, else the CPU"},
        {"products", MILL_OPTION_CHOICE, NET(precision), .words = product_words, .tasks = NETWORK,
         .help = "precision of the factors in matrix products on a GPU; sums are always float32. "
                 "Printed errors have this precision with --left-out 0, --loss l1 or --loss huber"},
        {"checkpoint", MILL_OPTION_TEXT, AT(checkpoint), .argument = "FILE", .tasks = NETWORK,
         .help = "checkpoint from which the same command continues (default LIB.h5.training); "
                 "removed at the end"},
        {"checkpoint-interval", MILL_OPTION_REAL, AT(interval_s), .max = DBL_MAX, .argument = "S",
         .tasks = NETWORK, .help = "seconds between checkpoints (default 60)"},
        {"stop-file", MILL_OPTION_TEXT, AT(stop_file), .argument = "FILE", .tasks = NETWORK,
         .help = "when this file appears, save and stop with exit status 75, as after SIGTERM "
                 "(default LIB.h5.stop)"},
        {.name = "radial, splines, linear"},
        {"gaps", MILL_OPTION_CHOICE, AT(gaps), .words = MILL_WORDS("refuse", "fill"),
         .tasks = GRIDS,
         .help =
             "nodes of the grid without a model: refuse them, or fill them from their neighbours"},
        {"smoothing", MILL_OPTION_REAL, AT(smoothing), .max = 1e8, .tasks = RADIAL,
         .help = "smoothing of radial functions (default 1e-8: they pass through the models); 0: "
                 "chosen by leave-one-out for each component"},
        {"degree", MILL_OPTION_COUNT, AT(degree), .min = 1, .max = 3, .tasks = RADIAL,
         .help = "degree of the polynomial added to the radial functions (default 2)"},
        {"validation", MILL_OPTION_TEXT, AT(validation), .argument = "GRID.h5", .tasks = FUNCTIONS,
         .help = "grid file whose models, with the same arms and other label values, measure the "
                 "library's errors; no model is left out"},
        {0}}};

/* Refuse options that belong to another emulator or would have no effect. */
static int check_needs(const mill_train_options *o, const char *const *text)
{
  const mill_option *row = mill_library_train_table.row;
  const mill_train_settings *net = &o->arm.net;
  const int plateau = net->schedule == MILL_TRAIN_PLATEAU, splits = !o->validation;
  const mill_option_need need[] = {
      {"huber", net->loss == MILL_TRAIN_HUBER, "without --loss huber"},
      {"patience", plateau, "without --schedule plateau"},
      {"factor", plateau, "without --schedule plateau"},
      {"sn", o->arm.unit == MILL_TRAIN_NOISE, "with --unit spread"},
      {"memory", o->arm.last == MILL_TRAIN_PIXELS, "without --last pixels"},
      {"left-out", splits, "with --validation"},
      {"seed", o->emulator == MILL_TRAIN_NETWORK || (splits && o->left_out > 0),
       "where nothing is left out (--left-out 0, --validation)"}};
  for (int i = 0; row[i].name; i++)
    if (text[i] && row[i].tasks && !(row[i].tasks & 1u << o->emulator))
      return MILL_ERROR(MILL_ERR_USAGE, "--%s does not apply to --emulator %s; see %s --help",
                        row[i].name, emulator_words[o->emulator], mill_library_train_table.command);
  return mill_option_check_needs(&mill_library_train_table, text, (int)(sizeof need / sizeof *need),
                                 need);
}

int mill_train_options_parse(int argc, char **argv, mill_train_options *o)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  *o = (mill_train_options){
      .n_error = -1, .n_guess = 300, .left_out = 0.1, .seed = 1, .interval_s = 60};
  mill_train_arm_settings_init(&o->arm);
  MILL_CHECK(mill_option_parse(&mill_library_train_table, argc, argv, o, text, &first));
  MILL_CHECK(check_needs(o, text));
  if (o->help)
    return MILL_OK;
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE, "library train needs --output LIB.h5");
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE, "library train takes one grid file, not %d", argc - first);
  o->input = argv[first];
  if (o->n_error >= 0 && !o->validation && !(o->left_out > 0))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--model-error is measured on models left out: give --left-out above 0 or "
                      "--validation");
  if (o->arm.net.precision != MILL_TRAIN_FLOAT32 && o->backend != MILL_WORD_CUDA)
    return MILL_ERROR(MILL_ERR_USAGE, "--products %s needs --backend cuda",
                      product_words[o->arm.net.precision]);
  o->arm.log_flux = !o->is_linear;
  o->arm.n_component = o->n_component;
  o->arm.net.seed = o->seed;
  return mill_train_arm_settings_check(&o->arm);
}
