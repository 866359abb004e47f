/** The vectors of a GPU: numbers.  Included by kernels/math/vector.h, which explains the names. */
#ifndef MILL_CUDA_VECTOR_H
#define MILL_CUDA_VECTOR_H

typedef float mill_vec_f32;
typedef double mill_vec_f64;
enum { MILL_VEC_N_F32 = 1, MILL_VEC_N_F64 = 1, MILL_CONVOLVE_VECS = 1 };
#define MILL_VEC_WIDEN(p) ((double)*(p))
/* of a copy whose alignment it does not see nvcc makes loads of single bytes */
#define MILL_LOAD_PAIR(to, from) ((to)[0] = (from)[0], (to)[1] = (from)[1])
#define MILL_INLINE              static __device__ __forceinline__
#define MILL_HD_INLINE           MILL_HD static __forceinline__

#endif
