// Device memory of the kernels' tests on a card: managed, so that a test reads and writes it as it does on
// the emulator. Before the host touches it, the device has finished.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace llmgen::simt {

inline void device_check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
inline void* device_new(std::size_t bytes) {
    void* memory = nullptr;
    cudaDeviceSynchronize();  // the caller fills it: where host and device can't share, no kernel may run
                              // then
    device_check(cudaMallocManaged(&memory, bytes), "cudaMallocManaged");
    return memory;
}
inline void device_delete(void* memory) { cudaFree(memory); }
/// How often a test has waited: microseconds each on a card, so that one a value in a loop would take
/// minutes.
inline long& n_waits() {
    static long n = 0;
    return n;
}
/// A fault of a kernel stays on the record: every later test fails too.
inline void device_wait() {
    ++n_waits();
    static bool told = false;
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess || told) return;
    told = true;  // from a destructor it must not be thrown twice
    ADD_FAILURE() << "the device: " << cudaGetErrorString(error);
}

}  // namespace llmgen::simt
