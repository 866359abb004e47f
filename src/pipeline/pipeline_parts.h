/* SPDX-License-Identifier: BSD-3-Clause */
/** Private declarations of the pipeline's files: crews, the held star, a run's stream. */
#pragma once

#include <pthread.h>

#include "src/pipeline/pipeline.h"
#include "src/pipeline/several.h"

/** Size of a slot's head: its first bytes, which hold the request and are sent to views. */
#define VIEW_HEAD_BYTES offsetof(mill_slot, is_held)

/** The held star, in the first slot, and its views: copies of the slot for other points. */
typedef struct mill_held {
  mill_star star;
  int is_there, is_ready;    /**< loaded; can be evaluated */
  int n_view, n_copied;      /**< views; views that are copies of this star's slot */
  int n_segment;             /**< room for segments */
  size_t n_vel, n_answer;    /**< numbers in a view's velocities and answers */
  mill_device_memory memory; /**< blocks of the views, velocities and answers */
  mill_slot **view;          /**< [n_view] */
  double *d_vel, *d_answer;
  mill_segment *d_segment; /**< segments of the first slot, in the backend's memory */
  mill_segment *segment;   /**< host copy of them */
  double *vel, *answer;    /**< host copies: [n_view][n_vel], [n_view][n_answer] */
  char *head;              /**< [n_view][VIEW_HEAD_BYTES] requests to upload */
  mill_upload *piece;      /**< [n_view + 1] */
  int *n_shared;           /**< [n_view] points of a view; they differ only in velocity */
} mill_held;

/** A library's device, as a crew uses it. */
typedef struct mill_seat {
  mill_device *device;
  mill_model *d_model;     /**< the library's model in the device's memory */
  mill_slot *const *bound; /**< slots that the device knows; NULL: none yet */
  int n_change;            /**< version of the model that the device has */
  int is_under_way;        /**< rounds are running */
  int has_remarked;        /**< the device's remark is logged */
} mill_seat;

/** A crew: neighbouring slots (all, or one thread's share) and the devices that fit their stars.
 *  No other crew uses these slots; data shared by crews need the mutex. */
typedef struct mill_crew {
  mill_seat seat[MILL_MAX_LIBRARY]; /**< [n_lib] */
  int first, n_slot;
  int n_usable;         /**< slots that may take a star: all, or fewer if memory was full */
  int *list;            /**< [n_slot] work space */
  int *done;            /**< [n_done] slots whose rows wait to be handed over */
  mill_fit_result *row; /**< [n_slot] their rows */
  int n_done;
} mill_crew;

/** Source and sink of a run. */
typedef struct mill_stream {
  mill_star_source source;
  mill_result_sink sink;
  void *source_context, *sink_context;
  int more;                /**< the source may have a star */
  int n_too_large;         /**< stars in succession that did not fit into memory */
  mill_star *waiting;      /**< a star for which there was no memory; NULL: none */
  mill_error_kept failure; /**< first failure of all crews */
} mill_stream;

struct mill_pipeline {
  const mill_backend *backend;
  mill_member member[MILL_MAX_LIBRARY];
  int n_lib;
  mill_slots slots;
  mill_contest *contest; /**< [n_slot]; NULL with one library */
  mill_held held;
  mill_crew all;             /**< all slots and threads */
  mill_crew *part;           /**< [n_part] one for each thread, if the backend has parts */
  int n_part;                /**< 0 or several */
  pthread_mutex_t mutex;     /**< guards what crews share, while they work apart */
  mill_stream stream;        /**< source and sink of a run */
  mill_posterior *posterior; /**< posterior of the row being handed over; NULL: not wanted */
  double load_s;             /**< CPU seconds of copying stars into slots */
};

/** Make the next bind give the devices work space for the star's longest segment. */
void mill_pipeline_fit_pixels(mill_pipeline *p, const mill_star *star);

/** Bind models and slots [n] to a crew's devices, unless nothing has changed. */
int mill_pipeline_bind(mill_pipeline *p, mill_crew *c, mill_slot *const *slot, int n);

/** Free the held star's views and their host memory. */
void mill_held_clear(mill_held *h);
