#include "ops/cpu/simd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace llmgen::cpu {
namespace {

#if defined(__x86_64__)
/// AMX tiles are state that a process must ask the kernel for.
bool amx_usable() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

Isa best_isa() {
    const auto targets = hwy::SupportedTargets();
    if (targets & HWY_AVX3) {
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512bf16")) return amx_usable() ? Isa::amx : Isa::avx512_bf16;
#endif
        return Isa::avx512;
    }
    return targets & HWY_AVX2 ? Isa::avx2 : Isa::scalar;
}

}  // namespace llmgen::cpu
