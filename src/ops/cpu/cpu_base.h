// What both forms of the CPU backend share: memory, copies, weights, and the description of the machine.
#pragma once

#include <string>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/memory.h"
#include "ops/cpu/team.h"

namespace llmgen::cpu {

class CpuBase : public Ops {
public:
    CpuBase(Compute compute, int threads, std::string kernels);

    DeviceInfo info() const override;
    Compute compute() const override { return compute_; }
    std::unique_ptr<Buffer> allocate(std::size_t bytes, const char* what) override;
    void upload(Tensor dst, const void* host) override;
    void download(void* host, Tensor src) override;
    void synchronize() override {}
    Weight make_weight(std::span<const Tensor> parts, std::span<const Tensor> bias_parts) override;
    Weight borrow_weight(std::span<const Tensor> parts,
                         std::span<const Tensor> bias_parts,
                         std::shared_ptr<const void> owner) override;
    Vector make_vector(Tensor host) override;

protected:
    DType act() const { return activation_type(compute_); }

    Compute compute_;
    Team team_;
    std::string kernels_;  // what the steps run on, for info()
    Arena arena_;
    bool borrows_ = false;  // whether the steps can read weights that aren't packed
    int n_borrowed_ = 0;
};

std::unique_ptr<Ops> make_reference_ops(Compute compute);
std::unique_ptr<Ops> make_fast_ops(Compute compute, int threads, Isa isa, bool onednn);

}  // namespace llmgen::cpu
