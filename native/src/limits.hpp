// What a container may use of its machine, as Linux's control groups say.
#pragma once
#include <cstddef>
#include <string>

namespace headstart {

struct Limits {
  double cores = 0;  // processor time in a second; 0 for no limit
  size_t bytes = 0;  // of memory; 0 for no limit
};

// Of the group that this process is in, and of those above it.
//
// root: "" but for tests, where the file system's /proc and /sys are looked for below it
Limits container_limits(const std::string& root = "");

}  // namespace headstart
