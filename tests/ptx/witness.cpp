#include "ptx/witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/dtype.h"
#include "ptx/context.h"
#include "ptx/profile.h"
#include "ptx/symbols.h"

namespace llmgen::ptx {

Witness::Witness(const std::string& folder) : symbols_(own_symbols()) {
    std::vector<std::filesystem::path> paths;
    for (const auto& item : std::filesystem::directory_iterator(folder))
        if (item.path().extension() == ".ptx") paths.push_back(item.path());
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
        std::ifstream in(path);
        auto file = std::make_shared<const File>(
            path.filename().string(),
            std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
        for (const std::string& entry : file->entries()) entries_[entry] = file;
    }
}

namespace {
Witness* installed = nullptr;
}

Witness* Witness::current() { return installed; }

Witness::~Witness() {
    if (installed != this) return;
    simt::Machine::get().witness = nullptr;
    installed = nullptr;
}

void Witness::install() {
    installed = this;
    simt::Machine::get().witness = [this](simt::Machine& machine, simt::Launch& launch) {
        redirect(machine, launch);
    };
}

Kernel* Witness::kernel(const std::string& entry) {
    if (!entries_.contains(entry)) return nullptr;
    auto& kernel = kernels_[entry];
    if (kernel == nullptr) kernel = std::make_unique<Kernel>(entries_.at(entry), entry);
    return kernel.get();
}

std::string Witness::entry_of(const void* function) const {
    const auto it = symbols_.find(reinterpret_cast<std::uintptr_t>(function));
    return it == symbols_.end() ? std::string() : plain_name(it->second);
}

namespace {
std::map<std::uintptr_t, std::string> snapshot() {
    std::map<std::uintptr_t, std::string> contents;
    for (const auto& [begin, region] : simt::DeviceMemory::get().regions())
        contents[begin] = std::string(reinterpret_cast<const char*>(begin), region.bytes);
    return contents;
}
void restore(const std::map<std::uintptr_t, std::string>& contents) {
    for (const auto& [begin, bytes] : contents)
        std::memcpy(reinterpret_cast<char*>(begin), bytes.data(), bytes.size());
}
}  // namespace

void Witness::run_now(simt::Machine& machine, const simt::Launch& launch, std::function<void()> body) {
    simt::Launch copy;  // without what a running launch owns
    copy.name = launch.name;
    copy.grid = launch.grid;
    copy.block = launch.block;
    copy.dynamic_shared = launch.dynamic_shared;
    copy.granted_shared = launch.granted_shared;
    copy.dependent = launch.dependent;
    copy.body = std::move(body);
    inside_ = true;
    struct Reset {
        bool& inside;
        ~Reset() { inside = false; }
    } reset{inside_};
    machine.launch(std::move(copy));
}

void Witness::redirect(simt::Machine& machine, simt::Launch& launch) {
    if (inside_) return;
    const std::string entry = entry_of(launch.kernel);
    if (!only.empty() && entry != only) {
        if (profile != nullptr) profile->skip(launch.name);
        if (skip_others) launch.body = nullptr;
        return;
    }
    Kernel* found = kernel(entry);
    if (found == nullptr) throw simt::Fault(fmt::format("{}: no PTX entry is named {}", launch.name, entry));
    auto running = std::make_shared<Running>();
    running->kernel = found;
    running->regions.resize(found->ops.size());
    running->parameters.resize(found->parameter_bytes, char(0xff));
    if (launch.parameters.size() != found->parameters.size())
        throw simt::Fault(fmt::format("{}: {} parameters, the entry has {}", launch.name,
                                      launch.parameters.size(), found->parameters.size()));
    for (std::size_t i = 0; i < found->parameters.size(); ++i) {
        const auto& [offset, bytes] = found->parameters[i];
        if (launch.parameters[i].size() != bytes)
            throw simt::Fault(fmt::format("{}: parameter {} has {} bytes here, {} in the entry", launch.name,
                                          i, launch.parameters[i].size(), bytes));
        std::copy(launch.parameters[i].begin(), launch.parameters[i].end(),
                  running->parameters.begin() + std::ptrdiff_t(offset));
    }
    running->perturb = true;
    if (profile != nullptr) {
        profile->start(launch.name, *found, launch.grid.count() * launch.block.count());
        running->profile = profile;
        launch.body = [running] { run_thread(*running); };
        return;
    }
    const bool comparing = compare && !machine.config.overlap;
    if (!comparing) {
        launch.body = [running] { run_thread(*running); };
        return;
    }
    const auto before = snapshot();
    run_now(machine, launch, launch.body);
    const auto expected = snapshot();
    restore(before);
    run_now(machine, launch, [running] { run_thread(*running); });
    compare_with(launch.name, expected);
    launch.body = nullptr;  // done: nothing is left to run
}

namespace {
/// 16-bit values may first be one unit apart: a rounding that fell on the other side. kBits: of their
/// significand.
template <typename T, int kBits, typename Convert>
void compare_values(Difference& difference, const char* got, const std::string& want, Convert convert) {
    double largest = 0;
    std::vector<std::pair<double, double>> unequal;
    for (std::size_t i = 0; i + sizeof(T) <= want.size(); i += sizeof(T)) {
        T a, b;
        std::memcpy(&a, got + i, sizeof a);
        std::memcpy(&b, want.data() + i, sizeof b);
        const double x = convert(a), y = convert(b);
        if (!std::isnan(y) && !std::isinf(y)) largest = std::max(largest, std::abs(y));
        ++difference.values;
        if (std::memcmp(&a, &b, sizeof a) != 0 && !(std::isnan(x) && std::isnan(y)))
            unequal.emplace_back(x, y);
    }
    difference.unequal += unequal.size();
    for (const auto& [x, y] : unequal) {
        const double apart = std::max(std::abs(x - y) - std::ldexp(std::abs(y), 1 - kBits), 0.0);
        const double d = x == y ? 0 : apart / std::max(largest, 1e-300);
        difference.largest = std::isnan(d) ? INFINITY : std::max(difference.largest, d);
    }
}

/// Launches whose results need not be the source's bit for bit, by what: the rest must.
struct Allowed {
    const char* why;
    double bound;  // of the largest in the array
};
const std::map<std::string, Allowed>& within_bounds() {
    static const std::map<std::string, Allowed> names = {
        {"swiglu", {"expf is nvcc's here and the C library's there", 0x1p-21}},
        {"gemv_swiglu", {"expf", 0x1p-21}},
        {"rope_angles", {"cosf and sinf", 0x1p-21}},
        {"attn_decode",
         {"nvcc contracts, mma adds in another order, ex2; so a probability may round to the bf16 beside",
          0x1p-12}},
        {"attn_prefill", {"as attn_decode", 0x1p-10}},
        {"attn_generic", {"contraction, expf", 0x1p-20}},
    };
    return names;
}
}  // namespace

void Witness::compare_with(const std::string& name, const std::map<std::uintptr_t, std::string>& expected) {
    Difference& all = differences_[name];
    ++all.launches;
    for (const auto& [begin, region] : simt::DeviceMemory::get().regions()) {
        const char* got = reinterpret_cast<const char*>(begin);
        const std::string& want = expected.at(begin);
        if (std::memcmp(got, want.data(), want.size()) == 0) continue;
        Difference here;
        const auto allowed = within_bounds().find(name);
        const double bound = exact || allowed == within_bounds().end() ? 0 : allowed->second.bound;
        if (region.type == 'f') {
            compare_values<float, 25>(here, got, want, [](float x) { return double(x); });
        } else if (region.type == 'b') {
            compare_values<bf16, 8>(here, got, want, [](bf16 x) { return double(to_f32(x)); });
        } else if (region.type == 'h') {
            compare_values<f16, 11>(here, got, want, [](f16 x) { return double(to_f32(x)); });
        } else {
            here.largest = INFINITY;
        }
        all.values += here.values;
        all.unequal += here.unequal;
        all.largest = std::max(all.largest, here.largest);
        if (here.largest > bound || (bound == 0 && here.unequal > 0))
            throw simt::Fault(
                fmt::format("{}: PTX and source leave different values in an array of {} bytes: {} of {} "
                            "differ, by up to {} of the "
                            "largest; the bound is {}",
                            name, region.bytes, here.unequal, here.values, here.largest, bound));
    }
}

}  // namespace llmgen::ptx
