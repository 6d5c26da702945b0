#include "ops/cpu/linear_onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string_view>

namespace llmgen::cpu {
namespace {

using Key = std::array<std::int64_t, 6>;  // rows, out, in, strides of x and y, add

}  // namespace

struct OneDnn::Impl {
    int threads;
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    // Made at first use: 0.3 ms each. Empty where oneDNN would take a slow way.
    std::map<Key, std::optional<dnnl::matmul>> primitives;

    static dnnl::memory::desc weight_desc(const PanelWeight& w) {
        return {{w.in, w.out}, dnnl::memory::data_type::bf16, dnnl::memory::format_tag::BA16a32b2a};
    }
    static dnnl::memory::desc row_desc(const Tensor& t, dnnl::memory::data_type type) {
        return {{t.dim(0), t.dim(1)}, type, dnnl::memory::dims{t.stride[0], 1}};
    }

    std::optional<dnnl::matmul> make(const Tensor& y, const Tensor& x, const PanelWeight& w, bool add) const
        try {
        dnnl::primitive_attr attributes;
        if (add) {
            dnnl::post_ops sum;
            sum.append_sum(1.0f);
            attributes.set_post_ops(sum);
        }
        const dnnl::matmul::desc desc(row_desc(x, dnnl::memory::data_type::bf16), weight_desc(w),
                                      row_desc(y, dnnl::memory::data_type::f32));
        const dnnl::matmul::primitive_desc primitive(desc, attributes, engine);
        if (std::string_view(primitive.impl_info_str()).find("brg") == std::string_view::npos)
            return std::nullopt;
        return dnnl::matmul(primitive);
    } catch (const dnnl::error&) {  // "could not create a primitive descriptor": not for this machine
        return std::nullopt;
    }
};

OneDnn::OneDnn(int threads) : impl_(std::make_unique<Impl>()) { impl_->threads = threads; }
OneDnn::~OneDnn() = default;

std::int64_t OneDnn::rows_for(std::int64_t rows, const PanelWeight& w) const {
    if (rows < kMinRows || w.dtype != DType::bf16 || w.in % 32 != 0) return 0;
    std::int64_t n = kMinRows;
    while (n * 2 <= std::min<std::int64_t>(rows, 512)) n *= 2;
    return n;
}

bool OneDnn::run(const Tensor& y, const Tensor& x, const PanelWeight& w, bool add) {
    omp_set_num_threads(
        impl_->threads);  // of teams that this thread starts: oneDNN takes the pool's size from it
    const Key key{x.dim(0), w.out, w.in, x.stride[0], y.stride[0], add};
    auto found = impl_->primitives.find(key);
    if (found == impl_->primitives.end())
        found = impl_->primitives.emplace(key, impl_->make(y, x, w, add)).first;
    if (!found->second) return false;
    const dnnl::memory source(Impl::row_desc(x, dnnl::memory::data_type::bf16), impl_->engine, x.data);
    const dnnl::memory weights(Impl::weight_desc(w), impl_->engine, w.memory.data);
    const dnnl::memory result(Impl::row_desc(y, dnnl::memory::data_type::f32), impl_->engine, y.data);
    found->second->execute(impl_->stream,
                           {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, result}});
    impl_->stream.wait();
    return true;
}

}  // namespace llmgen::cpu
