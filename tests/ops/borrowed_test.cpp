// Weights that stay where the caller has them for a while: the same bits as weights that were packed at once,
// in every op, before, while and after they are packed; and their owner is let go of then.
#include "backends.h"

namespace llmgen::test {
namespace {

class Borrowed : public EveryBackend {
protected:
    struct Case {
        std::vector<int> parts;  // rows of each
        int in;
    };
    /// Both weights of a case, whose values live in `bytes_`.
    void make(const Case& c) {
        Random random(std::uint64_t(c.in) + c.parts.size());
        bytes_.clear();
        std::vector<Tensor> parts;
        out_ = 0;
        for (const int rows : c.parts) {
            bytes_.push_back(encode(DType::bf16, random.values(rows * c.in)));
            parts.push_back(host_view(bytes_.back(), DType::bf16, {rows, c.in}));
            out_ += rows;
        }
        packed_ = ops().make_weight(parts);
        auto owner = std::make_shared<int>(0);
        owner_ = owner;
        borrowed_ = ops().borrow_weight(parts, {}, std::move(owner));
        in_ = c.in;
    }
    enum Product { plain, add, swiglu };
    std::vector<float> product(Product kind, const Weight& w, int rows) {
        Random random{std::uint64_t(rows)};
        const Matrix x(ops(), act(), rows, in_, rounded(act(), random.values(rows * in_)));
        if (kind == swiglu) {
            const Matrix out(ops(), act(), rows, out_ / 2);
            ops().linear_swiglu(out.view(), x.view(), w);
            return out.values();
        }
        const Matrix out(ops(), DType::f32, rows, out_, random.values(rows * out_));
        if (kind == plain) ops().linear(out.view(), x.view(), w);
        if (kind == add) ops().linear_add(out.view(), x.view(), w);
        return out.values();
    }
    bool same(Product kind, int rows) {
        return bit_equal(product(kind, borrowed_, rows), product(kind, packed_, rows));
    }
    std::vector<float> embedded(const Weight& w) {
        const Integers ids(ops(), {0, out_ - 1, out_ / 2, 0});
        const Matrix x(ops(), DType::f32, 4, in_);
        ops().embed(x.view(), w, ids.view());
        return x.values();
    }

    std::vector<std::vector<char>> bytes_;
    Weight packed_, borrowed_;
    std::weak_ptr<int> owner_;
    int out_ = 0, in_ = 0;
};

// Whole panels; parts that end inside panels, with gate and up inside one; inputs that no borrowing kernel
// takes.
const std::vector<std::pair<std::vector<int>, int>> kCases = {
    {{64, 32, 32}, 96}, {{70, 33, 41}, 64}, {{64}, 34}};

TEST_P(Borrowed, GivesTheBitsOfAPackedWeightForever) {
    for (const auto& [parts, in] : kCases)
        for (const Product kind : {plain, add, swiglu}) {
            make({parts, in});
            for (const int rows : {1, 3, 20})  // all before it is packed
                EXPECT_TRUE(same(kind, rows)) << rows << " rows";
            EXPECT_TRUE(bit_equal(embedded(borrowed_), embedded(packed_)));
            for (int step = 0; step < 40; ++step) ASSERT_TRUE(same(kind, 1)) << "step " << step;
            EXPECT_TRUE(owner_.expired());
            EXPECT_TRUE(same(kind, 3));
            EXPECT_TRUE(bit_equal(embedded(borrowed_), embedded(packed_)));
        }
}

TEST_P(Borrowed, ManyRowsPackItAtOnce) {
    for (const auto& [parts, in] : kCases) {
        make({parts, in});
        EXPECT_TRUE(same(plain, 70));
        EXPECT_TRUE(owner_.expired());
    }
}

TEST_P(Borrowed, IsReadInPlaceWhereTheCpuCan) {
    const std::string& name = GetParam().name;
    if (cpu::best_isa() != cpu::Isa::avx512_bf16 || (name != "cpu1_bf16" && name != "cpu3_bf16"))
        GTEST_SKIP() << "packs at once";
    make({{64, 32}, 96});
    EXPECT_FALSE(owner_.expired());
    const std::vector<float> before = product(plain, borrowed_, 1);
    bytes_[0][1] = char(bytes_[0][1] ^ 0x40);  // the caller's memory
    EXPECT_FALSE(bit_equal(product(plain, borrowed_, 1), before));
    borrowed_ = {};
    EXPECT_TRUE(owner_.expired());
}

INSTANTIATE_TEST_SUITE_P(Ops, Borrowed, testing::ValuesIn(every_backend()), case_name);

}  // namespace
}  // namespace llmgen::test
