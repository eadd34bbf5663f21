#include "launch/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "launch/sha256.h"

namespace rbcuda {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0777);
}

std::string path_of(const std::string& key, const char* suffix) {
  return cache_folder() + "/" + key + suffix;
}

// A file: the hash of the image, a line end, the image.
constexpr size_t kHead = 65;

struct File {
  std::string path;
  time_t used;
  size_t size;
};
std::vector<File> files_of(const std::string& folder) {
  std::vector<File> files;
  DIR* open = opendir(folder.c_str());
  if (!open) return files;
  while (const dirent* entry = readdir(open)) {
    const std::string path = folder + "/" + entry->d_name;
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      files.push_back({path, info.st_mtime, static_cast<size_t>(info.st_size)});
  }
  closedir(open);
  return files;
}

size_t most_bytes() {
  const std::string given = variable("RABBET_CUDA_CACHE_MB");
  const long long megabytes = given.empty() ? 1024 : std::atoll(given.c_str());
  return static_cast<size_t>(std::max(megabytes, 0LL)) << 20;
}

// Down to three quarters, so that it is not done at every write.
void drop_oldest(const std::string& folder) {
  std::vector<File> files = files_of(folder);
  size_t total = 0;
  for (const File& file : files) total += file.size;
  if (total <= most_bytes()) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= most_bytes() / 4 * 3) return;
    if (unlink(file.path.c_str()) == 0) total -= file.size;
  }
}

}  // namespace

std::string cache_folder() {
  const std::string given = variable("RABBET_CUDA_CACHE");
  if (!given.empty()) return given == "0" ? "" : given;
  const std::string caches = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!caches.empty()) return caches + "/rabbet/cuda";
  return home.empty() ? "" : home + "/.cache/rabbet/cuda";
}

bool write_file(const std::string& path, const std::string& content) {
  static std::atomic<int> count{0};
  make_folders(path);
  const std::string mine =
      path + "." + std::to_string(getpid()) + "." + std::to_string(count++) + ".tmp";
  std::ofstream file(mine, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (file && std::rename(mine.c_str(), path.c_str()) == 0) return true;
  unlink(mine.c_str());
  return false;
}

std::vector<char> read_cached(const std::string& key, const char* suffix) {
  if (cache_folder().empty()) return {};
  const std::string path = path_of(key, suffix);
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::stringstream all;
  all << file.rdbuf();
  const std::string content = all.str();
  if (content.size() <= kHead ||
      content.substr(0, kHead - 1) != sha256(content.data() + kHead, content.size() - kHead))
    return {};
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return {content.begin() + kHead, content.end()};
}

void write_cached(const std::string& key, const std::vector<char>& image, const char* suffix) {
  static std::atomic<unsigned> writes{0};
  if (cache_folder().empty()) return;
  const std::string content =
      sha256(image.data(), image.size()) + "\n" + std::string(image.begin(), image.end());
  if (write_file(path_of(key, suffix), content) && writes++ % 64 == 0) drop_oldest(cache_folder());
}

}  // namespace rbcuda
