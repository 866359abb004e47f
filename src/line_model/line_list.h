/** The line model's list of atomic and molecular lines (where it comes from:
 *  docs/science/line-model.md; made by tools/make_line_list.py into src/line_model/line_list.inc).
 */
#ifndef MILL_LINE_LIST_H
#define MILL_LINE_LIST_H

#define MILL_LINE_CH 106 /**< species code of CH */

typedef struct mill_line {
  float wave_aa; /**< vacuum A: float32 has 1e-3 A at 10000 A, a hundredth of a pixel */
  short species; /**< 100 Z + charge: 2600 Fe I, 2601 Fe II; MILL_LINE_CH */
  float e_low_ev;
  float log_gf;
  float log_gamma6; /**< van der Waals width per hydrogen atom at 10,000 K, log10 rad cm3/s;
                         0: Unsoeld's approximation */
} mill_line;

/** Ascending in wavelength; hydrogen is not among them. */
extern const mill_line mill_line_list[];
extern const int mill_line_list_n;

#endif
