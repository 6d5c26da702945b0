// x[t] = table[ids[t]], and the gathering of rows.
#include <cstring>

#include "ops/cpu/element.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/reference.h"

namespace llmgen::cpu::reference {

void embed(Tensor x, const Weight& table, Tensor ids) {
    const PanelWeight& w = panels_of(table);
    for (std::int64_t t = 0; t < ids.dim(0); ++t)
        for (std::int64_t d = 0; d < table.in; ++d) set(x, t, d, w.at(ids.as<int>()[t], d));
}

void gather_rows(Tensor out, Tensor x, Tensor rows) {
    for (std::int64_t i = 0; i < rows.dim(0); ++i)
        std::memmove(out.as<float>() + i * out.stride[0], x.as<float>() + rows.as<int>()[i] * x.stride[0],
                     std::size_t(x.dim(1)) * sizeof(float));
}

}  // namespace llmgen::cpu::reference
