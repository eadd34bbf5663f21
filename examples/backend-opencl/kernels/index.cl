// Indexing. Indices are int64; `wrap`: negative ones count from the end. One that is out of range
// is noted for the next synchronisation (note_fault): it reads 0 and writes nothing.
long checked(long index, long size, int wrap, __global int* fault, int number) {
  const long at = wrap && index < 0 ? index + size : index;
  if (at >= 0 && at < size) return at;
  note_fault(fault, number);
  return -1;
}

// Positions of `to`: strides of to, of the index, of x without the indexed dimension.
__kernel void gather(__global BITS* to, __global const BITS* x, __global const long* index,
                     const Space s, long size, long step, __global int* fault, int number) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES3(s, i)
  const long at = checked(index[p1], size, 0, fault, number);
  to[p0] = at < 0 ? 0 : x[p2 + at * step];
}

// A work item per line of the indexed dimension, in order: the result is the same in every run, and
// the last of equal indices wins. Lines: strides of to, of the index, of src. `skip`: an index that
// is left out.
__kernel void scatter_lines(__global T* to, __global const long* index, __global const T* src,
                            T number_src, int has_src, const Space s, long length, long index_step,
                            long src_step, long size, long step, int add, T factor, long skip,
                            __global int* fault, int number) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES3(s, i)
  for (long k = 0; k < length; ++k) {
    const long given = index[p1 + k * index_step];
    if (given == skip) continue;
    const long at = checked(given, size, 0, fault, number);
    if (at < 0) continue;
    const T v = has_src ? src[p2 + k * src_step] : number_src;
    __global T* place = to + p0 + at * step;
    *place = add ? ADD(*place, MUL(factor, v)) : v;
  }
}

// Offsets of advanced indexing: offsets += index * step; -1 where an index is out of range.
__kernel void add_offsets(__global long* offsets, __global const long* index, const Space s,
                          long size, long step, __global int* fault, int number) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES2(s, i)
  const long at = checked(index[p1], size, 1, fault, number);
  if (offsets[p0] >= 0) offsets[p0] = at < 0 ? -1 : offsets[p0] + at * step;
}
// Positions of the result: strides of to, of the offsets, of x.
__kernel void take(__global BITS* to, __global const BITS* x, __global const long* offsets,
                   const Space s) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES3(s, i)
  to[p0] = offsets[p1] < 0 ? 0 : x[p2 + offsets[p1]];
}
__kernel void put(__global BITS* to, __global const BITS* values, __global const long* offsets,
                  const Space s) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES3(s, i)
  if (offsets[p1] >= 0) to[p0 + offsets[p1]] = values[p2];
}
// Sums: a work item per position of what is not indexed goes through all offsets in order. outer:
// strides of to and of values; inner: those of values over the offsets.
__kernel void put_sums(__global T* to, __global const T* values, __global const long* offsets,
                       const Space outer, const Space inner) {
  const long i = get_global_id(0);
  if (i >= outer.n) return;
  PLACES2(outer, i)
  __global T* here = to + p0;
  __global const T* from = values + p1;
  for (long k = 0; k < inner.n; ++k) {
    if (offsets[k] < 0) continue;
    PLACES1(inner, k)
    here[offsets[k]] = ADD(here[offsets[k]], from[p0]);
  }
}

// Nonzero elements of blocks: how many, then where.
__kernel void count_nonzero(__global long* counts, __global const T* x, long block, long n) {
  const long b = get_global_id(0);
  if (b * block >= n) return;
  long count = 0;
  for (long i = b * block; i < min((b + 1) * block, n); ++i) count += x[i] != 0;
  counts[b] = count;
}
__kernel void write_nonzero(__global long* rows, __global const long* starts, __global const T* x,
                            long block, long n, const Space shape) {
  const long b = get_global_id(0);
  if (b * block >= n) return;
  long row = starts[b];
  for (long i = b * block; i < min((b + 1) * block, n); ++i) {
    if (x[i] == 0) continue;
    long rest = i;
    for (int d = shape.ndim - 1; d >= 0; --d) {
      rows[row * shape.ndim + d] = rest % shape.shape[d];
      rest /= shape.shape[d];
    }
    ++row;
  }
}
