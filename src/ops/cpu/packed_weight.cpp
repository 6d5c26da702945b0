#include "ops/cpu/packed_weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/mmap.h"
#include "ops/cpu/element.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/pack_panel.h"

namespace llmgen::cpu {
namespace {

/// From how many single rows on a weight is worth packing: each costs 1.2 times what it costs packed, and
/// packing as much as 25, ten times as much where the memory is new. A step of several rows turns all panels.
constexpr int kUsesBorrowed = 48;
constexpr int kUsesOfRows = 8;

/// Up to 32 consecutive source rows, which may come from different parts.
struct PanelSource {
    const Tensor* part[kPanel] = {};
    std::int64_t row[kPanel] = {};
    int n = 0;
    DType dtype = DType::f32;
    bool uniform = true;  // one type throughout: the fast loops below apply
};

PanelSource rows_of_panel(std::span<const Tensor> parts, std::int64_t first, std::int64_t out) {
    PanelSource source;
    std::size_t index = 0;
    std::int64_t begin = 0;
    for (std::int64_t o = first; o < std::min<std::int64_t>(first + kPanel, out); ++o) {
        while (o >= begin + parts[index].dim(0)) begin += parts[index++].dim(0);
        const int lane = source.n++;
        source.part[lane] = &parts[index];
        source.row[lane] = o - begin;
        if (lane == 0) source.dtype = parts[index].dtype;
        source.uniform &= parts[index].dtype == source.dtype;
    }
    return source;
}

template <typename T>
const T* row_pointer(const PanelSource& source, int lane) {
    return source.part[lane]->as<T>() + source.row[lane] * source.part[lane]->stride[0];
}

/// bf16 to bf16: moves pairs, 16 pairs (a cache line of each row) at a time.
void pack_pairs(bf16* panel, const PanelSource& source, std::int64_t in) {
    constexpr std::int64_t kBlock = 16;
    const std::int64_t n_pairs = in / 2;
    for (std::int64_t begin = 0; begin < n_pairs; begin += kBlock) {
        const std::int64_t end = std::min(begin + kBlock, n_pairs);
        for (int lane = 0; lane < source.n; ++lane) {
            const bf16* row = row_pointer<bf16>(source, lane);
            for (std::int64_t pair = begin; pair < end; ++pair)
                std::memcpy(panel + (pair * kPanel + lane) * 2, row + pair * 2, 4);
        }
    }
    if (in % 2)
        for (int lane = 0; lane < source.n; ++lane)
            panel[(n_pairs * kPanel + lane) * 2] = row_pointer<bf16>(source, lane)[in - 1];
}

void pack_values(const PanelWeight& w, std::int64_t first, const PanelSource& source) {
    constexpr std::int64_t kBlock = 32;
    for (std::int64_t begin = 0; begin < w.in; begin += kBlock)
        for (int lane = 0; lane < source.n; ++lane)
            for (std::int64_t i = begin; i < std::min(begin + kBlock, w.in); ++i)
                store(w.memory.data, w.dtype, w.offset(first + lane, i),
                      at(*source.part[lane], source.row[lane], i));
}

void pack_panel(const PanelWeight& w, std::span<const Tensor> parts, std::int64_t panel, PackPanel fast) {
    const PanelSource source = rows_of_panel(parts, panel * kPanel, w.out);
    char* data = static_cast<char*>(w.memory.data) + panel * w.panel_size() * std::int64_t(size_of(w.dtype));
    if (source.n < kPanel || w.depth() > w.in)
        std::memset(data, 0, std::size_t(w.panel_size()) * size_of(w.dtype));
    const bool same = w.dtype == DType::bf16 && source.uniform && source.dtype == DType::bf16;
    if (same && fast && source.n == kPanel && w.in % kPackStep == 0) {
        const void* rows[kPanel];
        for (int lane = 0; lane < kPanel; ++lane) rows[lane] = row_pointer<bf16>(source, lane);
        fast(data, rows, w.in);
    } else if (same) {
        pack_pairs(reinterpret_cast<bf16*>(data), source, w.in);
    } else {
        pack_values(w, panel * kPanel, source);
    }
}

/// Has the kernel map the pages of rows begin to end - 1 in one go: half the price of a fault for each 16.
/// Where it can't (before Linux 5.14), or the memory is no file's, nothing is lost.
void touch_rows(std::span<const Tensor> parts, std::int64_t begin, std::int64_t end) {
    constexpr std::uintptr_t kPage = 4096;
    for (const Tensor& part : parts) {
        const std::int64_t last = std::min(end, part.dim(0));
        if (begin < last) {
            const std::int64_t row = part.stride[0] * std::int64_t(size_of(part.dtype));
            const auto base = reinterpret_cast<std::uintptr_t>(part.data);
            const std::uintptr_t from = (base + std::uintptr_t(begin * row)) / kPage * kPage;
            const std::uintptr_t to = base + std::uintptr_t(last * row);
            madvise(reinterpret_cast<void*>(from), to - from, MADV_POPULATE_READ);
        }
        begin = std::max<std::int64_t>(0, begin - part.dim(0));
        end -= part.dim(0);
    }
}

std::shared_ptr<const Buffer> pack_bias(std::span<const Tensor> parts,
                                        std::span<const Tensor> bias_parts,
                                        std::int64_t out) {
    if (std::none_of(bias_parts.begin(), bias_parts.end(), [](const Tensor& part) { return bool(part); }))
        return nullptr;
    CHECK(bias_parts.size() == parts.size());
    // Padded to whole panels, so that the epilogues may read 32 at a time.
    const std::size_t padded = std::size_t((out + kPanel - 1) / kPanel * kPanel);
    std::shared_ptr<Buffer> bias = allocate_buffer(padded * sizeof(float), "bias");
    auto* values = static_cast<float*>(bias->data());
    std::fill_n(values, padded, 0.0f);
    for (std::size_t p = 0; p < parts.size(); ++p) {
        if (bias_parts[p]) {
            expect_shape(bias_parts[p], "bias part", {parts[p].dim(0)});
            for (std::int64_t o = 0; o < parts[p].dim(0); ++o)
                values[o] = load(bias_parts[p].data, bias_parts[p].dtype, o);
        }
        values += parts[p].dim(0);
    }
    return bias;
}

/// Without values.
std::shared_ptr<PanelWeight> shape_of(std::span<const Tensor> parts, Compute compute) {
    CHECK(!parts.empty());
    auto packed = std::make_shared<PanelWeight>();
    packed->in = parts[0].dim(1);
    bool all_bf16 = true;
    for (const Tensor& part : parts) {
        expect_shape(part, "weight part", {-1, packed->in});
        packed->out += part.dim(0);
        all_bf16 &= part.dtype == DType::bf16;
    }
    // bf16 values stay bf16 in f32 compute too: widened when read they are the same numbers at half the
    // bytes.
    packed->dtype = compute == Compute::bf16 || all_bf16 ? DType::bf16 : DType::f32;
    return packed;
}

void pack_range(
    const PanelWeight& w, std::span<const Tensor> parts, std::int64_t first, std::int64_t last, Team& team) {
    const PackPanel fast = best_isa() >= Isa::avx512_bf16 ? rows_kernels_avx512bf16().pack : nullptr;
    team.ranges(last - first, [&](std::int64_t begin, std::int64_t end) {
        touch_rows(parts, (first + begin) * kPanel, (first + end) * kPanel);
        for (std::int64_t panel = first + begin; panel < first + end; ++panel)
            pack_panel(w, parts, panel, fast);
    });
}

/// Memory is taken as it is filled, and what one part of a file held is let go of piece by piece, so that a
/// large weight isn't there twice.
void pack_borrowed(const PanelWeight& w, const BorrowedRows& rows) {
    constexpr std::int64_t kPieceBytes = std::int64_t(8) << 20;
    w.memory = rows.arena->allocate(w.bytes());
    const auto* part = rows.parts.size() == 1 ? std::get_deleter<DropPart>(rows.owner) : nullptr;
    const std::int64_t panel_bytes = w.panel_size() * std::int64_t(sizeof(bf16));
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / panel_bytes);
    for (std::int64_t first = 0; first < w.n_panels(); first += step) {
        pack_range(w, rows.parts, first, std::min(first + step, w.n_panels()), *rows.team);
        // From the beginning: a page on the border of two pieces belongs to both.
        if (part) part->drop(0, std::min(part->size, std::size_t((first + step) * panel_bytes)));
    }
}

Weight weight_of(std::shared_ptr<const PanelWeight> panels,
                 std::span<const Tensor> parts,
                 std::span<const Tensor> bias_parts) {
    Weight w;
    w.format = panels->dtype == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32;
    w.out = panels->out;
    w.in = panels->in;
    w.bias = pack_bias(parts, bias_parts, panels->out);
    w.bytes = panels->bytes();
    w.packed = std::move(panels);
    return w;
}

}  // namespace

const PanelWeight& panels_of(const Weight& w) {
    const auto* panels = dynamic_cast<const PanelWeight*>(w.packed.get());
    CHECK(panels, "a weight that another backend made");
    return *panels;
}

const bf16* BorrowedRows::row(std::int64_t o) const {
    std::size_t part = 0;
    while (o >= parts[part].dim(0)) o -= parts[part++].dim(0);
    return parts[part].as<bf16>() + o * parts[part].stride[0];
}

void BorrowedRows::rows_of(std::int64_t panel, const void** rows) const {
    std::size_t part = 0;
    std::int64_t o = panel * kPanel;
    while (o >= parts[part].dim(0)) o -= parts[part++].dim(0);
    for (int lane = 0; lane < kPanel; ++lane, ++o) {
        while (o >= parts[part].dim(0) && part + 1 < parts.size()) o -= parts[part++].dim(0);
        rows[lane] = parts[part].as<bf16>() + std::min(o, parts[part].dim(0) - 1) * parts[part].stride[0];
    }
}

void BorrowedRows::multiply(
    float* out, std::int64_t panel, const void* x, std::int64_t depth, bool add) const {
    const void* rows[kPanel];
    rows_of(panel, rows);
    (add ? kernels.multiply_add : kernels.multiply)(out, rows, x, depth);
}

float PanelWeight::at(std::int64_t o, std::int64_t i) const {
    return borrowed ? to_f32(borrowed->row(o)[i]) : load(memory.data, dtype, offset(o, i));
}

void PanelWeight::use(std::int64_t rows) const {
    if (!borrowed) return;
    // A step of several rows turns the panels as packing does, and with many rows it does so more than once.
    constexpr std::int64_t kManyRows = 64;
    const bool many = rows >= kManyRows;
    borrowed->uses_left -= rows == 1 ? 1 : kUsesOfRows;
    if (!many && borrowed->uses_left > 0) return;
    try {
        pack_borrowed(*this, *borrowed);
        borrowed.reset();
    } catch (const Error&) {  // no memory left: it goes on as it is
        borrowed->uses_left = kUsesBorrowed;
    }
}

Weight pack_weight(std::span<const Tensor> parts,
                   std::span<const Tensor> bias_parts,
                   Compute compute,
                   Arena& arena,
                   Team& team) {
    const auto packed = shape_of(parts, compute);
    packed->memory = arena.allocate(packed->bytes(), team.size());
    pack_range(*packed, parts, 0, packed->n_panels(), team);
    return weight_of(packed, parts, bias_parts);
}

Weight borrow_weight(std::span<const Tensor> parts,
                     std::span<const Tensor> bias_parts,
                     std::shared_ptr<const void> owner,
                     Arena& arena,
                     Team& team,
                     int index) {
    const auto packed = shape_of(parts, Compute::bf16);
    const RowsKernels kernels = rows_kernels_avx512bf16();
    const bool fits =
        kernels.pack && packed->in % kPackStep == 0 &&
        std::ranges::all_of(parts, [](const Tensor& t) { return t.dtype == DType::bf16 && t.dim(0) > 0; });
    if (!fits) return pack_weight(parts, bias_parts, Compute::bf16, arena, team);
    packed->borrowed = std::make_unique<BorrowedRows>();
    BorrowedRows& rows = *packed->borrowed;
    rows = {{parts.begin(), parts.end()}, std::move(owner), kernels, &arena, &team,
            kUsesBorrowed + index / 8};
    team.ranges(packed->n_panels(), [&](std::int64_t begin, std::int64_t end) {
        touch_rows(parts, begin * kPanel, end * kPanel);
    });
    return weight_of(packed, parts, bias_parts);
}

}  // namespace llmgen::cpu
