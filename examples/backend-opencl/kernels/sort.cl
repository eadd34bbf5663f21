// Stable merge sort of rows: in each pass every element finds its place by a search in the other
// run of its pair. NaN counts as largest.
__kernel void number_places(__global long* places, long length, long n) {
  const long i = get_global_id(0);
  if (i < n) places[i] = i % length;
}

bool comes_before(T a, T b, int descending) {
  return descending ? a > b || (IS_NAN(a) && !IS_NAN(b)) : a < b || (IS_NAN(b) && !IS_NAN(a));
}

__kernel void merge_runs(__global T* to, __global long* to_places, __global const T* from,
                         __global const long* from_places, long length, long width, int descending,
                         long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long at = i % length, row = i - at;
  const long low = at / (2 * width) * (2 * width), middle = min(low + width, length),
             high = min(low + 2 * width, length);
  const T v = from[i];
  const bool left = at < middle;
  long begin = left ? middle : low, end = left ? high : middle;
  const long start = begin;
  while (begin < end) {  // how many of the other run go first; of equals the left ones
    const long half_way = (begin + end) / 2;
    const T other = from[row + half_way];
    const bool first =
        left ? comes_before(other, v, descending) : !comes_before(v, other, descending);
    if (first)
      begin = half_way + 1;
    else
      end = half_way;
  }
  const long place = row + low + (at - (left ? low : middle)) + (begin - start);
  to[place] = v;
  to_places[place] = from_places[i];
}

__kernel void searchsorted(__global long* to, __global const T* sorted, __global const T* x,
                           long length, int right, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const T v = x[i];
  long begin = 0, end = length;
  while (begin < end) {
    const long half_way = (begin + end) / 2;
    const bool first =
        right ? !comes_before(v, sorted[half_way], 0) : comes_before(sorted[half_way], v, 0);
    if (first)
      begin = half_way + 1;
    else
      end = half_way;
  }
  to[i] = begin;
}
