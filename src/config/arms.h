/* SPDX-License-Identifier: BSD-3-Clause */
/** Arms: their settings in the configuration, and a library's arms cut to these settings. */
#ifndef MILL_ARMS_H
#define MILL_ARMS_H

#include "src/config/config.h"

/** Index in config->arm of the arm of that name; -1: not there. */
int mill_config_find_arm(const mill_config *config, const char *arm);
/** Settings of an arm: its entry in config->arm, else all pixels of the channel of its name.  An
 *  arm without a resolving power of its own gets the general one. */
mill_arm_choice mill_config_arm(const mill_config *config, const char *arm);
/** Do the settings give a width of the line-spread function? */
int mill_arm_has_width(const mill_arm_choice *choice);

/** Use the arms named [n] only, with their settings in the configuration. */
void mill_config_name_arms(mill_config *config, const char (*name)[MILL_MAX_NAME], int n);

/** Cut a library's arms to their configured ranges, plus what the limits of velocity and v sin i
 *  need, and thin them to their sampling.  If the configuration names other arms with ranges, each
 *  is cut from the library's arm with most of its range, and they replace the library's arms.  Call
 *  it after reading the library and before mill_config_bind, which refuses unknown names.
 *  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_config_cut_arms(const mill_config *config, mill_library *lib);

/** May the arms be cameras of the inputs' format?  Yes if the configuration names no arms, or only
 *  arms without ranges that the library does not have. */
int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib);

/** Take the cameras [n] of a format as arms, for mill_config_cut_arms; call it if
 *  mill_config_lacks_ranges.  Only cameras that the library covers are taken; if the configuration
 *  names arms, only these, with their settings.  Nothing changes if the library covers no camera,
 *  one of its arms has the name of a camera, a configured name is not that of a camera, or the
 *  library has several arms and none of them holds all of a camera.
 *
 *  are_channels  each camera is a channel of the same name */
void mill_config_take_cameras(const mill_library *lib, const char *format,
                              const mill_arm_choice *camera, int n, int are_channels,
                              mill_config *config);

/** Choose the sampling of arms that have none: every factor-th grid point of the libraries [n_lib],
 *  factor up to MILL_MAX_SAMPLING, as far as the least width of the line-spread function allows
 *  (docs/science/numerics.md, "Coarser grids").  The least width is that of the configuration or of
 *  the format's camera.  Call it before mill_config_cut_arms, which thins the arms. */
void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config);

/** Narrow lib's arms, which are borrowed, to the wavelengths that other covers too.
 *  MILL_ERR_CONFIG if an arm has no common wavelengths. */
int mill_arms_in_common(const mill_library *other, mill_library *lib);

/** wanted [lib->n_arm] out: 1 for each arm to fit.  MILL_ERR_CONFIG if a named arm is not in the
 *  library. */
int mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted);

#endif
