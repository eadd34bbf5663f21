// Compiled kernels and cuDNN's plans on disk, for later processes: $RABBET_CUDA_CACHE, or
// rabbet/cuda in $XDG_CACHE_HOME or ~/.cache. A file for each, written whole and renamed, so that
// several processes may use one folder. Nothing here fails a call: what cannot be read or written
// is not there.
//
// RABBET_CUDA_CACHE=0 turns it off. RABBET_CUDA_CACHE_MB (1024): the oldest files go beyond that.
#pragma once
#include <string>
#include <vector>

namespace rbcuda {

/// Empty: there is none.
std::string cache_folder();

/// Empty where there is no file, or a damaged one. `suffix`: of the file's name.
std::vector<char> read_cached(const std::string& key, const char* suffix = ".cubin");
void write_cached(const std::string& key, const std::vector<char>& image,
                  const char* suffix = ".cubin");

/// Whether `content` is in the file now. Folders are made; readers see all of it or nothing.
bool write_file(const std::string& path, const std::string& content);

}  // namespace rbcuda
