#include "limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

namespace headstart {
namespace {

// the numbers that a file begins with; none if there is no such file, or it begins with a word such as "max"
std::vector<double> numbers_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<double> found;
  for (double number; file >> number;) found.push_back(number);
  return found;
}

void lower(double& limit, double to) {
  if (to > 0) limit = limit > 0 ? std::min(limit, to) : to;
}

// "" for the root, "/a/b" for a group: the folder of the group that a line of /proc/self/cgroup names
std::string group_of(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = ",", wanted = ",";
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    wanted.append(controller).push_back(',');
    if (controllers.find(wanted) == std::string::npos) continue;
    const std::string group = line.substr(second + 1);
    return group == "/" ? "" : group;
  }
  return "";
}

// calls look(folder) for a group and all above it
template <class Look>
void walk_up(const std::string& base, std::string group, Look&& look) {
  while (true) {
    look(base + group + "/");
    if (group.empty()) return;
    const size_t cut = group.rfind('/');
    group.resize(cut == std::string::npos ? 0 : cut);
  }
}

}  // namespace

Limits container_limits(const std::string& root) {
  const std::string base = root + "/sys/fs/cgroup";
  double cores = 0, bytes = 0;
  // version 2: all in one tree, "quota period" and a size; what has no limit says "max"
  walk_up(base, group_of(root, ""), [&](const std::string& folder) {
    if (const auto time = numbers_of(folder + "cpu.max"); time.size() == 2 && time[1] > 0)
      lower(cores, time[0] / time[1]);
    if (const auto size = numbers_of(folder + "memory.max"); !size.empty()) lower(bytes, size[0]);
  });
  // version 1: a tree for each; what has no limit says -1, or a size beyond all memory
  walk_up(base + "/cpu", group_of(root, "cpu"), [&](const std::string& folder) {
    const auto quota = numbers_of(folder + "cpu.cfs_quota_us"), period = numbers_of(folder + "cpu.cfs_period_us");
    if (!quota.empty() && !period.empty() && period[0] > 0) lower(cores, quota[0] / period[0]);
  });
  walk_up(base + "/memory", group_of(root, "memory"), [&](const std::string& folder) {
    if (const auto size = numbers_of(folder + "memory.limit_in_bytes"); !size.empty()) lower(bytes, size[0]);
  });
  constexpr double kMost = 1e18;
  return {cores, bytes < kMost ? static_cast<size_t>(bytes) : 0};
}

}  // namespace headstart
