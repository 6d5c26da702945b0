// The dynamic profile of each kernel on a shape of decode or prefill, beside the table that is checked in,
// kernels/profile.tsv. `ptx_test --gtest_filter=Profile.* --write-profile=kernels/profile.tsv` writes it
// anew.
//
// Shapes are those of a model of 8B, cut in the dimension that only repeats (rows of a matrix, heads); `must`
// counts each operand once, so read / must is what the kernel reads more than it has to, from L1, L2 or
// memory.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "kernels.h"
#include "ptx/options.h"
#include "ptx/profile.h"
#include "ptx/witness.h"
#include "simt/attention_args.h"
#include "simt/testing.h"

namespace llmgen::ptx {
namespace {

using kernels::Dependent;
using simt::DeviceArray;
using simt::Values;

struct Case {
    std::string name;
    std::uint64_t outputs, must_read, must_write;
    LaunchProfile profile;
};

class Recorder {
public:
    /// Runs `launch` alone and keeps what it did under `name`; a second launch in it becomes a case of its
    /// own.
    template <typename Launch>
    void add(const std::string& name,
             std::size_t outputs,
             std::size_t must_read,
             std::size_t must_write,
             Launch launch) {
        Profile profile;
        Witness& witness = *Witness::current();
        witness.profile = &profile;
        launch();
        witness.profile = nullptr;
        profile.finish();
        for (std::size_t i = 0; i < profile.launches.size(); ++i)
            if (profile.launches[i].second.threads > 0)
                cases.push_back({i == 0 ? name : name + ": " + profile.launches[i].first, outputs, must_read,
                                 must_write, profile.launches[i].second});
    }
    std::vector<Case> cases;
};

void add_gemvs(Recorder& recorder) {
    const int in = 4096, out = 64;
    DeviceArray<bf16> w(Values(1).vector<bf16>(std::size_t(in * out))),
        x(Values(2).vector<bf16>(std::size_t(8 * in)));
    DeviceArray<float> stream(Values(3).vector<float>(std::size_t(8 * in))),
        norm(Values(4).vector<float>(std::size_t(in)));
    DeviceArray<float> y(Values(5).vector<float>(std::size_t(8 * out)));
    DeviceArray<bf16> mlp(8 * out);
    DeviceArray<kernels::Best> best(std::vector<kernels::Best>(8, 0));
    auto arguments = [&](int n, bool with_norm) {
        kernels::Gemv p{};
        p.weight = w.get();
        p.weight_type = p.act_type = DType::bf16;
        p.x = with_norm ? static_cast<const void*>(stream.get()) : x.get();
        p.norm_weight = with_norm ? norm.get() : nullptr;
        p.eps = 1e-5f;
        p.x_stride = p.in = in;
        p.n_tokens = n;
        p.out = out;
        p.y = y.get();
        p.y_type = DType::f32;
        p.y_stride = out;
        p.best = best;
        return p;
    };
    const std::size_t weights = std::size_t(in * out * 2);
    for (const int n : {1, 4, 8}) {
        const auto un = std::size_t(n);
        recorder.add(fmt::format("gemv_add, {} rows", n), un * out, weights + un * (in * 2 + out * 4),
                     un * out * 4, [&] { kernels::gemv_add(arguments(n, false), Dependent::yes, nullptr); });
    }
    recorder.add("norm + gemv, 1 row", out, weights + in * 8, out * 4,
                 [&] { kernels::gemv(arguments(1, true), Dependent::yes, nullptr); });
    recorder.add("norm + gemv_swiglu, 1 row", out / 2, weights + in * 8, out, [&] {
        auto p = arguments(1, true);
        p.y = mlp.get();
        p.y_type = DType::bf16;
        kernels::gemv_swiglu(p, Dependent::yes, nullptr);
    });
    recorder.add("norm + gemv_argmax, 1 row", out, weights + in * 8 + 8, 8, [&] {
        auto p = arguments(1, true);
        p.y = nullptr;
        kernels::gemv_argmax(p, Dependent::yes, nullptr);
    });
    DeviceArray<float> angles(Values(6).vector<float>(16)), qkv(64);
    DeviceArray<int> slots(std::vector<int>{5});
    DeviceArray<bf16> k(16 * 16), v(16 * 16);
    recorder.add("norm + gemv_qkv, 1 row", out, weights + in * 8 + 68, 32 * 4 + 32 * 2, [&] {
        auto p = arguments(1, true);
        p.rope = {qkv,     64, k.get(), v.get(), DType::bf16, angles, slots, nullptr,
                  nullptr, 0,  1,       2,       1,           16,     16};
        kernels::gemv_qkv(p, Dependent::yes, nullptr);
    });
}

void add_attention(Recorder& recorder) {
    const int head_dim = 128, context = 512, n_heads = 4, pages = context / 16;
    const auto size = std::size_t(pages * 16 * head_dim);
    DeviceArray<bf16> k(Values(1).vector<bf16>(size)), v(Values(2).vector<bf16>(size));
    auto run = [&](int n_new, bool decode) {
        const auto rows = std::size_t(n_new * n_heads * head_dim);
        DeviceArray<float> q(Values(3).vector<float>(rows));
        DeviceArray<bf16> out(rows);
        DeviceArray<int> first(std::vector<int>{0, n_new}), contexts(std::vector<int>{context});
        std::vector<int> order;
        for (int i = 0; i < pages; ++i) order.push_back((i * 5 + 3) % pages);
        DeviceArray<int> table(order);
        DeviceArray<float> scratch(kernels::attn_decode_scratch(1, n_heads, 1, head_dim));
        DeviceArray<int> arrivals(std::vector<int>{0});
        kernels::Attention p = simt::attention_of({n_heads, 1, head_dim}, {first, contexts, table, pages, 1},
                                                  out.get(), q.get(), k.get(), v.get(), 0.088f);
        p.arrivals = arrivals;
        const std::size_t must = 2 * size * 2 + rows * 4 + std::size_t(pages) * 4;
        recorder.add(decode ? "attn_decode, 512 keys, 4 heads" : "attn_prefill, 32 of 512 keys, 4 heads",
                     rows, must, rows * 2, [&] {
                         if (decode)
                             kernels::attn_decode(p, scratch, context, Dependent::yes, nullptr);
                         else
                             kernels::attn_prefill(p, kernels::attn_prefill_tiles(n_new, n_heads, 1),
                                                   Dependent::yes, nullptr);
                     });
    };
    run(1, true);
    run(32, false);
}

void add_rows(Recorder& recorder) {
    const int hidden = 4096;
    DeviceArray<bf16> table(Values(1).vector<bf16>(std::size_t(4 * hidden))), out(hidden);
    DeviceArray<float> x(Values(2).vector<float>(std::size_t(2 * hidden))),
        weight(Values(3).vector<float>(std::size_t(hidden)));
    DeviceArray<int> ids(std::vector<int>{2});
    recorder.add("embed", hidden, hidden * 2 + 4, hidden * 4,
                 [&] { kernels::embed(x, hidden, table, DType::bf16, ids, 1, hidden, 4, nullptr); });
    recorder.add("rmsnorm", hidden, hidden * 8, hidden * 2, [&] {
        kernels::RmsNorm p{};
        p.out = out.get();
        p.out_type = DType::bf16;
        p.out_stride = p.x_stride = p.hidden = hidden;
        p.x = x;
        p.weight = weight;
        p.n_tokens = 1;
        p.eps = 1e-5f;
        kernels::rmsnorm(p, Dependent::yes, nullptr);
    });
    recorder.add("swiglu", hidden, hidden * 8, hidden * 2,
                 [&] { kernels::swiglu(out.get(), DType::bf16, hidden, x, 1, hidden, nullptr); });
    DeviceArray<int> mix(std::vector<int>{0});
    DeviceArray<char> large(std::vector<char>(1 << 18, 'x'));
    recorder.add("read, 256 KiB", 1 << 16, 1 << 18, 4,
                 [&] { kernels::read_all(mix, large, 1 << 18, 2, nullptr); });
    const int heads = 8, head_dim = 128, n = heads * head_dim;
    DeviceArray<float> qkv(Values(4).vector<float>(std::size_t(n))),
        angles(Values(5).vector<float>(std::size_t(head_dim)));
    DeviceArray<float> norms(Values(6).vector<float>(std::size_t(head_dim)));
    DeviceArray<bf16> k(16 * head_dim), v(16 * head_dim);
    DeviceArray<int> slots(std::vector<int>{5});
    for (const bool norm : {false, true})
        recorder.add(norm ? "qk_norm_rope_store_kv" : "rope_store_kv", std::size_t(n),
                     std::size_t(n * 4 + head_dim * 4), std::size_t(6 * head_dim * 4 + 2 * head_dim * 2),
                     [&] {
                         kernels::RopeStore p{};
                         p.qkv = qkv;
                         p.qkv_stride = n;
                         p.k = k.get();
                         p.v = v.get();
                         p.kv_type = DType::bf16;
                         p.cos_sin = angles;
                         p.slots = slots;
                         p.q_norm = p.k_norm = norm ? norms.get() : nullptr;
                         p.eps = 1e-5f;
                         p.n_tokens = 1;
                         p.n_heads = heads - 2;
                         p.n_kv_heads = 1;
                         p.head_dim = p.rotary_dim = head_dim;
                         kernels::qk_norm_rope_store_kv(p, Dependent::yes, nullptr);
                     });
}

void add_choices(Recorder& recorder) {
    const int vocab = 8192;
    const auto logits = Values(7).vector<float>(std::size_t(vocab), 4);
    DeviceArray<kernels::Best> best(std::vector<kernels::Best>{0});
    DeviceArray<float> row(logits);
    recorder.add("argmax, 8192 ids", vocab, vocab * 4, 8,
                 [&] { kernels::argmax(best, row, vocab, 1, vocab, nullptr); });
    DeviceArray<kernels::Sampled> out(1);
    for (const bool filters : {false, true}) {
        kernels::SampleRow settings{};
        settings.inverse_temperature = 1;
        settings.top_p = filters ? 0.9 : 1;
        settings.top_k = filters ? 40 : 0;
        settings.min_p = filters ? 0.01 : 0;
        settings.repetition = 1;
        DeviceArray<kernels::SampleRow> rows(std::vector<kernels::SampleRow>{settings});
        DeviceArray<float> fresh(logits);
        recorder.add(filters ? "sample with filters, 8192 ids" : "sample, 8192 ids", vocab, vocab * 4, 8,
                     [&] { kernels::sample(out, fresh, vocab, rows, 1, vocab, nullptr); });
    }
}

const std::vector<std::string> kColumns = {"launch",
                                           "outputs",
                                           "instructions",
                                           "integer",
                                           "f32",
                                           "convert_move",
                                           "memory",
                                           "shuffle",
                                           "mma_ldmatrix",
                                           "bytes_read",
                                           "must_read",
                                           "bytes_written",
                                           "must_write",
                                           "sectors_per_request",
                                           "conflicts_per_request",
                                           "in_flight",
                                           "block_barriers"};

std::string row_of(const Case& c) {
    const LaunchProfile& p = c.profile;
    const auto outputs = double(c.outputs);
    auto per_output = [&](std::initializer_list<Class> kinds) {
        std::uint64_t n = 0;
        for (const Class kind : kinds) n += p.instructions[std::size_t(kind)];
        return double(n) / outputs;
    };
    return fmt::format(
        "{}\t{}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.3f}\t{:.3f}\t{}\t{}\t{}\t{}\t{:.2f}\t{:.3f}\t{}"
        "\t{:.2f}",
        c.name, c.outputs, double(p.all()) / outputs, per_output({Class::integer}),
        per_output({Class::f32, Class::f64}), per_output({Class::convert, Class::move}),
        per_output({Class::global_load, Class::global_store, Class::shared_load, Class::shared_store,
                    Class::local, Class::atomic, Class::async_copy}),
        per_output({Class::shuffle}), per_output({Class::mma, Class::ldmatrix}), p.bytes_read, c.must_read,
        p.bytes_written, c.must_write, double(p.sectors) / double(std::max<std::uint64_t>(p.requests, 1)),
        double(p.conflicts) / double(std::max<std::uint64_t>(p.shared_requests, 1)), p.in_flight,
        double(p.block_barriers) / double(p.threads));
}

std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
    return fields;
}

/// What a column may differ by: another nvcc schedules otherwise, but moves the same bytes.
double tolerance(const std::string& column) {
    return column == "bytes_read" || column == "bytes_written" || column.starts_with("must") ||
                   column == "outputs" || column == "block_barriers"
               ? 0.0
               : 0.1;
}

TEST(Profile, IsAsTheTableSays) {
    if (Witness::current() == nullptr) GTEST_SKIP() << "needs nvcc, at build time";
    simt::Setting setting;
    Recorder recorder;
    add_gemvs(recorder);
    add_attention(recorder);
    add_rows(recorder);
    add_choices(recorder);
    std::map<std::string, std::vector<std::string>> table;
    if (!options().write_profile.empty()) {
        std::ofstream out(options().write_profile);
        out << fmt::format("{}\n", fmt::join(kColumns, "\t"));
        for (const Case& c : recorder.cases) out << row_of(c) << '\n';
        return;
    }
    std::ifstream in(options().profile);
    std::string line;
    std::getline(in, line);
    ASSERT_EQ(split(line), kColumns);
    while (std::getline(in, line)) {
        auto fields = split(line);
        table[fields[0]] = fields;
    }
    if (options().only.empty()) {
        EXPECT_EQ(table.size(), recorder.cases.size());
    }
    for (const Case& c : recorder.cases) {
        const auto got = split(row_of(c)), want = table[c.name];
        ASSERT_EQ(got.size(), want.size()) << c.name << " is not in the table; write it anew";
        for (std::size_t i = 1; i < got.size(); ++i) {
            const double g = std::stod(got[i]), w = std::stod(want[i]);
            EXPECT_LE(std::abs(g - w), tolerance(kColumns[i]) * std::max(w, 0.05))
                << c.name << ": " << kColumns[i] << " is " << g << ", the table says " << w
                << "; if that is meant, write the table anew (head of profile_test.cpp)";
        }
    }
}

}  // namespace
}  // namespace llmgen::ptx
