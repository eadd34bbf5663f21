// Makes half spectra Hermitian, as cuFFT's transform to real numbers needs them.
// ---- before it stands T. x is contiguous; its last one to three dimensions are the signal's.
struct HalfSpectrum {  // twin of rbcuda's
  Int64 n;             // elements to look at: `planes` for each line, one thread each
  Int64 rows, lines;   // lengths of the signal's dimensions before its last one
  Int64 columns;       // length of its last one
  Int64 planes;        // 1: the first column; 2, for an even real length: also the last one
};
// In these columns, the spectrum of a real signal is Hermitian in the other dimensions. This drops the
// part that is not, as a transform of one dimension after the other does.
#define RB_HERMITIAN_PLANES()                                                               \
  extern "C" __global__ void rb_kernel(Complex<T>* x, const HalfSpectrum s) {               \
    RB_FOR(i, s.n) {                                                                        \
      const Int64 at = i / s.planes, column = (i - at * s.planes) * (s.columns - 1);        \
      const Int64 upper = at / s.lines, line = at - upper * s.lines;                        \
      const Int64 signal = upper / s.rows, row = upper - signal * s.rows;                   \
      const Int64 other_row = row ? s.rows - row : 0, other_line = line ? s.lines - line : 0; \
      const Int64 own = row * s.lines + line, other = other_row * s.lines + other_line;     \
      if (other < own) continue;                                                            \
      Complex<T>* const first = x + signal * s.rows * s.lines * s.columns + column;         \
      const Complex<T> a = first[own * s.columns], b = first[other * s.columns];            \
      const T re = own == other ? a.re : (T)0.5 * a.re + (T)0.5 * b.re;                     \
      const T im = own == other ? (T)0 : (T)0.5 * a.im - (T)0.5 * b.im;                     \
      first[own * s.columns] = {re, im};                                                    \
      first[other * s.columns] = {re, -im};                                                 \
    }                                                                                       \
  }
