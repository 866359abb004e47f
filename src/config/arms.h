/* SPDX-License-Identifier: BSD-3-Clause */
/** Arms: what the configuration says of them, and a library's arms cut and thinned by it. */
#ifndef MILL_ARMS_H
#define MILL_ARMS_H

#include "src/config/config.h"

/** Index into config->arm of the library's arm of that name, -1 when it is not there. */
int mill_config_find_arm(const mill_config *config, const char *arm);
/** What the configuration says of an arm: of its own, else that it has all pixels of the channel of
 *  its name; resolving_power is the general one where it has none. */
mill_arm_choice mill_config_arm(const mill_config *config, const char *arm);
/** Do its settings give a line-spread function? */
int mill_arm_has_width(const mill_arm_choice *choice);

/** Name the arms [n] that are used, instead of those of the configuration, whose settings they
 *  keep. */
void mill_config_name_arms(mill_config *config, const char (*name)[MILL_MAX_NAME], int n);

/** Cut the library's arms that have a range to the grid points which this needs at the limits of
 *  velocity and v sin i, and replace its only arm by its parts, where the configuration names such:
 *  arms with a range and a name that the library lacks.  A part is an arm like any other.  To be
 *  called between reading a library and mill_config_bind, which refuses names that are left.
 *  MILL_ERR_CONFIG, MILL_ERR_MEMORY. */
int mill_config_cut_arms(const mill_config *config, mill_library *lib);

/** Has the library one arm, and the configuration no arms, or only names that the library lacks,
 *  without ranges?  Then they may be cameras. */
int mill_config_lacks_ranges(const mill_config *config, const mill_library *lib);

/** Take the cameras [n] of a format as arms, where mill_config_lacks_ranges, for
 *  mill_config_cut_arms: those that the library covers, and of them those that the configuration
 *  names, if any, with its settings.  Nothing changes if the library covers none, its arm bears a
 *  camera's name, or a name is no camera's.
 *
 *  are_channels  each camera has a channel of its name */
void mill_config_take_cameras(const mill_library *lib, const char *format,
                              const mill_arm_choice *camera, int n, int are_channels,
                              mill_config *config);

/** Let arms of the configuration have every second to MILL_MAX_SAMPLING-th grid point of the
 *  libraries [n_lib] where that is not known yet and their line-spread functions, of which the
 *  configuration or the format's camera knows a least width, are broad enough
 *  (docs/science/numerics.md, "Coarser grids").  Before mill_config_cut_arms, which does it. */
void mill_config_choose_sampling(const mill_library *lib, int n_lib, mill_config *config);

/** Narrow arms, whose wavelengths are borrowed, to those that another library has, too.
 *  MILL_ERR_CONFIG where there are none. */
int mill_arms_in_common(const mill_library *other, mill_library *lib);

/** wanted [lib->n_arm]: 1 for each arm of the library that is to be fitted.  MILL_ERR_CONFIG when
 *  the library lacks one that is named. */
int mill_config_arms(const mill_config *config, const mill_library *lib, int *wanted);

#endif
