// The order of a step's one-row products: shares that cover each unit once however they are cut, and what is
// drawn near lies inside the weights.
#include "ops/cpu/row_products.h"

#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "support.h"

namespace llmgen::test {
namespace {

/// Memory whose last byte lies before a page that can't be read.
struct Guarded {
    explicit Guarded(std::size_t bytes) : mapped((bytes + 4095) / 4096 * 4096) {
        base = static_cast<char*>(
            mmap(nullptr, mapped + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(base + mapped, 4096, PROT_NONE);
        data = base + mapped - bytes;
    }
    ~Guarded() { munmap(base, mapped + 4096); }
    std::size_t mapped;
    char *base, *data;
};

cpu::PanelWeight weight(std::int64_t out, std::int64_t in, char* data) {
    cpu::PanelWeight w;
    w.dtype = DType::bf16;
    w.out = out;
    w.in = in;
    w.memory = {std::shared_ptr<const void>(data, [](const void*) {}), data};
    return w;
}

TEST(RowProducts, SharesCoverEachUnitOnceHoweverManyAreGiven) {
    for (const std::int64_t n_units : {1, 2, 5, 18, 48})
        for (const std::int64_t threads : {1, 2, 3, 7})
            for (std::int64_t given = -60; given <= 60; given += 3) {
                cpu::RowProduct product;
                product.n_units = n_units;
                product.given = given;
                EXPECT_EQ(product.border(0, threads), 0);
                EXPECT_EQ(product.border(threads, threads), n_units);
                for (std::int64_t i = 0; i < threads; ++i)
                    EXPECT_LE(product.border(i, threads), product.border(i + 1, threads));
            }
}

TEST(RowProducts, WhoWaitsReadsNothingBeyondTheNextWeights) {
    constexpr std::int64_t kIn = 70;  // panels of 4480 bytes: no multiple of what is read at once
    const std::size_t panel = cpu::kPanel * kIn * sizeof(bf16);
    for (const bool swiglu : {false, true}) {
        // 9 panels: of swiglu the two halves share one.
        for (const std::int64_t out : {std::int64_t(8 * cpu::kPanel), std::int64_t(9 * cpu::kPanel)}) {
            Guarded memory(std::size_t(out) / cpu::kPanel * panel);
            const cpu::PanelWeight first = weight(out, kIn, memory.data),
                                   second = weight(out, kIn, memory.data);
            const std::int64_t units = swiglu ? (out / 2 + cpu::kPanel - 1) / cpu::kPanel : out / cpu::kPanel;
            cpu::Team team(3);
            cpu::RowProducts products(team);
            for (int step = 0; step < 3; ++step) {
                products.begin_step();
                team.step([&] {
                    for (const cpu::PanelWeight* w : {&first, &second}) {
                        const cpu::RowProduct& product = products.begin(*w, units, swiglu);
                        const cpu::RowProduct* next = products.next();
                        EXPECT_TRUE(!next || (step > 0 && w == &first));
                        team.run([&](int self, int n) {
                            EXPECT_LE(product.border(self + 1, n), units);
                            team.reads_soon(self, next ? next->share_of(self, n) : cpu::SoonRead());
                        });
                        std::this_thread::sleep_for(std::chrono::microseconds(300));  // the others draw near
                    }
                    return 0;
                });
                products.end_step();
                EXPECT_EQ(products.next(), nullptr);
            }
        }
    }
}

TEST(RowProducts, NothingIsDrawnFromWeightsThatAreGone) {
    Guarded memory(cpu::kPanel * 64 * sizeof(bf16));
    cpu::Team team(2);
    cpu::RowProducts products(team);
    const cpu::PanelWeight first = weight(cpu::kPanel, 64, memory.data);
    const auto step = [&](bool both) {
        products.begin_step();
        bool knows_next = false;
        team.step([&] {
            products.begin(first, 1, false);
            knows_next = products.next() != nullptr;
            if (both) {
                const cpu::PanelWeight second = weight(cpu::kPanel, 64, memory.data);
                products.begin(second, 1, false);
            }
            return 0;
        });
        products.end_step();
        return knows_next;
    };
    EXPECT_FALSE(step(true));
    EXPECT_FALSE(step(false));  // it was there a step ago, and its memory is no more
}

}  // namespace
}  // namespace llmgen::test
