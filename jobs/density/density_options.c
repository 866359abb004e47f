#include "jobs/density/density_options.h"

#include <stdlib.h>
#include <string.h>

#include "io/particles/map_file.h"
#include "jobs/density/density.h"
#include "jobs/options/option_table.h"
#include "kernels/base/error.h"
#include "src/ranks/mpi_context.h"
#include "src/system/file_roles.h"

#define AT(member)  MILL_AT(mill_density_options, member)
#define PAIR(which) AT(low[which]), .offset2 = offsetof(mill_density_options, high[which])

static int take_bandwidth(const mill_option *row, const char *text, void *base)
{
  mill_density_options *o = base;
  static const char *const rule[] = {"scott", "silverman"};
  for (int k = 0; k < 2; k++)
    if (strcmp(text, rule[k]) == 0) {
      o->rule = k;
      return MILL_OK;
    }
  o->rule = MILL_WIDTH_GIVEN;
  const char *at = text;
  for (o->n_bandwidth = 0; o->n_bandwidth < 2; at++) {
    char *end;
    const double x = strtod(at, &end);
    if (end == at || !(x > 0 && x < 1e300))
      break;
    o->bandwidth[o->n_bandwidth++] = x;
    at = end;
    if (*at != ',')
      break;
  }
  if (o->n_bandwidth == 0 || *at != '\0')
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--%s takes scott, silverman, two numbers above 0 with a comma (of a sky map one, in "
        "degrees), not '%s'",
        row->name, text);
  return MILL_OK;
}

static const mill_option_table table = {
    "starmill density",
    "usage: starmill density CATALOG... --output MAP.h5|MAP.fits [options]\n"
    "\n"
    "Map the rows of catalogs by Gaussian kernel density: results of starmill fit, or other\n"
    "HDF5 files and FITS tables with columns of numbers.\n"
    "\n",
    "\n"
    "Exit status: 0 done, 2 usage, 3 a catalog cannot be read, has no such column or no row\n"
    "is left, 4 the map cannot be written.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .help = "the map: HDF5 or FITS by its name's end"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite), .help = "replace it when it is there"},
        {.name = "what is drawn"},
        {"map", MILL_OPTION_CHOICE, AT(kind),
         .words = (const char *const[]){"kiel", "feh-vrad", "sky", NULL},
         .help = "LOGG against TEFF, both backwards; FEH against VRAD; rows on the sky"},
        {"x", MILL_OPTION_TEXT, AT(column[0]), .argument = "COLUMN",
         .help = "the column along x; of a sky map right ascension"},
        {"y", MILL_OPTION_TEXT, AT(column[1]), .argument = "COLUMN",
         .help = "the column along y; of a sky map declination"},
        {"x-range", MILL_OPTION_PAIR, PAIR(0), .argument = "LOW,HIGH",
         .help = "edges of the map (default: the rows, and three bandwidths more; sky 0,360)"},
        {"y-range", MILL_OPTION_PAIR, PAIR(1), .argument = "LOW,HIGH",
         .help = "the same along y (sky -90,90)"},
        {"x-cells", MILL_OPTION_COUNT, AT(n_cell[0]), .min = 2, .max = MILL_PARTICLE_MAX_GRID,
         .help = "cells along x (default 500; sky 720)"},
        {"y-cells", MILL_OPTION_COUNT, AT(n_cell[1]), .min = 2, .max = MILL_PARTICLE_MAX_GRID,
         .help = "cells along y (default 500; sky 360)"},
        {"reverse-x", MILL_OPTION_FLAG, AT(reverse[0]), .help = "draw x backwards"},
        {"reverse-y", MILL_OPTION_FLAG, AT(reverse[1]), .help = "draw y backwards"},
        {"all", MILL_OPTION_FLAG, AT(all),
         .help = "rows that are not good too (default: STATUS 1 and RVS_WARN 0, where the "
                 "catalog has them)"},
        {.name = "the kernel"},
        {"bandwidth", MILL_OPTION_OTHER, AT(rule), .argument = "B", .take = take_bandwidth,
         .help = "scott (default), silverman, or its standard deviations: X,Y in the units of the "
                 "columns; one in degrees for a sky map"},
        {"covariance", MILL_OPTION_FLAG, AT(covariance),
         .help = "the kernel has the covariance of the rows, not their variances alone; the sum "
                 "is exact then"},
        {"adaptive", MILL_OPTION_FLAG, AT(adaptive),
         .help = "local widths, as the root of the density that a first map gives (Abramson)"},
        {"form", MILL_OPTION_CHOICE, AT(how),
         .words = (const char *const[]){"exact", "binned", "cut", "auto", NULL},
         .help = "the sum over all rows; over nodes with a bound on the error, which the map "
                 "states; kernels that end at seven widths (default auto: exact for few rows)"},
        {.name = "running"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 0, .max = 4096,
         .help = "0: the cores that this process may use"},
        {"quiet", MILL_OPTION_FLAG, AT(quiet), .help = "print no summary"},
        MILL_OPTION_HELP(mill_density_options),
        {0}}};

/* What a kind of map means for columns and axes. */
static int settle_kind(mill_density_options *o)
{
  static const char *const column[][2] = {
      [MILL_DENSITY_KIEL] = {"TEFF", "LOGG"}, [MILL_DENSITY_FEH_VRAD] = {"VRAD", "FEH"}};
  o->is_sphere = o->kind == MILL_DENSITY_SKY;
  if (!o->column[0] != !o->column[1])
    return MILL_ERROR(MILL_ERR_USAGE, "--x and --y go together: give both or neither");
  if (o->kind < 0 && !o->column[0])
    return MILL_ERROR(MILL_ERR_USAGE,
                      "nothing to draw: give --map, or --x and --y with names of columns; "
                      "see starmill density --help");
  if ((o->kind == MILL_DENSITY_KIEL || o->kind == MILL_DENSITY_FEH_VRAD) && o->column[0])
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--x and --y mean nothing with --map kiel or feh-vrad, which have "
                      "their columns: leave them or --map");
  for (int a = 0; a < 2; a++) {
    if (o->kind == MILL_DENSITY_KIEL || o->kind == MILL_DENSITY_FEH_VRAD)
      o->column[a] = column[o->kind][a];
    if (o->kind == MILL_DENSITY_KIEL || (o->is_sphere && a == 0))
      o->reverse[a] = !o->reverse[a]; /* east is left */
    if (o->n_cell[a] == 0)
      o->n_cell[a] = !o->is_sphere ? 500 : (a == 0 ? 720 : 360);
    if (o->is_sphere && o->low[a] == 0 && o->high[a] == 0) {
      o->low[a] = a == 0 ? 0 : -90;
      o->high[a] = a == 0 ? 360 : 90;
    }
  }
  return MILL_OK;
}

static int check_kernel(const mill_density_options *o)
{
  if (o->is_sphere && (o->low[1] < -90 || o->high[1] > 90 || o->high[0] - o->low[0] > 360))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "a sky map goes over 360 degrees of right ascension at most, and "
                      "declinations from -90 to 90: change --x-range or --y-range");
  if (o->rule == MILL_WIDTH_GIVEN && o->n_bandwidth != (o->is_sphere ? 1 : 2))
    return MILL_ERROR(MILL_ERR_USAGE, "--bandwidth: give %s",
                      o->is_sphere ? "one number for a sky map, in degrees"
                                   : "two numbers, along x and y, with a comma");
  if (o->is_sphere && o->rule == MILL_WIDTH_GIVEN && o->bandwidth[0] > 60)
    return MILL_ERROR(MILL_ERR_USAGE, "--bandwidth %g: a sky map takes up to 60 degrees",
                      o->bandwidth[0]);
  if (o->covariance && (o->is_sphere || o->adaptive || o->rule == MILL_WIDTH_GIVEN))
    return MILL_ERROR(MILL_ERR_USAGE,
                      "--covariance goes with two columns and a rule for the bandwidth, "
                      "without --adaptive");
  if (o->covariance && o->how != MILL_HOW_AUTO && o->how != MILL_HOW_EXACT)
    return MILL_ERROR(MILL_ERR_USAGE, "--covariance goes with --form exact");
  if (o->adaptive && o->how != MILL_HOW_AUTO && o->how != MILL_HOW_CUT)
    return MILL_ERROR(MILL_ERR_USAGE, "--adaptive goes with --form cut");
  return MILL_OK;
}

int mill_density_parse(int argc, char **argv, mill_density_options *o)
{
  int first = 0;
  mill_file_roles roles = {0};
  *o = (mill_density_options){.kind = -1, .how = MILL_HOW_AUTO};
  MILL_CHECK(mill_option_parse(&table, argc, argv, o, NULL, &first));
  if (o->help)
    return MILL_OK;
  o->n_input = argc - first;
  o->input = argv + first;
  if (o->n_input < 1)
    return MILL_ERROR(MILL_ERR_USAGE, "no catalogs: name one or more; see starmill density --help");
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no output: give --output MAP.h5 or MAP.fits; see starmill density "
                      "--help");
  MILL_CHECK(settle_kind(o));
  MILL_CHECK(check_kernel(o));
  MILL_CHECK(mill_mpi_alone_threads(&o->n_thread));
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  for (int i = 0; i < o->n_input; i++)
    MILL_CHECK(mill_file_roles_read(&roles, "a catalog", o->input[i]));
  return mill_map_file_check(o->output, o->overwrite);
}

const mill_option_help mill_density_help = {&table, NULL};
