/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of the pipeline share: crews of slots, the star that is held, a run's stream. */
#ifndef MILL_PIPELINE_PARTS_H
#define MILL_PIPELINE_PARTS_H

#include <pthread.h>

#include "kernels/base/error.h"
#include "src/pipeline/pipeline.h"
#include "src/pipeline/several.h"

/** Bytes uploaded to a view with a point: the question of a slot. */
#define VIEW_HEAD_BYTES offsetof(mill_slot, is_held)

/** The held star in the first slot, and copies of its slot. */
typedef struct mill_held {
  mill_star star;
  int is_there, is_ready;    /**< it is loaded; it can be evaluated */
  int n_view, n_copied;      /**< number of copies, and of those made */
  int n_segment;             /**< that there is room for */
  size_t n_vel, n_answer;    /**< numbers of a view's velocities and answers */
  mill_device_memory memory; /**< of the copies, their velocities and answers */
  mill_slot **view;          /**< [n_view] */
  double *d_vel, *d_answer;
  mill_segment *d_segment; /**< of the first slot, in the backend's memory */
  mill_segment *segment;   /**< the same here */
  double *vel, *answer;    /**< [n_view][n_vel], [n_view][n_answer] here */
  char *head;              /**< [n_view][VIEW_HEAD_BYTES] what goes up with a point */
  mill_upload *piece;      /**< [n_view + 1] */
  int *n_shared;           /**< [n_view] points that it answers, alike but for their velocity */
} mill_held;

/** A device that fits with one library. */
typedef struct mill_seat {
  mill_device *device;
  mill_model *d_model;     /**< the library's model in the device's memory */
  mill_slot *const *bound; /**< slots that the device knows; NULL: none yet */
  int n_change;            /**< version of the model that the device has */
  int is_under_way;        /**< rounds are */
  int has_remarked;        /**< the log has the device's remark */
} mill_seat;

/** Slots side by side and the devices that fit their stars: all slots, or the share of one thread.
 *  Only a crew uses its slots; it uses shared data under the pipeline's mutex. */
typedef struct mill_crew {
  mill_seat seat[MILL_MAX_LIBRARY]; /**< [n_lib] */
  int first, n_slot;
  int n_usable;         /**< slots that may take a star: all, fewer when memory is full */
  int *list;            /**< [n_slot] */
  int *done;            /**< [n_slot] slots whose rows wait to be handed over */
  mill_fit_result *row; /**< [n_slot] their rows */
  int n_done;
} mill_crew;

/** Source and sink of a run. */
typedef struct mill_stream {
  mill_star_source source;
  mill_result_sink sink;
  void *source_context, *sink_context;
  int more;                /**< the source may have a star */
  mill_star *waiting;      /**< a star for which there was no memory; NULL: none */
  mill_error_kept failure; /**< of a thread's crew, the first one */
} mill_stream;

struct mill_pipeline {
  const mill_backend *backend;
  mill_member member[MILL_MAX_LIBRARY];
  int n_lib;
  mill_slots slots;
  mill_contest *contest; /**< [n_slot] of the libraries, where there are several */
  mill_held held;
  mill_crew all;             /**< of all slots and threads */
  mill_crew *part;           /**< [n_part] of the threads, where the backend has parts */
  int n_part;                /**< 0 or several */
  pthread_mutex_t mutex;     /**< of everything here but crews, while parts are at work */
  mill_stream stream;        /**< of a run */
  mill_posterior *posterior; /**< of the row that is handed over; NULL: none is wanted */
  double load_s;             /**< CPU seconds of copying stars into slots */
};

/** Make room for the longest segment of a star in the devices' work space, at their next bind. */
void mill_pipeline_fit_pixels(mill_pipeline *p, const mill_star *star);

/** Bind the models and slots [n] to a crew's devices if they have changed. */
int mill_pipeline_bind(mill_pipeline *p, mill_crew *c, mill_slot *const *slot, int n);

/** Free what a held star has on the host. */
void mill_held_clear(mill_held *h);

#endif
