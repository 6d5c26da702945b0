// The backends that every op's test runs over, and the device memory of a test: outputs start as NaN
// patterns, so that what an op forgets to write is seen.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/ops.h"
#ifdef LLMGEN_EMULATED_CUDA
#include "simt/device/emulated_runtime.h"
#endif
#ifdef LLMGEN_HARDWARE
#include "ops/cuda/cuda_ops.h"
#endif

namespace llmgen::test {

struct BackendCase {
    std::string name;
    Compute compute;
    std::function<std::unique_ptr<Ops>()> open;
    bool exact_rows = true;  // rows are bit-identical whatever the batch
};

inline std::vector<BackendCase> every_backend() {
    std::vector<BackendCase> cases;
    for (const Compute compute : {Compute::f32, Compute::bf16}) {
#ifdef LLMGEN_EMULATED_CUDA
        cases.push_back({std::string("emulated_") + name_of(compute), compute,
                         [=] { return simt::make_emulated_cuda_ops(compute); }, false});
        continue;
#endif
#ifdef LLMGEN_HARDWARE
        cases.push_back({std::string("cuda_") + name_of(compute), compute,
                         [=] { return make_cuda_ops(0, compute); }, false});
        continue;
#endif
        const auto add = [&](const std::string& name, CpuOptions options) {
            cases.push_back(
                {name + "_" + name_of(compute), compute, [=] { return make_cpu_ops(compute, options); }});
        };
        add("reference", {.reference = true});
        add("cpu1", {.threads = 1});
        add("cpu3", {.threads = 3});
        if (compute == Compute::bf16) {
            add("onednn", {.threads = 2, .onednn = true});
            cases.back().exact_rows = false;
        }
        // Capped: what a lesser machine would run. A cap above the machine's own set repeats that set.
        add("avx512", {.threads = 2, .isa = cpu::Isa::avx512});
        add("avx2", {.threads = 2, .isa = cpu::Isa::avx2});
        add("scalar", {.threads = 2, .isa = cpu::Isa::scalar});
    }
    return cases;
}

class EveryBackend : public testing::TestWithParam<BackendCase> {
protected:
    void SetUp() override { ops_ = GetParam().open(); }
    Ops& ops() { return *ops_; }
    DType act() const { return activation_type(GetParam().compute); }
    /// Unit round-off of a type.
    static double eps(DType type) { return type == DType::bf16 ? 0x1p-8 : 0x1p-24; }

    std::unique_ptr<Ops> ops_;
};

inline std::string case_name(const testing::TestParamInfo<BackendCase>& info) { return info.param.name; }

/// splitmix64: the same numbers everywhere.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    float uniform(float scale = 1) { return scale * (float(next() >> 40) * 0x1p-23f - 1); }
    int below(int n) { return int(next() % std::uint64_t(n)); }
    std::vector<float> values(std::int64_t n, float scale = 1) {
        std::vector<float> v(static_cast<std::size_t>(n));
        for (float& x : v) x = uniform(scale);
        return v;
    }

private:
    std::uint64_t state_;
};

inline float rounded(DType type, float value) {
    return type == DType::bf16 ? to_f32(to_bf16(value)) : type == DType::f16 ? to_f32(to_f16(value)) : value;
}
inline std::vector<float> rounded(DType type, std::vector<float> values) {
    for (float& v : values) v = rounded(type, v);
    return values;
}

/// The bytes of `values` as `type`.
inline std::vector<char> encode(DType type, const std::vector<float>& values) {
    std::vector<char> bytes(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = values[i];
        if (type == DType::bf16) reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(values[i]);
        if (type == DType::f16) reinterpret_cast<f16*>(bytes.data())[i] = to_f16(values[i]);
    }
    return bytes;
}

/// A matrix in the backend's memory whose rows stand `pad` elements apart from each other.
class Matrix {
public:
    Matrix(Ops& ops, DType type, std::int64_t rows, std::int64_t columns, std::int64_t pad = 0) : ops_(ops) {
        const std::int64_t stride = columns + pad;
        buffer_ = ops.allocate(std::size_t(rows * stride + 1) * size_of(type), "test");
        whole_ = Tensor(buffer_->data(), type, {rows, stride});
        view_ = whole_.columns(0, columns);
        const std::vector<char> poison(std::size_t(whole_.bytes()), char(0xff));
        ops.upload(whole_, poison.data());
    }
    Matrix(Ops& ops,
           DType type,
           std::int64_t rows,
           std::int64_t columns,
           const std::vector<float>& values,
           std::int64_t pad = 0)
        : Matrix(ops, type, rows, columns, pad) {
        ops.upload(view_, encode(type, values).data());
    }
    Tensor view() const { return view_; }
    std::vector<float> values() const { return read(view_); }
    /// True while the space between the rows still holds its poison.
    bool padding_untouched() const {
        const std::vector<float> all = read(whole_);
        for (std::int64_t r = 0; r < whole_.dim(0); ++r)
            for (std::int64_t c = view_.dim(1); c < whole_.dim(1); ++c)
                if (!std::isnan(all[std::size_t(r * whole_.dim(1) + c)])) return false;
        return true;
    }

private:
    std::vector<float> read(const Tensor& t) const {
        std::vector<char> bytes(std::size_t(t.bytes()));
        ops_.download(bytes.data(), t);
        std::vector<float> values(std::size_t(t.size()));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = t.dtype == DType::f32 ? reinterpret_cast<const float*>(bytes.data())[i]
                                              : to_f32(reinterpret_cast<const bf16*>(bytes.data())[i]);
        return values;
    }

    Ops& ops_;
    std::unique_ptr<Buffer> buffer_;
    Tensor whole_, view_;
};

/// An i32 array in the backend's memory.
class Integers {
public:
    Integers(Ops& ops, std::vector<int> values) : values_(std::move(values)) {
        buffer_ = ops.allocate(values_.size() * 4 + 4, "test");
        if (!values_.empty()) ops.upload(view(), values_.data());
    }
    Tensor view() const { return Tensor(buffer_->data(), DType::i32, {std::int64_t(values_.size())}); }
    Tensor view(std::int64_t rows, std::int64_t columns) const {
        return Tensor(buffer_->data(), DType::i32, {rows, columns});
    }

private:
    std::vector<int> values_;
    std::unique_ptr<Buffer> buffer_;
};

inline Tensor host_view(const std::vector<char>& bytes,
                        DType type,
                        std::initializer_list<std::int64_t> dims) {
    return Tensor(const_cast<char*>(bytes.data()), type, dims);
}

inline Weight make_weight(
    Ops& ops, DType type, std::int64_t out, std::int64_t in, const std::vector<float>& values) {
    const std::vector<char> bytes = encode(type, values);
    const Tensor part = host_view(bytes, type, {out, in});
    return ops.make_weight({&part, 1});
}

inline Vector make_vector(Ops& ops, const std::vector<float>& values) {
    const std::vector<char> bytes = encode(DType::f32, values);
    return ops.make_vector(host_view(bytes, DType::f32, {std::int64_t(values.size())}));
}

/// Every value within its own bound; reports the first that is not.
inline void expect_within(const std::vector<float>& got,
                          const std::vector<double>& want,
                          const std::vector<double>& bound) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::abs(got[i] - want[i]), bound[i])
            << "index " << i << ": " << got[i] << ", expected " << want[i];
}
inline bool bit_equal(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace llmgen::test
