// out[t] = round(x[t] / sqrt(mean(x[t]²) + eps)) · weight
#include <cmath>

#include "ops/cpu/element.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu::reference {

void rmsnorm(Tensor out, Tensor x, const Vector& weight, float eps) {
    const auto* w = static_cast<const float*>(weight.buffer->data());
    const std::int64_t hidden = x.dim(1);
    for (std::int64_t t = 0; t < x.dim(0); ++t) {
        double sum = 0;  // f64: the oracle must not be the least exact party
        for (std::int64_t d = 0; d < hidden; ++d) sum += double(at(x, t, d)) * at(x, t, d);
        const double scale = 1 / std::sqrt(sum / double(hidden) + eps);
        for (std::int64_t d = 0; d < hidden; ++d)
            set(out, t, d, round_to(out.dtype, float(at(x, t, d) * scale)) * w[d]);
    }
}

}  // namespace llmgen::cpu::reference
