// The matrix products: out = W x + b, x += W h + b, out = silu(g) · u.
#include <cmath>

#include "ops/cpu/element.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu::reference {
namespace {

double dot(const Tensor& x, std::int64_t t, const Weight& w, std::int64_t o) {
    const PanelWeight& panels = panels_of(w);
    double sum = 0;
    for (std::int64_t i = 0; i < w.in; ++i) sum += double(at(x, t, i)) * panels.at(o, i);
    return w.bias ? sum + static_cast<const float*>(w.bias->data())[o] : sum;
}

}  // namespace

void linear(Tensor out, Tensor x, const Weight& w) {
    for (std::int64_t t = 0; t < x.dim(0); ++t)
        for (std::int64_t o = 0; o < w.out; ++o) set(out, t, o, float(dot(x, t, w, o)));
}

void linear_add(Tensor x, Tensor h, const Weight& w) {
    for (std::int64_t t = 0; t < h.dim(0); ++t)
        for (std::int64_t o = 0; o < w.out; ++o) set(x, t, o, float(at(x, t, o) + dot(h, t, w, o)));
}

void linear_swiglu(Tensor out, Tensor h, const Weight& gate_up) {
    const std::int64_t half = gate_up.out / 2;
    for (std::int64_t t = 0; t < h.dim(0); ++t)
        for (std::int64_t o = 0; o < half; ++o) {
            const double g = dot(h, t, gate_up, o), u = dot(h, t, gate_up, half + o);
            set(out, t, o, float(g / (1 + std::exp(-g)) * u));
        }
}

}  // namespace llmgen::cpu::reference
