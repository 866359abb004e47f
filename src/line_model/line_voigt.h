/** Voigt function of the line model. */
#ifndef MILL_LINE_VOIGT_H
#define MILL_LINE_VOIGT_H

/** H(a, v) = Re w(v + i a) in float32, for 0 < a <= 6 and |v| <= 6 + 4 a: within
 *  1e-4 of its value for a >= 0.03, within 4e-6 / a below.
 *
 *  A rational function of a - i v like that of Hui, Armstrong & Wray (1978, JQSRT 19,
 *  509), with one more term and fitted for the relative error of the real part, which
 *  the wings of strong lines need.  Written out, so that loops over it vectorise. */
static inline float mill_line_voigt(float a, float v)
{
  float pr = 5.64189414e-01f, pi = 0.0f, qr = a + 1.10572940e+01f, qi = -v, t;
#define MILL_LINE_HORNER(re, im, coefficient)                                                      \
  t = re * a + im * v + coefficient;                                                               \
  im = im * a - re * v;                                                                            \
  re = t
  MILL_LINE_HORNER(pr, pi, 6.23841875e+00f);
  MILL_LINE_HORNER(pr, pi, 3.76531296e+01f);
  MILL_LINE_HORNER(pr, pi, 1.43936219e+02f);
  MILL_LINE_HORNER(pr, pi, 3.72064473e+02f);
  MILL_LINE_HORNER(pr, pi, 6.43709517e+02f);
  MILL_LINE_HORNER(pr, pi, 6.95394705e+02f);
  MILL_LINE_HORNER(pr, pi, 3.73495125e+02f);
  MILL_LINE_HORNER(qr, qi, 6.72385435e+01f);
  MILL_LINE_HORNER(qr, qi, 2.60647533e+02f);
  MILL_LINE_HORNER(qr, qi, 6.92346512e+02f);
  MILL_LINE_HORNER(qr, qi, 1.26290598e+03f);
  MILL_LINE_HORNER(qr, qi, 1.53057115e+03f);
  MILL_LINE_HORNER(qr, qi, 1.11676810e+03f);
  MILL_LINE_HORNER(qr, qi, 3.73512799e+02f);
#undef MILL_LINE_HORNER
  return (pr * qr + pi * qi) / (qr * qr + qi * qi);
}

#endif
