// CUDA's vector types.
#pragma once

#define CUSIM_VECTORS(T, name, align1, align2, align4)               \
  struct align1 name##1 { T x; };                                    \
  struct align2 name##2 { T x, y; };                                 \
  struct name##3 { T x, y, z; };                                     \
  struct align4 name##4 { T x, y, z, w; };                           \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUSIM_VECTORS(signed char, char, , __align__(2), __align__(4))
CUSIM_VECTORS(unsigned char, uchar, , __align__(2), __align__(4))
CUSIM_VECTORS(short, short, , __align__(4), __align__(8))
CUSIM_VECTORS(unsigned short, ushort, , __align__(4), __align__(8))
CUSIM_VECTORS(int, int, , __align__(8), __align__(16))
CUSIM_VECTORS(unsigned, uint, , __align__(8), __align__(16))
CUSIM_VECTORS(long, long, , __align__(16), __align__(16))
CUSIM_VECTORS(unsigned long, ulong, , __align__(16), __align__(16))
CUSIM_VECTORS(long long, longlong, , __align__(16), __align__(16))
CUSIM_VECTORS(unsigned long long, ulonglong, , __align__(16), __align__(16))
CUSIM_VECTORS(float, float, , __align__(8), __align__(16))
CUSIM_VECTORS(double, double, , __align__(16), __align__(16))
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(CusimIndex i) : x(i.x), y(i.y), z(i.z) {}
};
