#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace llmgen {
namespace {

/// CPUs' worth of time that the cgroup grants: quota / period, "max" = no limit.
double cgroup_cpus() {
    std::string quota;
    double period = 0;
    if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period && quota != "max" && period > 0)
        return std::stod(quota) / period;
    double v1_quota = 0;
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (quota_file >> v1_quota && period_file >> period && v1_quota > 0 && period > 0)
        return v1_quota / period;
    return std::numeric_limits<double>::infinity();
}

}  // namespace

int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                             : int(std::thread::hardware_concurrency());
    if (const double limit = cgroup_cpus(); limit < cores) cores = int(std::ceil(limit));
    return std::max(cores, 1);
}

}  // namespace llmgen
