// Each op of the CPU backend at SmolLM2-135M's shapes, and whole steps of a model of that shape with random
// weights. Columns: GB/s against the measured read bandwidth, GFLOP/s against the measured matmul peak.
//
//   ops_bench [--benchmark_filter=…]     LLMGEN_THREADS (default 2), LLMGEN_CPU_ISA caps the instruction set
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/cores.h"
#include "ops/cpu/bandwidth.h"
#include "ops/cpu/cpu_ops.h"

namespace llmgen {
namespace {

constexpr int kHidden = 576, kLayers = 30, kIntermediate = 1536, kVocab = 49152;

int threads() {
    const char* text = std::getenv("LLMGEN_THREADS");
    return text ? std::atoi(text) : usable_cores();
}

AttentionShape smollm2() {
    AttentionShape shape;
    shape.n_heads = 9;
    shape.n_kv_heads = 3;
    shape.head_dim = shape.rotary_dim = 64;
    shape.scale = 0.125f;
    return shape;
}

struct Limits {
    double bandwidth = measure_read_bandwidth(threads());
    double f32 = measure_matmul_peak(threads(), Compute::f32);
    double bf16 = measure_matmul_peak(threads(), Compute::bf16);
};
const Limits& limits() {
    static const Limits measured;
    return measured;
}

Weight random_weight(Ops& ops, DType type, std::int64_t out, std::int64_t in) {
    std::vector<float> values(std::size_t(out * in));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 0.05f * (float(i * 2654435761u % 1024) / 512 - 1);
    std::vector<bf16> half;
    if (type == DType::bf16)
        for (const float v : values) half.push_back(to_bf16(v));
    const Tensor part(type == DType::bf16 ? static_cast<void*>(half.data()) : values.data(), type, {out, in});
    return ops.make_weight({&part, 1});
}

struct Array {
    Array(Ops& ops, DType type, std::int64_t rows, std::int64_t columns)
        : buffer(ops.allocate(std::size_t(rows * columns) * size_of(type), "bench")),
          view(buffer->data(), type, {rows, columns}) {
        if (type == DType::f32)
            for (std::int64_t i = 0; i < rows * columns; ++i) view.as<float>()[i] = 0.25f * float(i % 7 - 3);
        if (type == DType::bf16)
            for (std::int64_t i = 0; i < rows * columns; ++i)
                view.as<bf16>()[i] = to_bf16(0.25f * float(i % 7 - 3));
    }
    std::unique_ptr<Buffer> buffer;
    Tensor view;
};

void report(benchmark::State& state, Compute compute, double bytes, double flops) {
    const double n = double(state.iterations());
    const double peak = compute == Compute::f32 ? limits().f32 : limits().bf16;
    using benchmark::Counter;
    state.counters["GB/s"] = Counter(bytes * n / 1e9, Counter::kIsRate);
    state.counters["%bw"] = Counter(100 * bytes * n / limits().bandwidth, Counter::kIsRate);
    state.counters["GFLOP/s"] = Counter(flops * n / 1e9, Counter::kIsRate);
    state.counters["%peak"] = Counter(100 * flops * n / peak, Counter::kIsRate);
}

/// Enough copies of a weight that they can't stay in the caches.
void bench_linear(benchmark::State& state, Compute compute, int out, int in, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    const DType act = activation_type(compute);
    std::vector<Weight> weights;
    for (std::size_t bytes = 0; bytes < std::size_t(128) << 20; bytes += weights.back().bytes)
        weights.push_back(random_weight(*ops, act, out, in));
    Array x(*ops, act, rows, in), y(*ops, DType::f32, rows, out);
    std::size_t i = 0;
    for (auto _ : state) ops->linear(y.view, x.view, weights[i++ % weights.size()]);
    report(state, compute, double(weights[0].bytes), 2.0 * rows * out * in);
}

void bench_swiglu(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    const DType act = activation_type(compute);
    std::vector<Weight> weights;
    for (int i = 0; i < 30; ++i) weights.push_back(random_weight(*ops, act, 2 * kIntermediate, kHidden));
    Array x(*ops, act, rows, kHidden), y(*ops, act, rows, kIntermediate);
    std::size_t i = 0;
    for (auto _ : state) ops->linear_swiglu(y.view, x.view, weights[i++ % weights.size()]);
    report(state, compute, double(weights[0].bytes), 4.0 * rows * kIntermediate * kHidden);
}

void bench_rmsnorm(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    Array x(*ops, DType::f32, rows, kHidden), y(*ops, activation_type(compute), rows, kHidden);
    Array ones(*ops, DType::f32, 1, kHidden);
    const Vector w = ops->make_vector(Tensor(ones.view.data, DType::f32, {kHidden}));
    for (auto _ : state) ops->rmsnorm(y.view, x.view, w, 1e-5f);
    report(state, compute, double(x.view.bytes() + y.view.bytes()), 4.0 * rows * kHidden);
}

/// A model of SmolLM2's shape with random weights, as models/ would call the ops.
class Model {
public:
    Model(Compute compute, int max_tokens, int max_context)
        : compute_(compute), ops_(make_cpu_ops(compute, {.threads = threads()})), max_tokens_(max_tokens) {
        const DType act = activation_type(compute), weights = DType::bf16;
        shape_ = smollm2();
        n_pages_ = (max_context + kPageSize - 1) / kPageSize;
        for (int l = 0; l < kLayers; ++l) {
            Layer layer{random_weight(*ops_, weights, shape_.qkv_width(), kHidden),
                        random_weight(*ops_, weights, kHidden, kHidden),
                        random_weight(*ops_, weights, 2 * kIntermediate, kHidden),
                        random_weight(*ops_, weights, kHidden, kIntermediate),
                        {},
                        {},
                        {}};
            const std::int64_t values = std::int64_t(n_pages_) * shape_.n_kv_heads * kPageSize * 64;
            layer.k = std::make_unique<Array>(*ops_, act, values, 1);
            layer.v = std::make_unique<Array>(*ops_, act, values, 1);
            layer.kv.k = Tensor(layer.k->view.data, act, {n_pages_, 3, kPageSize, 64});
            layer.kv.v = Tensor(layer.v->view.data, act, {n_pages_, 3, kPageSize, 64});
            layers_.push_back(std::move(layer));
        }
        table_ = random_weight(*ops_, weights, kVocab, kHidden);
        const std::vector<float> ones(kHidden, 1.0f);
        norm_ = ops_->make_vector(Tensor(const_cast<float*>(ones.data()), DType::f32, {kHidden}));
        inv_freq_ = ops_->make_vector(Tensor(const_cast<float*>(ones.data()), DType::f32, {32}));
        for (const Layer& layer : layers_)
            layer_bytes_ += layer.qkv.bytes + layer.o.bytes + layer.gate_up.bytes + layer.down.bytes;
    }

    /// n_new tokens at the end of `context` keys for each of n_seqs sequences, which share their pages.
    void step(int n_seqs, int n_new, int context) {
        std::vector<int> ids, positions, slots, first = {0}, contexts, table, rows;
        for (int s = 0; s < n_seqs; ++s) {
            for (int i = context - n_new; i < context; ++i) {
                ids.push_back(i * 37 % kVocab);
                positions.push_back(i);
                slots.push_back(i);
            }
            first.push_back(int(ids.size()));
            contexts.push_back(context);
            for (int p = 0; p < n_pages_; ++p) table.push_back(p);
            rows.push_back(int(ids.size()) - 1);
        }
        const auto view = [](std::vector<int>& v) {
            return Tensor(v.data(), DType::i32, {std::int64_t(v.size())});
        };
        Batch batch;
        batch.token_ids = view(ids);
        batch.positions = view(positions);
        batch.slots = view(slots);
        batch.first_token = view(first);
        batch.context_len = view(contexts);
        batch.page_table = Tensor(table.data(), DType::i32, {n_seqs, n_pages_});
        batch.logit_rows = view(rows);
        forward(batch, n_seqs * n_new, n_seqs);
    }
    double decode_bytes() const { return double(layer_bytes_ + table_.bytes); }
    double layer_flops() const { return double(layer_bytes_); }  // two a bf16 value of two bytes
    double head_flops() const { return double(table_.bytes); }

private:
    struct Layer {
        Weight qkv, o, gate_up, down;
        std::unique_ptr<Array> k, v;
        KvCache kv;
    };

    void forward(const Batch& batch, int n, int n_logits) {
        const DType act = activation_type(compute_);
        if (!x_) {
            const auto make = [&](DType type, int width) {
                return std::make_unique<Array>(*ops_, type, max_tokens_, width);
            };
            x_ = make(DType::f32, kHidden), last_ = make(DType::f32, kHidden), h_ = make(act, kHidden);
            qkv_ = make(DType::f32, shape_.qkv_width()), attn_ = make(act, shape_.q_width()),
            mlp_ = make(act, kIntermediate);
            angles_ = make(DType::f32, 64), logits_ = std::make_unique<Array>(*ops_, DType::f32, 64, kVocab);
        }
        Ops& op = *ops_;
        const Tensor x = x_->view.rows(n), h = h_->view.rows(n), qkv = qkv_->view.rows(n),
                     attn = attn_->view.rows(n);
        const Tensor angles(angles_->view.data, DType::f32, {n, 2, 32});
        op.embed(x, table_, batch.token_ids);
        op.rope_angles(angles, batch.positions, inv_freq_, 1);
        for (const Layer& layer : layers_) {
            op.rmsnorm(h, x, norm_, 1e-5f);
            op.linear(qkv, h, layer.qkv);
            op.qk_norm_rope_store_kv(qkv, layer.kv, angles, {}, {}, 0, batch, shape_);
            op.attention(attn, qkv.columns(0, shape_.q_width()), layer.kv, batch, shape_);
            op.linear_add(x, attn, layer.o);
            op.rmsnorm(h, x, norm_, 1e-5f);
            op.linear_swiglu(mlp_->view.rows(n), h, layer.gate_up);
            op.linear_add(x, mlp_->view.rows(n), layer.down);
        }
        const Tensor last = last_->view.rows(n_logits), normed = h_->view.rows(n_logits);
        op.gather_rows(last, x, batch.logit_rows);
        op.rmsnorm(normed, last, norm_, 1e-5f);
        op.linear(logits_->view.rows(n_logits), normed, table_);
    }

    Compute compute_;
    std::unique_ptr<Ops> ops_;
    int max_tokens_, n_pages_;
    AttentionShape shape_;
    std::vector<Layer> layers_;
    Weight table_;
    Vector norm_, inv_freq_;
    std::size_t layer_bytes_ = 0;
    std::unique_ptr<Array> x_, last_, h_, qkv_, attn_, mlp_, angles_, logits_;
};

void bench_step(benchmark::State& state, Compute compute, int n_seqs, int n_new, int context) {
    Model model(compute, n_seqs * n_new, context);
    for (int warm = 0; warm < 2; ++warm) model.step(n_seqs, n_new, context);
    for (auto _ : state) model.step(n_seqs, n_new, context);
    const double tokens = double(n_seqs) * n_new;
    report(state, compute, model.decode_bytes(), tokens * model.layer_flops() + n_seqs * model.head_flops());
    state.counters["tok/s"] =
        benchmark::Counter(tokens * double(state.iterations()), benchmark::Counter::kIsRate);
}

/// One layer's attention over `context` keys; bytes are the keys and values read.
void bench_attention(benchmark::State& state, Compute compute, int n_seqs, int n_new, int context) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    const DType act = activation_type(compute);
    const AttentionShape shape = smollm2();
    const int pages = (context + kPageSize - 1) / kPageSize, n = n_seqs * n_new;
    Array k(*ops, act, std::int64_t(pages) * n_seqs * 3 * kPageSize, 64),
        v(*ops, act, std::int64_t(pages) * n_seqs * 3 * kPageSize, 64);
    KvCache kv{Tensor(k.view.data, act, {pages * n_seqs, 3, kPageSize, 64}),
               Tensor(v.view.data, act, {pages * n_seqs, 3, kPageSize, 64})};
    Array q(*ops, DType::f32, n, shape.q_width()), out(*ops, act, n, shape.q_width());
    std::vector<int> first = {0}, contexts, table;
    for (int s = 0; s < n_seqs; ++s) {
        first.push_back((s + 1) * n_new);
        contexts.push_back(context);
        for (int p = 0; p < pages; ++p) table.push_back(s * pages + p);
    }
    Batch batch;
    batch.first_token = Tensor(first.data(), DType::i32, {n_seqs + 1});
    batch.context_len = Tensor(contexts.data(), DType::i32, {n_seqs});
    batch.page_table = Tensor(table.data(), DType::i32, {n_seqs, pages});
    batch.slots = batch.first_token;
    for (auto _ : state) ops->attention(out.view, q.view, kv, batch, shape);
    const double keys = double(n_seqs) * (n_new * (context - n_new) + 0.5 * n_new * (n_new + 1));
    report(state, compute, double(k.view.bytes() + v.view.bytes()), keys * shape.q_width() * 4);
}

/// Rows of a tied embedding, gathered from their panels.
void bench_embed(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    const Weight table = random_weight(*ops, DType::bf16, kVocab, kHidden);
    Array x(*ops, DType::f32, rows, kHidden);
    std::vector<int> ids;
    for (int i = 0; i < rows; ++i) ids.push_back(int(std::int64_t(i) * 7919 % kVocab));
    for (auto _ : state) ops->embed(x.view, table, Tensor(ids.data(), DType::i32, {rows}));
    report(state, compute, double(x.view.bytes()) * 1.5, 0);
}

void bench_rope_angles(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    Array angles(*ops, DType::f32, rows, 64), ones(*ops, DType::f32, 1, 32);
    const Vector frequencies = ops->make_vector(Tensor(ones.view.data, DType::f32, {32}));
    std::vector<int> positions(std::size_t(rows), 1000);
    for (auto _ : state)
        ops->rope_angles(Tensor(angles.view.data, DType::f32, {rows, 2, 32}),
                         Tensor(positions.data(), DType::i32, {rows}), frequencies, 1);
    report(state, compute, double(angles.view.bytes()), 0);
}

/// Rotates q and k and stores k and v of one sequence's new tokens.
void bench_store_kv(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    const DType act = activation_type(compute);
    const AttentionShape shape = smollm2();
    const int pages = (rows + kPageSize - 1) / kPageSize;
    Array k(*ops, act, std::int64_t(pages) * 3 * kPageSize, 64), v(*ops, act, k.view.dim(0), 64);
    const KvCache kv{Tensor(k.view.data, act, {pages, 3, kPageSize, 64}),
                     Tensor(v.view.data, act, {pages, 3, kPageSize, 64})};
    Array qkv(*ops, DType::f32, rows, shape.qkv_width()), angles(*ops, DType::f32, rows, 64);
    for (std::int64_t i = 0; i < angles.view.size(); ++i)
        angles.view.as<float>()[i] = i % 64 < 32 ? 0.8f : 0.6f;
    std::vector<int> slots, table, first = {0, rows}, context = {rows};
    for (int i = 0; i < rows; ++i) slots.push_back(i);
    for (int i = 0; i < pages; ++i) table.push_back(i);
    Batch batch;
    batch.slots = Tensor(slots.data(), DType::i32, {rows});
    batch.first_token = Tensor(first.data(), DType::i32, {2});
    batch.context_len = Tensor(context.data(), DType::i32, {1});
    batch.page_table = Tensor(table.data(), DType::i32, {1, pages});
    for (auto _ : state)
        ops->qk_norm_rope_store_kv(qkv.view, kv, Tensor(angles.view.data, DType::f32, {rows, 2, 32}), {}, {},
                                   0, batch, shape);
    report(state, compute, double(qkv.view.bytes()) * 1.8 + double(rows) * 384 * double(size_of(act)),
           4.0 * rows * 12 * 64);
}

void bench_gather_rows(benchmark::State& state, Compute compute, int rows) {
    const auto ops = make_cpu_ops(compute, {.threads = threads()});
    Array x(*ops, DType::f32, 512, kHidden), out(*ops, DType::f32, rows, kHidden);
    std::vector<int> chosen;
    for (int i = 0; i < rows; ++i) chosen.push_back(i * 37 % 512);
    for (auto _ : state) ops->gather_rows(out.view, x.view, Tensor(chosen.data(), DType::i32, {rows}));
    report(state, compute, double(out.view.bytes()) * 2, 0);
}

template <typename... Args>
void add(const std::string& name, void (*function)(benchmark::State&, Compute, Args...), Args... args) {
    for (const Compute compute : {Compute::bf16, Compute::f32})
        benchmark::RegisterBenchmark((name + "/" + name_of(compute)).c_str(),
                                     [=](benchmark::State& state) { function(state, compute, args...); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
}

void register_all() {
    for (const int rows : {1, 2, 4, 8, 12, 16, 32, 128, 512}) {
        const std::string suffix = "/rows:" + std::to_string(rows);
        add("linear_qkv" + suffix, bench_linear, 960, kHidden, rows);
        add("linear_o" + suffix, bench_linear, kHidden, kHidden, rows);
        add("linear_down" + suffix, bench_linear, kHidden, kIntermediate, rows);
        add("linear_swiglu" + suffix, bench_swiglu, rows);
        add("rmsnorm" + suffix, bench_rmsnorm, rows);
        add("embed" + suffix, bench_embed, rows);
        add("rope_angles" + suffix, bench_rope_angles, rows);
        add("rope_store_kv" + suffix, bench_store_kv, rows);
        add("gather_rows" + suffix, bench_gather_rows, rows);
    }
    add("lm_head/rows:1", bench_linear, kVocab, kHidden, 1);
    for (const int context : {128, 512, 4096})
        add("attention_decode/context:" + std::to_string(context), bench_attention, 1, 1, context);
    add("attention_decode/batch:32/context:512", bench_attention, 32, 1, 512);
    for (const int context : {512, 1500})
        add("attention_prefill/tokens:" + std::to_string(context), bench_attention, 1, context, context);
    for (const int context : {16, 512, 4096})
        add("step_decode/context:" + std::to_string(context), bench_step, 1, 1, context);
    add("step_decode/batch:32/context:128", bench_step, 32, 1, 128);
    for (const int n : {16, 64, 512, 1500})
        add("step_prefill/tokens:" + std::to_string(n), bench_step, 1, n, n);
}

}  // namespace
}  // namespace llmgen

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    const llmgen::Limits& l = llmgen::limits();
    std::fprintf(stderr, "%s\nread %.1f GB/s, matmul f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n",
                 llmgen::make_cpu_ops(llmgen::Compute::bf16, {.threads = llmgen::threads()})
                     ->info()
                     .description.c_str(),
                 l.bandwidth / 1e9, l.f32 / 1e9, l.bf16 / 1e9);
    llmgen::register_all();
    benchmark::RunSpecifiedBenchmarks();
}
