/* SPDX-License-Identifier: BSD-3-Clause */
/** A file of one YAML document, read with limits on its length and nesting. */
#pragma once

struct yaml_document_s;

/** Callback that copies values of a document to base.  *line: line of an error; 0: unknown. */
typedef int mill_yaml_take(struct yaml_document_s *document, void *base, int *line);

/** Read the file at path and call take, unless the file is empty.  MILL_ERR_CONFIG with file and
 *  line, MILL_ERR_MEMORY, or take's code. */
int mill_yaml_read(const char *path, mill_yaml_take *take, void *base);
