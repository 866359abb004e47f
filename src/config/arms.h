/* SPDX-License-Identifier: BSD-3-Clause */
/** Arms: their settings in the configuration, and a library's arms cut to these settings. */
#pragma once

#include "src/config/config.h"

/** Return the index in config->arm of the named arm; -1: not configured. */
int mill_config_find_arm(const mill_config *config, const char *arm);
/** Return an arm's settings: its entry in config->arm, else defaults that use all its pixels.
 *  An arm without its own resolving power gets the general one. */
mill_arm_choice mill_config_arm(const mill_config *config, const char *arm);
/** Do the settings give a width of the line-spread function? */
int mill_arm_has_width(const mill_arm_choice *choice);

/** Use the arms named [n] only, with their settings in the configuration. */
void mill_config_name_arms(mill_config *config, const char (*name)[MILL_MAX_NAME], int n);

/** Cut a library's arms to their configured ranges, widened by the velocity and v sin i limits,
 *  and thin them to their sampling.  If the configuration names other arms with ranges, these
 *  replace the library's arms: each is cut from the library arm that covers most of its range.
 *  Call it after reading the library and before mill_config_bind, which refuses unknown names.
 *  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_config_cut_arms(const mill_config *config, mill_library *lib);

/** May the arms be cameras of the inputs' format?  Yes if every configured arm is unknown to the
 *  library and has no range, or if no arm is configured. */
int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib);

/** Take the cameras [n] of a format as arms, for mill_config_cut_arms; call it if
 *  mill_config_lacks_ranges.  Without configured arms, take all cameras that the library covers;
 *  else those that are configured, with their settings.  Change nothing if the library covers no
 *  camera, a configured name is not that of a covered camera, a library arm has a camera's name, or
 *  a camera extends beyond one of several library arms.
 *
 *  are_channels  each camera is a channel of the same name */
void mill_config_take_cameras(const mill_library *lib, const char *format,
                              const mill_arm_choice *camera, int n, int are_channels,
                              mill_config *config);

/** Choose the sampling of arms without a configured sampling: mill_config_cut_arms then keeps every
 *  sampling-th grid point of all n_lib libraries.  Take the largest, up to MILL_MAX_SAMPLING, that
 *  the narrowest line-spread function allows (docs/science/numerics.md, "Coarser grids").  The
 *  width of that function comes from the configuration or the format's camera. */
void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config);

/** Narrow the wavelengths of lib's arms, but not their emulators, to those that `other` covers.
 *  lib borrows its arrays.  MILL_ERR_CONFIG if an arm has no common wavelengths. */
int mill_arms_in_common(const mill_library *other, mill_library *lib);

/** Set wanted [lib->n_arm] to 1 for arms to fit.  MILL_ERR_CONFIG if lib lacks a configured arm. */
int mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted);
