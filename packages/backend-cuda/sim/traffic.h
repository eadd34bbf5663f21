// Counts the bytes that work moves, for $CUSIM_TRAFFIC: a file to which each kernel, copy and fill
// adds a line for each allocation that it accesses, of fields between tabs: the work, the
// allocation's address and bytes, bytes read and bytes written. Kernels move sectors of 32 bytes:
// each sector that the lanes of a warp ask for by one instruction counts once.
#pragma once
#include <cstddef>
#include <string>

namespace cusim {

bool counts_traffic();
/// An access of the running kernel to the allocation [begin, begin + whole). `site`: the
/// instruction.
void count_access(const void* p, size_t size, int kind, const void* site, const char* begin,
                  size_t whole);
void count_block();
void count_launch(const std::string& kernel);
void count_copy(const std::string& what, size_t size, int kind, const char* begin, size_t whole);

}  // namespace cusim
