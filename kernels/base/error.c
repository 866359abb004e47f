/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[MILL_ERROR_MESSAGE];
static _Thread_local char place[MILL_ERROR_PLACE];

static const struct {
  const char *text;
  int exit_status;
} table[] = {
#define ROW(code, exit_status, text) {text, exit_status},
    MILL_ERROR_LIST(ROW)
#undef ROW
};

const char *mill_error_text(int code)
{
  return code >= 0 && code < MILL_N_ERROR ? table[code].text : "unknown error";
}

int mill_error_exit_status(int code)
{
  return code >= 0 && code < MILL_N_ERROR ? table[code].exit_status : 70;
}

int mill_error_set(int code, const char *file, int line, const char *format, ...)
{
  /* build the text apart: its arguments may quote the old message */
  char text[sizeof message];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(message, text, sizeof message);
  const char *slash = strrchr(file, '/');
  snprintf(place, sizeof place, "%s:%d", slash ? slash + 1 : file, line);
  return code;
}

const char *mill_error_message(void)
{
  return message;
}

const char *mill_error_place(void)
{
  return place;
}

void mill_error_clear(void)
{
  message[0] = '\0';
  place[0] = '\0';
}

void mill_error_save(int code, mill_error_kept *kept)
{
  kept->code = code;
  memcpy(kept->message, message, sizeof message);
  memcpy(kept->place, place, sizeof place);
}

int mill_error_restore(const mill_error_kept *kept)
{
  memcpy(message, kept->message, sizeof message);
  memcpy(place, kept->place, sizeof place);
  return kept->code;
}
