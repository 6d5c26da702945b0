// Every kernel's pace beside the card's own: one line of JSON a measurement on stdout.
//
//   hardware_bench [--tiny]     shapes of Llama-3.1-8B, or very small ones for the emulated device
//
// Weights, keys and activations are noise: on zeros a chip draws less power and is faster than at work. First
// the read bandwidth (a streaming read of memory that no cache holds) and cuBLASLt's peak, then the
// kernels. Weights rotate through copies that are together larger than the L2 cache. Time is the stream's own
// (events around many launches), after a warm-up; each figure is the best of three.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels.h"
#include "ops/cuda/device_gemm.h"
#include "simt/hardware/probes.h"

namespace llmgen {
namespace {

using kernels::Dependent;

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail("{}: {}", what, cudaGetErrorString(error));
}

enum class Fill { zeros, noise };

/// Device memory. Noise: bf16 of 0.008 to 0.5, of either sign; read as f32 they are as harmless.
class Memory {
public:
    Memory(std::size_t bytes, cudaStream_t stream, Fill fill = Fill::zeros) {
        check(cudaMalloc(&data_, bytes), "memory");
        if (fill == Fill::zeros) {
            check(cudaMemsetAsync(data_, 0, bytes, stream), "memory");
            return;
        }
        const std::size_t piece = std::min<std::size_t>(bytes, 8 << 20);
        void* pinned = nullptr;
        check(cudaHostAlloc(&pinned, piece, cudaHostAllocDefault), "pinned memory");
        auto* values = static_cast<std::uint16_t*>(pinned);
        std::uint64_t state = 0x9E3779B97F4A7C15u;
        for (std::size_t i = 0; i < piece / 2; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            values[i] = std::uint16_t((state >> 40 & 0x80ff) | (0x3c + (state >> 33) % 3) << 8);
        }
        for (std::size_t at = 0; at < bytes; at += piece)
            check(cudaMemcpyAsync(data() + at, pinned, std::min(piece, bytes - at), cudaMemcpyHostToDevice,
                                  stream),
                  "noise");
        check(cudaStreamSynchronize(stream), "noise");
        cudaFreeHost(pinned);
    }
    ~Memory() { cudaFree(data_); }
    Memory(const Memory&) = delete;
    char* data() const { return static_cast<char*>(data_); }
    template <typename T>
    T* as() const {
        return static_cast<T*>(data_);
    }

private:
    void* data_ = nullptr;
};

class Bench {
public:
    explicit Bench(bool tiny) : tiny_(tiny) {
        check(cudaSetDevice(0), "device");
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
        check(cudaEventCreateWithFlags(&begin_, 0), "event");
        check(cudaEventCreateWithFlags(&end_, 0), "event");
        cudaDeviceProp card{};
        check(cudaGetDeviceProperties(&card, 0), "properties");
        n_sms_ = card.multiProcessorCount;
        fmt::print(
            "{{\"name\":\"card\",\"card\":\"{}\",\"sm\":\"{}.{}\",\"sms\":{},\"memory\":{},"
            "\"overlaps\":{}}}\n",
            card.name, card.major, card.minor, n_sms_, card.totalGlobalMem, kernels::launches_overlap());
    }
    ~Bench() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
        cudaStreamDestroy(stream_);
    }
    Bench(const Bench&) = delete;

    void run() {
        read();
        gemms();
        for (const int n : {1, 8}) gemvs(n);
        decode_attention();
        prefill_attention();
        norms();
    }

private:
    int scaled(int n) const { return tiny_ ? std::max(64, n / 64 / 16 * 16) : n; }

    /// Seconds of one call, the best of three rounds of about a tenth of a second.
    double seconds(const std::function<void(int)>& call) {
        int n = 1;
        double best = 1e9;
        for (int round = -1; round < 3; ++round) {
            check(cudaEventRecord(begin_, stream_), "event");
            for (int i = 0; i < n; ++i) call(i);
            check(cudaGetLastError(), "launch");
            check(cudaEventRecord(end_, stream_), "event");
            check(cudaEventSynchronize(end_), "waiting");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, begin_, end_), "time");
            const double each = std::max(1e-7, double(ms) * 1e-3 / n);
            if (round >= 0) best = std::min(best, each);
            if (round < 0) n = tiny_ ? 1 : std::clamp(int(0.1 / each), 3, 2000);
            if (tiny_ && round == 0) break;
        }
        return best;
    }
    void report(
        const std::string& name, const std::string& shape, double seconds, double bytes, double flops) {
        fmt::print(
            "{{\"name\":\"{}\",\"shape\":\"{}\",\"seconds\":{:.4g},\"bytes\":{:.6g},\"flops\":{:.6g}}}\n",
            name, shape, seconds, bytes, flops);
        std::fflush(stdout);
    }

    void read() {
        const std::size_t bytes = tiny_ ? 1 << 18 : std::size_t(4) << 30;
        const Memory memory(bytes, stream_, Fill::noise), out(256, stream_);
        double best = 1e9;
        for (const int per_sm : {1, 2, 4}) {
            best =
                std::min(best, seconds([&](int) {
                             kernels::read_all(out.as<int>(), memory.data(), bytes, n_sms_ * per_sm, stream_);
                         }));
            if (tiny_) break;
        }
        report("read", fmt::format("{} MiB", bytes >> 20), best, double(bytes), 0);
    }

    void gemm(const char* name, int n, int out, int in) {
        const Memory x(std::size_t(n) * std::size_t(in) * 2, stream_, Fill::noise),
            y(std::size_t(n) * std::size_t(out) * 4, stream_),
            w(std::size_t(out) * std::size_t(in) * 2, stream_, Fill::noise), workspace(kWorkspace, stream_);
        cuda::DeviceGemm gemm(cuda::lt_api(), workspace.data(), kWorkspace);
        cuda::Gemm p{};
        p.y = y.data();
        p.y_type = DType::f32;
        p.y_stride = out;
        p.x = x.data();
        p.act_type = DType::bf16;
        p.x_stride = in;
        p.weight = w.data();
        p.n_tokens = n;
        p.out = out;
        p.in = in;
        if (std::strcmp(name, "cublas_peak") == 0) p.y_type = DType::bf16;
        const double s = seconds([&](int) {
            if (!gemm.run(p, stream_)) fail("cuBLASLt has no GEMM of {} x {} x {}", n, out, in);
        });
        report(name, fmt::format("{} x {} x {}", n, out, in), s, 0, 2.0 * n * out * in);
    }
    void gemms() {
        gemm("cublas_peak", scaled(8192), scaled(8192), scaled(8192));
        for (const auto& [out, in] : {std::pair(6144, 4096), {4096, 4096}, {28672, 4096}, {4096, 14336}})
            gemm("gemm", scaled(2048), scaled(out), scaled(in));
    }

    /// What gemv_qkv wants beside the product: pages, angles, slots.
    struct Rope {
        static constexpr int kDim = 128;
        Rope(int n, cudaStream_t stream)
            : pages(std::size_t(2 * 8 * kernels::kPageTokens * kDim) * 2, stream),
              angles(std::size_t(n * kDim) * 4, stream, Fill::noise),
              slots(std::size_t(n) * 4, stream) {}
        /// Of `out` rows: two thirds of them q, as with 32 heads and 8 of keys.
        kernels::RopeStore store(int out, int n, float* qkv) const {
            kernels::RopeStore p{};
            const int heads = out / kDim, n_kv = std::max(1, heads / 6);
            p.qkv = qkv;
            p.qkv_stride = out;
            p.k = pages.data();
            p.v = pages.data() + 8 * kernels::kPageTokens * kDim * 2;
            p.kv_type = DType::bf16;
            p.cos_sin = angles.as<float>();
            p.slots = slots.as<int>();
            p.n_tokens = n;
            p.n_kv_heads = n_kv;
            p.n_heads = heads - 2 * n_kv;
            p.head_dim = p.rotary_dim = kDim;
            return p;
        }
        Memory pages, angles, slots;
    };

    void gemvs(int n) {
        using Launch = void (*)(const kernels::Gemv&, Dependent, kernels::Stream);
        struct Case {
            const char* name;
            Launch launch;
            int out, in;
            bool norm;  // fused in, as the model's steps have it
        };
        for (const Case& c : {Case{"gemv_qkv", kernels::gemv_qkv, 6144, 4096, true},
                              {"gemv_add o", kernels::gemv_add, 4096, 4096, false},
                              {"gemv_swiglu gate/up", kernels::gemv_swiglu, 28672, 4096, true},
                              {"gemv_add down", kernels::gemv_add, 4096, 14336, false},
                              {"gemv_argmax head", kernels::gemv_argmax, 128256, 4096, true},
                              {"gemv qkv, no norm", kernels::gemv, 6144, 4096, false}}) {
            const int out = c.launch == kernels::gemv_qkv ? std::max(3 * Rope::kDim, scaled(c.out))
                                                          : scaled(c.out),
                      in = scaled(c.in);
            const std::size_t bytes = std::size_t(out) * std::size_t(in) * 2;
            const int copies = tiny_ ? 1 : int(std::max<std::size_t>(1, (std::size_t(512) << 20) / bytes));
            const Memory w(bytes * std::size_t(copies), stream_, Fill::noise),
                x(std::size_t(n * in) * 4, stream_, Fill::noise),
                y(std::size_t(n) * std::size_t(out) * 4, stream_),
                norm(std::size_t(in) * 4, stream_, Fill::noise),
                best(std::size_t(n) * sizeof(kernels::Best), stream_);
            const Rope rope(n, stream_);
            kernels::Gemv p{};
            p.weight_type = p.act_type = DType::bf16;
            p.x = x.data();
            p.x_stride = in;
            p.n_tokens = n;
            p.out = out;
            p.in = in;
            p.y = y.data();
            p.y_type = c.launch == kernels::gemv_swiglu ? DType::bf16 : DType::f32;
            p.y_stride = c.launch == kernels::gemv_swiglu ? out / 2 : out;
            if (c.norm) p.norm_weight = norm.as<float>();
            p.eps = 1e-5f;
            p.best = best.as<kernels::Best>();
            if (c.launch == kernels::gemv_qkv) p.rope = rope.store(out, n, y.as<float>());
            const double s = seconds([&](int i) {
                p.weight = w.data() + bytes * std::size_t(i % copies);
                c.launch(p, Dependent::yes, stream_);
            });
            report(c.name, fmt::format("{} x {} x {}", n, out, in), s, double(bytes), 2.0 * n * out * in);
        }
    }

    /// Sequences of `context` keys, the last `n_new` of them new; pages one after the other.
    void attention(const char* name, int n_seqs, int context, int n_new, double flops) {
        constexpr int kHeads = 32, kKvHeads = 8, kDim = 128, kPage = kernels::kPageTokens;
        const int pages = (context + kPage - 1) / kPage;
        const std::size_t kv_bytes = std::size_t(n_seqs) * std::size_t(pages) * kPage * kKvHeads * kDim * 2;
        const std::size_t rows = std::size_t(n_seqs) * std::size_t(n_new);
        const Memory k(kv_bytes, stream_, Fill::noise), v(kv_bytes, stream_, Fill::noise),
            q(rows * kHeads * kDim * 4, stream_, Fill::noise), out(rows * kHeads * kDim * 2, stream_),
            tables(std::size_t(n_seqs) * std::size_t(pages + 2) * 4 + 4, stream_),
            scratch(4 * kernels::attn_decode_scratch(n_seqs, kHeads, kKvHeads, kDim), stream_),
            arrivals(4 * kernels::attn_decode_arrivals(n_seqs, kHeads, kKvHeads),
                     stream_);  // zeros, as all Memory
        std::vector<int> host;
        for (int s = 0; s <= n_seqs; ++s) host.push_back(s * n_new);
        for (int s = 0; s < n_seqs; ++s) host.push_back(context);
        for (int i = 0; i < n_seqs * pages; ++i) host.push_back(i);
        void* pinned = nullptr;
        check(cudaHostAlloc(&pinned, host.size() * 4, cudaHostAllocDefault), "pinned memory");
        std::memcpy(pinned, host.data(), host.size() * 4);
        check(cudaMemcpyAsync(tables.data(), pinned, host.size() * 4, cudaMemcpyHostToDevice, stream_),
              "copy");
        check(cudaStreamSynchronize(stream_), "copy");
        cudaFreeHost(pinned);
        kernels::Attention p{};
        p.out = out.data();
        p.out_stride = p.q_stride = kHeads * kDim;
        p.q = q.as<float>();
        p.k = k.data();
        p.v = v.data();
        p.kv_type = DType::bf16;
        p.first_token = tables.as<int>();
        p.context_len = tables.as<int>() + n_seqs + 1;
        p.page_table = tables.as<int>() + 2 * n_seqs + 1;
        p.page_stride = pages;
        p.n_seqs = n_seqs;
        p.n_heads = kHeads;
        p.n_kv_heads = kKvHeads;
        p.head_dim = kDim;
        p.scale = 0.088f;
        p.arrivals = arrivals.as<int>();
        const bool decode = kernels::attn_is_decode(n_new, kHeads, kKvHeads);
        const double s = seconds([&](int) {
            if (decode)
                kernels::attn_decode(p, scratch.as<float>(), context, Dependent::yes, stream_);
            else
                kernels::attn_prefill(p, n_seqs * kernels::attn_prefill_tiles(n_new, kHeads, kKvHeads),
                                      Dependent::yes, stream_);
        });
        report(name, fmt::format("{} x {} keys", n_seqs, context), s, decode ? 2.0 * double(kv_bytes) : 0,
               flops);
    }
    void decode_attention() {
        if (tiny_) return attention("attn_decode", 1, 80, 1, 0);
        for (const int context : {1024, 8192, 32768}) attention("attn_decode", 1, context, 1, 0);
        attention("attn_decode", 32, 8192, 1, 0);
    }
    void prefill_attention() {
        for (const int n : tiny_ ? std::vector{40} : std::vector{2048, 8192})
            attention("attn_prefill", 1, n, n, 4.0 * n * (n + 1) / 2 * 32 * 128);
    }

    void norms() {
        const int n = scaled(4096), hidden = scaled(4096);
        const std::size_t values = std::size_t(n) * std::size_t(hidden);
        const Memory x(values * 4, stream_, Fill::noise), out(values * 2, stream_),
            weight(std::size_t(hidden) * 4, stream_, Fill::noise);
        kernels::RmsNorm p{};
        p.out = out.data();
        p.out_type = DType::bf16;
        p.out_stride = p.x_stride = hidden;
        p.x = x.as<float>();
        p.weight = weight.as<float>();
        p.n_tokens = n;
        p.hidden = hidden;
        p.eps = 1e-5f;
        const double s = seconds([&](int) { kernels::rmsnorm(p, Dependent::yes, stream_); });
        report("rmsnorm", fmt::format("{} x {}", n, hidden), s, double(values) * 6, 0);
    }

    static constexpr std::size_t kWorkspace = 32 << 20;
    bool tiny_;
    int n_sms_ = 1;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace
}  // namespace llmgen

int main(int argc, char** argv) {
    try {
        llmgen::Bench(argc > 1 && std::strcmp(argv[1], "--tiny") == 0).run();
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "hardware_bench: {}\n", error.what());
        return 1;
    }
}
