#include "src/line_model/line_list.h"

const mill_line mill_line_list[] = {
#include "src/line_model/line_list.inc" /* made by tools/make_line_list.py */
};

const int mill_line_list_n = (int)(sizeof mill_line_list / sizeof mill_line_list[0]);
