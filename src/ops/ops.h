// The narrow waist: the steps of a language model that a backend must be able to do. Models call these and
// nothing else of a device.
//
// An Ops object is one device with one stream and its scratch memory: what other designs call the context. It
// is used by one thread at a time; two runners need two. Steps are enqueued in order; only download() and
// synchronize() wait. Nothing allocates in a step once reserve() was called.
//
// Conventions: outputs first, then inputs, then sizes. Every op checks shapes before it starts (expect_shape)
// and a mismatch names the tensor, the axis and both numbers. Weights are [out, in]. `act` is the activation
// type of the compute mode: f32 or bf16. The residual stream x, norms, softmax, accumulators and logits are
// f32 in both modes.
//
// Bounds: eps is the unit round-off of the output's type (2^-24 f32, 2^-8 bf16); sums bound by eps_acc * sum
// |a||b| with eps_acc = 2^-24 * (terms / lanes + lanes).
//
// Rows are independent: row t of an output depends on row t of the inputs alone, bit for bit, however many
// rows there are (on the CPU in f32; elsewhere within the bound).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/tensor.h"
#include "ops/batch.h"

namespace llmgen {

enum class Compute { f32, bf16 };
constexpr DType activation_type(Compute compute) {
    return compute == Compute::f32 ? DType::f32 : DType::bf16;
}
constexpr const char* name_of(Compute compute) { return compute == Compute::f32 ? "f32" : "bf16"; }

/// Memory of a backend; freed with the object.
class Buffer {
public:
    virtual ~Buffer() = default;
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

protected:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// How the values of a weight are stored. Quantized formats join here, with their scales inside the backend's
/// PackedWeight.
enum class WeightFormat { f32, bf16, f16 };

/// A backend's own layout of a weight's values.
struct PackedWeight {
    virtual ~PackedWeight() = default;
};

/// A weight matrix [out, in] with its bias, where and how the backend that made it keeps it. Cheap to copy;
/// shared, immutable.
struct Weight {
    WeightFormat format = WeightFormat::f32;
    std::int64_t out = 0;
    std::int64_t in = 0;
    std::shared_ptr<const PackedWeight> packed;
    std::shared_ptr<const Buffer> bias;  // [out] f32, or null
    std::size_t bytes = 0;               // that one pass over the values reads
    explicit operator bool() const { return packed != nullptr; }
};

/// A small f32 vector (norm weights, inverse frequencies) in the backend's memory.
struct Vector {
    std::shared_ptr<const Buffer> buffer;
    std::int64_t size = 0;
    explicit operator bool() const { return buffer != nullptr; }
    Tensor view() const { return Tensor(buffer->data(), DType::f32, {size}); }
};

/// Keys and values of one layer. Element type: the activation type. The order of the values inside one page
/// and head is the backend's own (the CPU keeps them as its attention reads them): pages move as a whole.
struct KvCache {
    Tensor k;  // [n_pages, n_kv_heads, kPageSize, head_dim] act
    Tensor v;  // [n_pages, n_kv_heads, kPageSize, head_dim] act
};

struct AttentionShape {
    int n_heads = 0;
    int n_kv_heads = 0;  // divides n_heads; query head h reads kv head h / (n_heads / n_kv_heads)
    int head_dim = 0;
    int rotary_dim = 0;  // leading channels that are rotated, pairs (d, d + rotary_dim / 2)
    float scale = 0;     // of q·k, usually 1 / sqrt(head_dim)
    int window = 0;      // a query at position i sees keys i - window + 1 … i; 0 = all up to i
    int q_width() const { return n_heads * head_dim; }
    int qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
};

/// Rows on their way into a product: rmsnorm(x) with `weight`. `h` is room for it in the activation type, and
/// holds nothing in particular afterwards.
struct NormedRows {
    Tensor h;  // [n_tokens, in] act
    Tensor x;  // [n_tokens, in] f32
    const Vector& weight;
    float eps = 0;
};

/// How the token of one row of logits is chosen: engine/sampler.h has the formulas and their order.
struct TokenChoice {
    int row = 0;                    // of the logits
    float inverse_temperature = 0;  // 0: greedy
    int top_k = 0;                  // 0: off
    double top_p = 1;
    double min_p = 0;
    std::uint64_t seed = 0;
    std::uint64_t step = 0;                            // of the answer: the how manieth random number
    std::span<const std::pair<int, float>> biases;     // id, what is added; each id once
    std::span<const std::pair<int, float>> penalties;  // id seen before, what is subtracted; each id once
    float repetition = 1;                              // of every id in `penalties`, before that
};

struct DeviceInfo {
    std::string name;         // "cpu", "cuda:0"
    std::string description;  // "AMD EPYC, 2 threads, AVX-512 bf16"
    std::size_t memory_total = 0;
    std::size_t memory_free = 0;  // when asked
};

class Ops {
public:
    virtual ~Ops() = default;

    // --- the device and its memory
    // -------------------------------------------------------------------------------------------------
    virtual DeviceInfo info() const = 0;
    virtual Compute compute() const = 0;
    /// Uninitialised. Throws Error with needed, free and total bytes when there is not enough; `what` names
    /// the use ("KV cache").
    virtual std::unique_ptr<Buffer> allocate(std::size_t bytes, const char* what) = 0;
    /// Scratch for steps of at most `max_tokens` new tokens in `max_seqs` sequences over at most
    /// `max_context` keys each.
    virtual void reserve(const AttentionShape& shape, int max_tokens, int max_seqs, int max_context) = 0;
    /// What reserve() of the same takes, and what steps take beside it: for a plan made before anything is
    /// loaded. 0 where memory is the host's, which plans for more than one program.
    virtual std::size_t scratch_bytes(const AttentionShape& shape,
                                      int max_tokens,
                                      int max_seqs,
                                      int max_context) const {
        (void)shape, (void)max_tokens, (void)max_seqs, (void)max_context;
        return 0;
    }
    /// Host to device; `host` may be reused once this returns.
    virtual void upload(Tensor dst, const void* host) = 0;
    /// Device to host; waits for everything before it.
    virtual void download(void* host, Tensor src) = 0;
    virtual void synchronize() = 0;

    /// Enqueues a step: runs `enqueue` and returns what it returns, or does again what it enqueued when the
    /// key was seen before. So a key stands for all that the launches depend on: the number of rows, every
    /// shape and address, and the bound of the context (HostBatch). What changes from step to step is read
    /// from tensors. reserve() forgets all keys. A backend that records nothing may hold its threads together
    /// for the step, whatever the key.
    virtual Tensor step(std::uint64_t key, const std::function<Tensor()>& enqueue) {
        (void)key;
        return enqueue();
    }
    /// Whether keys are remembered, and so few different ones worth rows that nobody needs.
    virtual bool records_steps() const { return false; }

    // --- weights, once per load
    // ----------------------------------------------------------------------------------------------------
    /// The rows of `parts` ([out_i, in] host views, f32 | bf16 | f16, types may differ) stacked into one
    /// matrix, in the layout this backend's linear wants. `bias_parts` is empty or has one [out_i] view a
    /// part; an empty view there is zeros. The views need not outlive the call. In f32 compute the values are
    /// kept exactly; in bf16 compute f32 and f16 values are rounded to bf16.
    virtual Weight make_weight(std::span<const Tensor> parts, std::span<const Tensor> bias_parts = {}) = 0;
    /// The same of views that stay as they are for as long as `owner` lives: a backend that computes in the
    /// host's memory may go on reading them there. Others let go of `owner` once they have their copy.
    virtual Weight borrow_weight(std::span<const Tensor> parts,
                                 std::span<const Tensor> bias_parts,
                                 std::shared_ptr<const void> owner) {
        (void)owner;
        return make_weight(parts, bias_parts);
    }
    /// The values of a host view, as f32.
    virtual Vector make_vector(Tensor host) = 0;

    // --- the steps
    // -----------------------------------------------------------------------------------------------------------------
    /// x[t] = table[ids[t]].
    ///   x      [n_tokens, hidden] f32
    ///   table  [vocab, hidden]; ids [n_tokens] i32, each in [0, vocab) (the engine checks; a kernel clamps)
    virtual void embed(Tensor x, const Weight& table, Tensor ids) = 0;

    /// out[t] = round(x[t] / sqrt(mean(x[t]²) + eps)) · weight: mean and division in f32, rounded once to
    /// out's type before the multiplication (Llama's order: the other one differs in the last bit of bf16).
    ///   out [n_tokens, hidden] f32 | bf16, may alias x;  x [n_tokens, hidden] f32;  weight [hidden] f32
    /// Error: 2 ulp of out. Source: Zhang & Sennrich 2019; order as transformers' LlamaRMSNorm.
    virtual void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) = 0;

    /// out[t] = W x[t] + bias.
    ///   out [n_tokens, w.out] f32 | act, no alias;  x [n_tokens, w.in] act; rows of x and out may be strided
    virtual void linear(Tensor out, Tensor x, const Weight& w) = 0;

    /// x[t] += W h[t] + bias: a projection back into the residual stream.
    ///   x [n_tokens, w.out] f32;  h [n_tokens, w.in] act
    virtual void linear_add(Tensor x, Tensor h, const Weight& w) = 0;

    /// out[t] = silu(g) · u with (g, u) = the two halves of W h[t] + bias; silu(g) = g / (1 + exp(-g)), in
    /// f32.
    ///   out [n_tokens, w.out / 2] act;  h [n_tokens, w.in] act;  rows of w: first the gate's, then the up
    ///   projection's
    virtual void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) = 0;

    /// cos_sin[t] = cos(positions[t] · inv_freq) · factor, then sin likewise; the angle is rounded to f32
    /// before cos and sin.
    ///   cos_sin [n_tokens, 2, rotary_dim / 2] f32;  positions [n_tokens] i32;  inv_freq [rotary_dim / 2]
    virtual void rope_angles(Tensor cos_sin, Tensor positions, const Vector& inv_freq, float factor) = 0;

    /// For each new token: optionally normalises each head of q and k (rmsnorm over head_dim, Qwen3), rotates
    /// them, writes q back in place, and stores k and v into their pages.
    ///   qkv     [n_tokens, (n_heads + 2 n_kv_heads) head_dim] f32: q heads, then k heads, then v heads
    ///   kv      pages of this layer; slot s is page s / kPageSize, row s % kPageSize
    ///   cos_sin [n_tokens, 2, rotary_dim / 2] f32;  q_norm, k_norm [head_dim] or none
    /// Rotation: (a, b) = (v[d], v[d + r/2]) → (a cos - b sin, b cos + a sin), r = rotary_dim. Channels from
    /// r on pass through.
    virtual void qk_norm_rope_store_kv(Tensor qkv,
                                       const KvCache& kv,
                                       Tensor cos_sin,
                                       const Vector& q_norm,
                                       const Vector& k_norm,
                                       float eps,
                                       const Batch& batch,
                                       const AttentionShape& shape) = 0;

    /// out[t, h] = sum_p softmax_p(scale · q[t, h] · k[p]) v[p] over the keys p that token t may see, softmax
    /// in f32. Chooses between prefill and split-KV decode by itself; the split is a function of the context
    /// length alone, so neighbours change nothing.
    ///   out [n_tokens, n_heads head_dim] act;  q [n_tokens, n_heads head_dim] f32 (strided view of qkv)
    virtual void attention(
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) = 0;

    /// out[i] = x[rows[i]].   out [n, hidden] f32;  x [n_tokens, hidden] f32;  rows [n] i32
    virtual void gather_rows(Tensor out, Tensor x, Tensor rows) = 0;

    // --- steps in one. A backend that has no better way inherits the way of single steps, which is also what
    // the better way is tested against.
    // ------------------------------------------------------------------------------------------------

    /// linear(out, rmsnorm(x), w)
    virtual void norm_linear(Tensor out, const NormedRows& in, const Weight& w) {
        rmsnorm(in.h, in.x, in.weight, in.eps);
        linear(out, in.h, w);
    }
    /// linear_swiglu(out, rmsnorm(x), gate_up)
    virtual void norm_linear_swiglu(Tensor out, const NormedRows& in, const Weight& gate_up) {
        rmsnorm(in.h, in.x, in.weight, in.eps);
        linear_swiglu(out, in.h, gate_up);
    }
    /// norm_linear_swiglu(mlp, in, gate_up), then linear_add(x, mlp, down), where x may be in.x. `mlp` is
    /// room for it, as `h` is of NormedRows.
    virtual void norm_mlp(
        Tensor x, Tensor mlp, const NormedRows& in, const Weight& gate_up, const Weight& down) {
        norm_linear_swiglu(mlp, in, gate_up);
        linear_add(x, mlp, down);
    }
    /// linear(qkv, rmsnorm(x), w), then qk_norm_rope_store_kv. Of qkv only q need be there afterwards.
    virtual void norm_qkv_rope_store(Tensor qkv,
                                     const NormedRows& in,
                                     const Weight& w,
                                     const KvCache& kv,
                                     Tensor cos_sin,
                                     const Vector& q_norm,
                                     const Vector& k_norm,
                                     const Batch& batch,
                                     const AttentionShape& shape) {
        norm_linear(qkv, in, w);
        qk_norm_rope_store_kv(qkv, kv, cos_sin, q_norm, k_norm, in.eps, batch, shape);
    }
    /// attention() where only the rows batch.logit_rows of out are read afterwards: the others may keep what
    /// they held.
    virtual void attention_of_wanted(
        Tensor out, Tensor q, const KvCache& kv, const Batch& batch, const AttentionShape& shape) {
        attention(out, q, kv, batch, shape);
    }

    // --- choosing tokens, where the backend does
    // ------------------------------------------------------------------------------------------------

    /// Whether choose() and the reading of its ids exist. Where they don't, logits are downloaded and the
    /// engine chooses.
    virtual bool chooses_tokens() const { return false; }
    /// Whether norm_head() fills its ids, so that a greedy choice needs no second look at the logits.
    virtual bool finds_largest() const { return chooses_tokens(); }
    /// linear(logits, rmsnorm(x), head), and ids[t] = the largest of row t, the lowest id on ties, -1 where a
    /// logit is NaN or the largest isn't finite.   ids [n] i32
    virtual void norm_head(Tensor logits, Tensor ids, const NormedRows& in, const Weight& head) {
        CHECK(!ids, "this backend does not find the largest logit");
        norm_linear(logits, in, head);
    }
    /// ids[c.row] = the token of that row for each c of `rows`, -1 where its logits aren't finite; other ids
    /// stay. Overwrites those logits.   ids [n] i32; logits [n, vocab] f32
    virtual void choose(Tensor ids, Tensor logits, std::span<const TokenChoice> rows) {
        (void)ids, (void)logits, (void)rows;
        fail("this backend does not choose tokens");
    }
    /// Begins to bring ids to the host as what was enqueued so far leaves them, and doesn't wait. The ticket
    /// is for finish_read(); the read before the last one is forgotten.   ids [n] i32, contiguous
    virtual int begin_read(Tensor ids) {
        (void)ids;
        fail("this backend does not choose tokens");
    }
    /// The ids of that read; waits for it, and for nothing that was enqueued after it.
    virtual void finish_read(std::span<int> ids, int ticket) {
        (void)ids, (void)ticket;
        fail("this backend does not choose tokens");
    }
};

}  // namespace llmgen
