// bf16 matrix products through oneDNN, for chips whose matrix unit (AMX) our own kernels do not speak. It
// reads the panels where they are: its BA16a32b2a is our layout wherever `in` is a multiple of 32.
#pragma once

#include <memory>

#include "base/tensor.h"
#include "ops/cpu/packed_weight.h"

namespace llmgen::cpu {

class OneDnn {
public:
    static constexpr std::int64_t kMinRows = 16;  // fewer leave most of a tile's 16 rows empty

    explicit OneDnn(int threads);
    ~OneDnn();

    /// How many of `rows` rows the next run may take: a power of two from 16 to 512, so that few primitives
    /// serve all sizes; 0 where oneDNN has no fast kernel for this weight.
    std::int64_t rows_for(std::int64_t rows, const PanelWeight& w) const;
    /// y = W x, or y += W x. y [rows][w.out] f32, x [rows][w.in] bf16, rows as rows_for gave. False: oneDNN
    /// has no fast kernel for it and nothing was written.
    bool run(const Tensor& y, const Tensor& x, const PanelWeight& w, bool add);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace llmgen::cpu
