// Everything a kernel may use of the hardware, and the seam between the two compilers: nvcc takes the
// hardware (cuda.cuh, the only home of PTX), g++ takes the emulator of tests/simt. Kernels see one set of
// names:
//
//   SHARED_ARRAY(T, name, n)   SHARED_DYNAMIC(T, name)   threadIdx blockIdx blockDim gridDim
//   launch(name, kernel, shape, dependent, stream, arguments…)
//   sync_block sync_warp shfl shfl_xor shfl_up shfl_down ballot
//   atomic_add atomic_max atomic_exchange fence_grid
//   Vec16 load16 load16_stream store16 Vec8 load8 store8 load_l2 keep
//   cp_async_16 cp_async_16_or_zero cp_async_commit cp_async_wait<N>
//   ldmatrix_x4 ldmatrix_x4_trans mma_m16n8k16<T>
//   grid_dependency_wait grid_dependency_trigger
//   as_f32 from_f32<T> pack2<T> bits_to_f32 f32_to_bits exp2_fast rsqrt_f32 max_f32 fma_f32
//   add_rn sub_rn mul_rn
//
// Traps: `__shared__` would silently vanish under g++, so shared memory is only ever a SHARED_ARRAY (16-byte
// aligned, size a constant). A shuffle orders no memory; sync_warp does. Under nvcc the static shared memory
// of a kernel is limited to 48 KiB; more must be SHARED_DYNAMIC, one per kernel.
#pragma once

#include "common/launch.h"

#ifdef __CUDACC__
#include "common/cuda.cuh"
#else
#include "simt/emulator.h"

namespace llmgen::kernels {

template <typename... Parameters, typename... Arguments>
void launch(const char* name,
            void (*kernel)(Parameters...),
            const Shape& shape,
            Dependent dependent,
            Stream stream,
            Arguments... arguments) {
    simt::Launch launch;
    launch.name = name;
    launch.grid = {shape.grid_x, shape.grid_y, shape.grid_z};
    launch.block = {shape.threads, 1, 1};
    launch.dynamic_shared = shape.dynamic_shared;
    const auto answers = answers_of(stream, reinterpret_cast<const void*>(kernel), shared_to_ask_for(shape),
                                    [&](auto& found) { return launch.asked = found.overlaps = true; });
    launch.granted_shared = answers.shared;
    launch.dependent = dependent == Dependent::yes && answers.overlaps;
    launch.body = [=] { kernel(Parameters(arguments)...); };
    launch.kernel = reinterpret_cast<const void*>(kernel);
    launch.parameters = {simt::bytes_of(Parameters(arguments))...};
    if (stream.handle != nullptr) return stream.handle->launch(std::move(launch));
    Machine::get().launch(std::move(launch));
}

}  // namespace llmgen::kernels
#endif
