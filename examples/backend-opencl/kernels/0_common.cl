// Before this: T, the dtype of the program; T16, 16 of them; BITS, an unsigned integer of its size;
// T_MAX, T_MIN; IS_BOOL, IS_INT, IS_FLOAT, IS_WIDE (8 bytes), HAS_FP64.
#define MAX_DIMS 8
typedef struct {  // twin of rbcl::Space
  long n;
  int ndim, reserved;
  long shape[MAX_DIMS];
  long strides[4][MAX_DIMS];
} Space;

// Declare p0, ... : places of position `i` in the views of `space`.
#define WALK(space, i, STEPS)                          \
  {                                                    \
    long rest = (i);                                   \
    for (int d = (space).ndim - 1; d > 0; --d) {       \
      const long above = rest / (space).shape[d];      \
      const long at = rest - above * (space).shape[d]; \
      rest = above;                                    \
      STEPS(space, at)                                 \
    }                                                  \
    const int d = 0;                                   \
    const long at = rest;                              \
    STEPS(space, at)                                   \
  }
#define STEPS1(space, at) p0 += at * (space).strides[0][d];
#define STEPS2(space, at) STEPS1(space, at) p1 += at * (space).strides[1][d];
#define STEPS3(space, at) STEPS2(space, at) p2 += at * (space).strides[2][d];
#define STEPS4(space, at) STEPS3(space, at) p3 += at * (space).strides[3][d];
#define PLACES1(space, i) \
  long p0 = 0;            \
  WALK(space, i, STEPS1)
#define PLACES2(space, i) \
  long p0 = 0, p1 = 0;    \
  WALK(space, i, STEPS2)
#define PLACES3(space, i)      \
  long p0 = 0, p1 = 0, p2 = 0; \
  WALK(space, i, STEPS3)
#define PLACES4(space, i)              \
  long p0 = 0, p1 = 0, p2 = 0, p3 = 0; \
  WALK(space, i, STEPS4)

#if IS_FLOAT
#define IS_NAN(x) ((x) != (x))
#else
#define IS_NAN(x) 0
#endif

#if IS_BOOL
#define ADD(a, b) ((a) | (b))
#define MUL(a, b) ((a) & (b))
#define NOT(a) (!(a))
#else
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define NOT(a) (~(a))
#endif

#if IS_FLOAT
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ADD(c, MUL(a, b))
#endif

// The first index out of range is kept for the next synchronisation.
void note_fault(__global int* fault, int number) {
  atomic_cmpxchg((volatile __global int*)fault, 0, number);
}
