// Instructions of tensor cores, and what feeds them: copies to shared memory that run ahead, loads
// of 8 x 8 matrices of 16-bit floats, products of 16 x 8 x 16 by a warp. On the simulator they are
// functions that do what the PTX manual says of them, lane by lane.
#ifndef CUSIM
// 16 bytes, of which those behind the first `bytes` are zero.
template <class X>
__device__ inline void copy_ahead(X* shared, const X* from, int bytes) {
  const UInt32 to = (UInt32)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
// What was copied since the last end is one step.
__device__ inline void end_of_step() { asm volatile("cp.async.commit_group;"); }
// Until at most `Left` steps are under way.
template <int Left>
__device__ inline void wait_for_steps() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
// Four matrices; lane i names row i % 8 of matrix i / 8. A lane gets two elements that lie side by
// side of row lane / 4, or of column lane / 4 where Turned.
template <bool Turned, class X>
__device__ inline void load_matrices(UInt32 (&to)[4], const X* row) {
  const UInt32 from = (UInt32)__cvta_generic_to_shared(row);
  if (Turned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
  }
}
// sums += a b. A lane's sums: rows lane / 4 (first two) and 8 more, columns lane % 4 * 2 and 1
// more.
#define RB_MMA(dtype)                                                                 \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." dtype "." dtype               \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ inline void multiply_matrices(float (&sums)[4], const UInt32 (&a)[4], const UInt32* b,
                                         Half) {
  RB_MMA("f16");
}
__device__ inline void multiply_matrices(float (&sums)[4], const UInt32 (&a)[4], const UInt32* b,
                                         BFloat16) {
  RB_MMA("bf16");
}
// Of 16 x 8 x 8 in TF32: rounded floats.
__device__ inline UInt32 tf32_of(UInt32 bits) {
  UInt32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}
__device__ inline void multiply_matrices(float (&sums)[4], const UInt32 (&a)[4], const UInt32* b,
                                         float) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Two sums as neighbours of the next product's operand.
__device__ inline UInt32 pair_of(float low, float high, Half) {
  UInt32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline UInt32 pair_of(float low, float high, BFloat16) {
  UInt32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// exp with an error of few units of 2**-22, far below what 16 bits keep; 0 for minus infinity.
__device__ inline float exp_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}
#else
// What is copied ahead arrives when the thread waits for it.
template <class X>
__device__ inline void copy_ahead(X* shared, const X* from, int bytes) {
  cusim_copy_ahead(shared, from, bytes);
}
__device__ inline void end_of_step() { cusim_end_of_step(); }
template <int Left>
__device__ inline void wait_for_steps() {
  cusim_wait_for_steps(Left);
}
template <bool Turned, class X>
__device__ inline void load_matrices(UInt32 (&to)[4], const X* row) {
  cusim_matrix_row(row);
  for (int i = 0; i < 4; ++i) {
    UInt32 pair = 0;
    for (int half = 0; half < 2; ++half) {
      const int line = Turned ? RB_LANE % 4 * 2 + half : RB_LANE / 4;
      const int at = Turned ? RB_LANE / 4 : RB_LANE % 4 * 2 + half;
      const UInt16* there = (const UInt16*)__shfl_sync(0xffffffffu, (UInt64)row, 8 * i + line);
      pair |= (UInt32)there[at] << (16 * half);
    }
    to[i] = pair;
  }
}
template <class X>
__device__ inline float half_of(UInt64 pairs, int half) {
  X x = {(UInt16)(pairs >> (16 * half))};
  return widen(x);
}
__device__ inline UInt64 two_pairs(UInt32 low, UInt32 high, int lane) {
  return __shfl_sync(0xffffffffu, low | (UInt64)high << 32, lane);
}
template <class X>
__device__ inline void multiply_matrices(float (&sums)[4], const UInt32 (&a)[4], const UInt32* b,
                                         X) {
  const int lane = RB_LANE;
  for (int j = 0; j < 4; ++j) {  // k = 2 j, 2 j + 1 and 8 more
    UInt64 rows[2], columns[2];
    for (int i = 0; i < 2; ++i) {
      rows[i] = two_pairs(a[i], a[i + 2], lane / 4 * 4 + j);
      columns[i] = two_pairs(b[0], b[1], (lane % 4 * 2 + i) * 4 + j);
    }
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 4; ++half)
        sums[i] += half_of<X>(rows[i / 2], half) * half_of<X>(columns[i % 2], half);
  }
}
// Ties away from zero.
__device__ inline UInt32 tf32_of(UInt32 bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}
__device__ inline void multiply_matrices(float (&sums)[4], const UInt32 (&a)[4], const UInt32* b,
                                         float) {
  const int lane = RB_LANE;
  for (int j = 0; j < 4; ++j) {  // k = j and 4 more
    UInt64 rows[2], columns[2];
    for (int i = 0; i < 2; ++i) {
      rows[i] = two_pairs(a[i], a[i + 2], lane / 4 * 4 + j);
      columns[i] = two_pairs(b[0], b[1], (lane % 4 * 2 + i) * 4 + j);
    }
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 64; half += 32)
        sums[i] += __uint_as_float((UInt32)(rows[i / 2] >> half)) *
                   __uint_as_float((UInt32)(columns[i % 2] >> half));
  }
}
template <class X>
__device__ inline UInt32 pair_of(float low, float high, X) {
  return As<X>::of(low).bits | (UInt32)As<X>::of(high).bits << 16;
}
__device__ inline float exp_of(float x) { return exp(x); }
#endif

// `steps` steps through a ring of STAGES places in shared memory. bring(place, step) starts a step's
// copies, STAGES - 1 steps before use(place, step) works on what has arrived. meanwhile() runs once, while the first copies are under way; what it leaves in
// shared memory is there for the first use. All threads of the block take the same steps.
template <int STAGES, class Bring, class Meanwhile, class Use>
__device__ inline void pipeline(int steps, Bring bring, Meanwhile meanwhile, Use use) {
  const auto after = [](int place) { return place == STAGES - 1 ? 0 : place + 1; };
  int place = 0;  // of the step that is brought next
  const auto start = [&](int step) {
    if (step < steps) bring(place, step);
    place = after(place);
    end_of_step();
  };
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) start(step);
  meanwhile();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_for_steps<STAGES - 2>();
    __syncthreads();
    const int now = after(place);  // STAGES - 1 places before the one that is brought to
    start(step + STAGES - 1);
    use(now, step);
  }
  wait_for_steps<0>();
}
