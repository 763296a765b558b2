// Vectors of trajectories for the C of c_source.py: one double, integer or truth value for each.
#include <math.h>

#define WIDTH (__BIGGEST_ALIGNMENT__ / 8)
#define INLINE static inline __attribute__((always_inline))
#define EACH for (int k = 0; k < WIDTH; k++)

typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef long ints __attribute__((vector_size(8 * WIDTH)));  // and -1 or 0 for true or false
typedef struct { vec sin, cos; } pair;

INLINE vec all(double x) { return x - (vec){0}; }  // keeps the sign of -0.0
INLINE ints all_ints(long x) { return x - (ints){0}; }
INLINE vec number(ints x) { return __builtin_convertvector(x, vec); }
INLINE ints choose_ints(ints which, ints yes, ints no) { return (yes & which) | (no & ~which); }
INLINE vec choose(ints which, vec yes, vec no)
{
  return (vec)choose_ints(which, (ints)yes, (ints)no);
}
INLINE vec absolute(vec x) { return (vec)((ints)x & 0x7fffffffffffffff); }
INLINE vec larger(vec x, vec y) { return choose((x > y) | (x != x), x, y); }
INLINE vec smaller(vec x, vec y) { return choose((x < y) | (x != x), x, y); }
INLINE vec root(vec x) { EACH x[k] = sqrt(x[k]); return x; }
INLINE int some(ints x) { long y = 0; EACH y |= x[k]; return y != 0; }

// The last group of a batch repeats the last trajectory, and stores it once.
INLINE vec load(const double *x, long stride, long first, long size)
{
  vec y;
  EACH y[k] = x[(first + k < size ? first + k : size - 1) * stride];
  return y;
}
INLINE void store(double *x, long stride, long first, long size, vec y)
{
  for (int k = 0; k < WIDTH && first + k < size; k++) x[(first + k) * stride] = y[k];
}

INLINE vec fused(vec x, vec y, vec z) { EACH z[k] = fma(x[k], y[k], z[k]); return z; }
INLINE vec turned(vec x, ints quarters)
{
  return (vec)((ints)x ^ (quarters << 62 & all_ints(1L << 63)));
}
INLINE pair sine_and_cosine(vec x)  // as in jaxmech.compiler.backends.llvm.trigonometry
{
  vec raised = fused(x, all(M_2_PI), all(LARGE)), k = raised - all(LARGE), r = x;
  r = fused(k, all(-PART0), r);
  r = fused(k, all(-PART1), r);
  r = fused(k, all(-PART2), r);
  vec z = r * r;
  vec sine = r + r * z * SINE, cosine = 1 - 0.5 * z + z * z * COSINE;
  ints quarters = (ints)raised, odd = (quarters & 1) != 0;
  vec s = choose(odd, cosine, sine), c = choose(odd, sine, cosine);
  return (pair){turned(s, quarters), turned(c, quarters + 1)};
}
