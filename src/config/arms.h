/* SPDX-License-Identifier: BSD-3-Clause */
/** Arms: their settings in the configuration, and a library's arms cut to these settings. */
#pragma once

#include "src/config/config.h"

/** Return the index in config->arm of the named arm; -1: not configured. */
int mill_config_find_arm(const mill_config *config, const char *arm);
/** Return an arm's settings: its entry in config->arm, else defaults that use all its pixels.
 *  An arm without its own resolving power gets config->resolving_power. */
mill_arm_choice mill_config_arm(const mill_config *config, const char *arm);
/** Do the settings give a width of the line-spread function? */
int mill_arm_has_width(const mill_arm_choice *choice);

/** Use the arms named [n] only, with their settings in the configuration. */
void mill_config_name_arms(mill_config *config, const char (*name)[MILL_MAX_NAME], int n);

/** Cut a library's arms to their configured ranges, widened by the limits of velocity and v sin i,
 *  and thin the arms to their sampling.  If the library lacks the configured arms, they
 *  replace its arms: each is cut from the library's arm that covers most of the range.  Call it
 *  before mill_config_bind, which refuses unknown names.  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_config_cut_arms(const mill_config *config, mill_library *lib);

/** May the cameras of the inputs' format serve as arms?  Yes if no arm is configured, or if every
 *  configured arm is unknown to the library and has no range. */
int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib);

/** Turn the cameras [n] of a format into arms if the library covers them (mill_config_cut_arms).
 *  If arms are configured, take only cameras with an arm's name, with the settings of this arm.
 *  An arm's own width replaces its camera's, as does resolving_power with `lsf: resolving_power`.
 *
 *  are_channels  each camera is a channel of the same name
 *
 *  Changes nothing if mill_config_lacks_ranges returns 0, if an arm of the library has a camera's
 *  name, or if the library has several arms and a camera extends beyond its arm.
 *  MILL_ERR_CONFIG: a configured arm is none of the cameras that the library covers. */
int mill_config_take_cameras(const mill_library *lib, const char *format,
                             const mill_arm_choice *camera, int n, int are_channels,
                             mill_config *config);

/** Choose the sampling of arms without a configured sampling, for mill_config_cut_arms.  It is the
 *  largest, up to MILL_MAX_SAMPLING, that the narrowest line-spread function allows with all n_lib
 *  libraries (docs/science/numerics.md, "Coarser grids"). */
void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config);

/** Narrow each arm of lib to the wavelengths that `other` covers too; the arrays and the emulators
 *  stay as they are.  MILL_ERR_CONFIG: an arm has no wavelengths in common. */
int mill_arms_in_common(const mill_library *other, mill_library *lib);

/** Set wanted [lib->n_arm]: 1 for configured arms, else 0.  Without configured arms all are 1. */
void mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted);
