#include "app/bench/energy.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

namespace llmgen::bench {
namespace {

std::optional<double> read_number(const std::string& path) {
    std::ifstream file(path);
    double value = 0;
    return file >> value ? std::optional(value) : std::nullopt;
}

// Loaded at run time: the driver brings the library, and the program must start where there is none.
class Nvml {
public:
    static std::shared_ptr<Nvml> open(unsigned index) {
        auto nvml = std::make_shared<Nvml>();
        nvml->library_.reset(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
        if (!nvml->library_) return nullptr;
        const auto init = nvml->function<int()>("nvmlInit_v2");
        const auto handle = nvml->function<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
        nvml->energy_ =
            nvml->function<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
        if (!init || !handle || !nvml->energy_ || init() != 0 || handle(index, &nvml->device_) != 0)
            return nullptr;
        return nvml;
    }
    std::optional<double> joules() const {
        unsigned long long millijoules = 0;
        if (energy_(device_, &millijoules) != 0) return std::nullopt;
        return double(millijoules) / 1000;
    }

private:
    template <typename Signature>
    Signature* function(const char* name) const {
        return reinterpret_cast<Signature*>(dlsym(library_.get(), name));
    }
    struct Close {
        void operator()(void* library) const { dlclose(library); }
    };
    std::unique_ptr<void, Close> library_;
    int (*energy_)(void*, unsigned long long*) = nullptr;
    void* device_ = nullptr;
};

}  // namespace

std::function<std::optional<double>()> rapl_counter(const std::string& root) {
    // Packages only: "intel-rapl:0:0" is a part of "intel-rapl:0". The counters wrap at max_energy_range_uj.
    struct Package {
        std::string path;
        double range = 0, last = 0, total = 0;
    };
    auto packages = std::make_shared<std::vector<Package>>();
    for (int i = 0; i < 16; ++i) {
        const std::string base = fmt::format("{}/intel-rapl:{}/", root, i);
        const auto now = read_number(base + "energy_uj");
        if (!now) continue;
        packages->push_back(
            {base + "energy_uj", read_number(base + "max_energy_range_uj").value_or(0), *now, 0});
    }
    if (packages->empty()) return {};
    return [packages]() -> std::optional<double> {
        double sum = 0;
        for (Package& package : *packages) {
            const auto now = read_number(package.path);
            if (!now) return std::nullopt;
            package.total += *now >= package.last ? *now - package.last : *now + package.range - package.last;
            package.last = *now;
            sum += package.total;
        }
        return sum / 1e6;
    };
}

std::function<std::optional<double>()> energy_counter(const std::string& device) {
    if (!device.starts_with("cuda")) return rapl_counter("/sys/class/powercap");
    const std::size_t colon = device.find(':');
    const unsigned index = colon == std::string::npos ? 0 : unsigned(std::atoi(device.c_str() + colon + 1));
    const auto nvml = Nvml::open(index);
    if (!nvml) return {};
    return [nvml] { return nvml->joules(); };
}

}  // namespace llmgen::bench
