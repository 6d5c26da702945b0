// The Runtime of a real GPU: the CUDA runtime API with cuBLASLt.
//
//   device_api     errors as one-line messages, RAII of streams and events
//   discovery      which GPUs there are, and why one can't be used
//   device_runtime memory, copies, the stream; this file
//   device_gemm    the GEMM of many rows by cuBLASLt (lt_api finds the library when it is first asked for)
//   step_graphs    steps recorded as CUDA graphs
//   pinned_ring    weights on their way to the device
//
// None of these files includes more of CUDA than <cuda_runtime_api.h> and <cublasLt.h>, and these are all the
// calls they make, so that tests compile them, unchanged, against a fake of both headers:
//
//   device   cudaDriverGetVersion cudaRuntimeGetVersion cudaGetDeviceCount cudaSetDevice cudaMemGetInfo
//            cudaGetDeviceProperties (name, major, minor, multiProcessorCount, totalGlobalMem)
//            cudaDeviceGetAttribute (cudaDevAttrComputeMode)
//   errors   cudaGetLastError cudaGetErrorName cudaGetErrorString
//   memory   cudaMalloc cudaFree cudaHostAlloc (cudaHostAllocDefault) cudaFreeHost
//            cudaMemcpyAsync cudaMemcpy2DAsync (cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost)
//            cudaMemsetAsync
//   streams  cudaStreamCreateWithFlags (cudaStreamNonBlocking) cudaStreamDestroy cudaStreamSynchronize
//            cudaStreamWaitEvent (flags 0)
//   events   cudaEventCreateWithFlags (cudaEventDisableTiming) cudaEventDestroy cudaEventRecord
//            cudaEventSynchronize
//   graphs   cudaStreamBeginCapture (cudaStreamCaptureModeThreadLocal) cudaStreamEndCapture
//   cudaGraphInstantiate
//            (three arguments, flags 0) cudaGraphLaunch cudaGraphExecDestroy cudaGraphDestroy
//   GEMM     cublasLtCreate cublasLtDestroy cublasLtGetVersion cublasLtGetStatusName
//            cublasLtMatmulDescCreate cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
//              (CUBLASLT_MATMUL_DESC_TRANSA, _EPILOGUE: DEFAULT or BIAS, _BIAS_POINTER)
//            cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy
//            cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy
//            cublasLtMatmulPreferenceSetAttribute (CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _MIN_ALIGNMENT_A
//              to _D_BYTES)
//            cublasLtMatmulAlgoGetHeuristic cublasLtMatmul
//              (CUBLAS_COMPUTE_32F, scale CUDA_R_32F; A, B: CUDA_R_32F, CUDA_R_16BF or CUDA_R_16F; C = D in
//              place: CUDA_R_32F or A's type; A transposed, B not; beta 0 or 1)
//
// The errors that have words of their own are in device_api.cpp, explain(): cudaErrorInsufficientDriver,
// NoDevice, InvalidDevice, NoKernelImageForDevice, InvalidKernelImage, UnsupportedPtxVersion,
// DevicesUnavailable, MemoryAllocation, SystemNotReady, SystemDriverMismatch, CompatNotSupportedOnDevice,
// ECCUncorrectable, OperatingSystem, IllegalAddress, MisalignedAddress, LaunchFailure, Assert.
//
// Compiled with LLMGEN_LINKED_CUBLASLT, lt_api.cpp links cuBLASLt instead of loading its library;
// LLMGEN_CUDA_BUILT_FOR names the architectures of the kernels. All calls come from one thread. Copies from
// the host are always from pinned memory.
#pragma once

#include <memory>

#include "ops/cuda/runtime.h"

namespace llmgen::cuda {

/// Throws Error, one line, where the GPU can't be used: what is missing and what to do.
std::unique_ptr<Runtime> make_device_runtime(int ordinal);

}  // namespace llmgen::cuda
