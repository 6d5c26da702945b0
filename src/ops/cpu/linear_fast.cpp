// GEMV and GEMM are the same loop: for each panel of 32 outputs, all tiles of rows. With one row a thread
// streams its panels from memory once, in order; with many, the panel stays in the nearest cache while the
// packed rows pass by from L2, 4 bytes a cycle.
#include "ops/cpu/linear_fast.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/packed_weight.h"

namespace llmgen::cpu {
namespace {

// Packed rows beyond this are cut into blocks, each of which passes all panels: they must not fall out of the
// shared cache between two panels.
constexpr std::int64_t kBlockBytes = std::int64_t(2) << 20;
// With as many rows a thread, each has rows of its own, in blocks that stay in its own cache beside a panel.
constexpr std::int64_t kOwnRows = 64;
constexpr std::int64_t kOwnBlockBytes = std::int64_t(512) << 10;
// How far ahead a tile of more than two rows, the only one, reads its own panels: far enough for the time it
// computes on each.
constexpr std::int64_t kTileAhead = 12 << 10;
// Below this many multiply-adds a second thread costs more than it brings (a fork is 1 to 2 µs).
constexpr std::int64_t kSerialWork = 50000;

}  // namespace

/// One product, as all threads see it.
struct LinearRunner::Job {
    TileOutput::Kind kind;
    const Tensor& out;
    const Tensor& x;
    const PanelWeight& w;
    const LinearKernels& kernels;
    const RowSteps& steps;
    TurnedPanels& turned;
    const float* bias = nullptr;
    char* room = nullptr;          // for the packed x; null where x itself serves
    const char* packed = nullptr;  // row r of the packed x begins at r * row_bytes
    std::int64_t row_bytes = 0;
    char* packed_out = nullptr;  // where the outputs are wanted packed likewise; else they go to `out`
    std::int64_t packed_out_row_bytes = 0;
    std::int64_t n_panels = 0;    // of outputs; for swiglu those of one half
    std::int64_t block_rows = 0;  // of a unit
    std::int64_t most_rows =
        kMaxTileRows + 8;  // of a tile, fewer where blocks and shares begin at its multiples

    std::int64_t n_rows() const { return x.dim(0); }
    /// Rows of the tile with which `rest` rows begin: packing and multiplying have to agree.
    int tile_rows(std::int64_t rest) const { return kernels.tile_rows(std::min(rest, most_rows)); }
    const void* panel(std::int64_t index) const {
        if (w.borrowed) return turned.panel(w, index);
        return static_cast<const char*>(w.memory.data) +
               index * w.panel_size() * std::int64_t(size_of(w.dtype));
    }
};

LinearRunner::LinearRunner(DType act, Isa isa, Team& team, bool onednn)
    : team_(team),
      bf16_weights_(linear_kernels(DType::bf16, act, isa)),
      f32_weights_(linear_kernels(DType::f32, act, isa)),
      finish_tile_(finish_tile(isa)),
      finish_swiglu_bf16_(finish_swiglu_bf16(isa)),
      pack_(pack_rows(isa)),
      row_products_(team),
      onednn_(onednn && act == DType::bf16 ? std::make_unique<OneDnn>(team.size()) : nullptr) {}

void LinearRunner::run(
    TileOutput::Kind kind, const Tensor& out, const Tensor& x, const Weight& weight, const RowSteps& steps) {
    const PanelWeight& w = panels_of(weight);
    const std::int64_t n_rows = x.dim(0);
    if (n_rows == 0 || w.out == 0) return;
    if (!onednn_ || onednn_->rows_for(n_rows, w) == 0) {
        Job job = job_of(kind, out, x, weight, steps, turned_);
        return run_jobs(job, nullptr);
    }

    if (steps.before) team_.ranges(n_rows, steps.before);
    std::int64_t done = 0, part = 1;
    for (; done < n_rows && part > 0; done += part)
        part = run_onednn(kind, out.rows(done, n_rows - done), x.rows(done, n_rows - done), weight);
    if (done < n_rows) {
        const RowSteps none;
        const Tensor rest_out = out.rows(done, n_rows - done), rest = x.rows(done, n_rows - done);
        Job job = job_of(kind, rest_out, rest, weight, none, turned_);
        run_jobs(job, nullptr);
    }
    if (steps.outputs)
        team_.ranges(n_rows, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) steps.outputs(0, 0, out.dim(1), row, 1);
        });
    if (steps.after) team_.ranges(n_rows, steps.after);
}

LinearRunner::Job LinearRunner::job_of(TileOutput::Kind kind,
                                       const Tensor& out,
                                       const Tensor& x,
                                       const Weight& weight,
                                       const RowSteps& steps,
                                       TurnedPanels& turned) const {
    const PanelWeight& w = panels_of(weight);
    w.use(x.dim(0));
    turned.begin(w, team_.size());
    const LinearKernels& kernels = w.dtype == DType::bf16 ? bf16_weights_ : f32_weights_;
    const std::int64_t outputs = kind == TileOutput::Kind::swiglu ? w.out / 2 : w.out;
    Job job{kind, out, x, w, kernels, steps, turned};
    if (weight.bias) job.bias = static_cast<const float*>(weight.bias->data());
    job.row_bytes = w.depth() * std::int64_t(size_of(kernels.x_type));
    job.n_panels = (outputs + kPanel - 1) / kPanel;
    return job;
}

void LinearRunner::run_mlp(const Tensor& x,
                           const Tensor& mlp,
                           const Tensor& h,
                           const Weight& gate_up,
                           const Weight& down,
                           const RowSteps& steps) {
    const bool whole_panels = down.in % kPanel == 0;
    // One row goes from product to product by run_row(), and is packed as it stands.
    if (x.dim(0) <= 1 || onednn_ || !whole_panels || panels_of(gate_up).dtype != panels_of(down).dtype) {
        run(TileOutput::Kind::swiglu, mlp, h, gate_up, steps);
        return run(TileOutput::Kind::add, x, mlp, down);
    }
    const RowSteps none;
    Job job = job_of(TileOutput::Kind::swiglu, mlp, h, gate_up, steps, turned_);
    Job then = job_of(TileOutput::Kind::add, x, mlp, down, none, turned_then_);
    then.packed = job.packed_out = static_cast<char*>(between_.get(std::size_t(x.dim(0) * then.row_bytes)));
    job.packed_out_row_bytes = then.row_bytes;
    run_jobs(job, &then);
}

/// `then`, where there is one, is of the same rows, more than one, and has its x packed by the first.
void LinearRunner::run_jobs(Job& job, Job* then) {
    const Tensor& x = job.x;
    const std::int64_t n_rows = x.dim(0);
    const bool in_place = n_rows == 1 && x.dtype == job.kernels.x_type && job.w.depth() == job.w.in &&
                          reinterpret_cast<std::uintptr_t>(x.data) % 4 == 0;  // pairs are read as one
    job.room = in_place ? nullptr : static_cast<char*>(packed_.get(std::size_t(n_rows * job.row_bytes)));
    job.packed = in_place ? static_cast<const char*>(x.data) : job.room;

    if (n_rows * job.w.out * job.w.in < kSerialWork) return run_own_rows(job, then, 0, n_rows);
    if (team_.size() > 1 && n_rows == 1) return run_row(job);
    if (team_.size() > 1 && n_rows < kOwnRows * team_.size()) return run_shared_rows(job, then);
    team_.ranges(n_rows, [&](std::int64_t begin, std::int64_t end) { run_own_rows(job, then, begin, end); });
}

/// Many rows a thread: each takes its own through everything, so that they stay in its caches from one op to
/// the next, and nobody waits for another.
void LinearRunner::run_own_rows(const Job& job, const Job* then, std::int64_t begin, std::int64_t end) const {
    const std::int64_t row_bytes = then ? std::max(job.row_bytes, then->row_bytes) : job.row_bytes;
    const std::int64_t n_blocks = std::max<std::int64_t>(1, (end - begin) * row_bytes / kOwnBlockBytes);
    // Whole tiles, but for the last block's rest.
    const auto border = [&](std::int64_t b) {
        const std::int64_t n_tiles = (end - begin) / kMaxTileRows;
        return b == n_blocks ? end : begin + n_tiles * b / n_blocks * kMaxTileRows;
    };
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        const std::int64_t first = border(b), last = border(b + 1);
        // Tile by tile, so that a row is packed while it is in the nearest cache.
        for (std::int64_t row = first; row < last;) {
            const int rows = job.tile_rows(last - row);
            if (job.steps.before) job.steps.before(row, row + rows);
            pack(job, row, row + rows);
            row += rows;
        }
        for (std::int64_t panel = 0; panel < job.n_panels; ++panel)
            run_panel(job, 0, panel, int(first), int(last));
        for (std::int64_t panel = 0; then && panel < then->n_panels; ++panel)
            run_panel(*then, 0, panel, int(first), int(last));
        if (job.steps.after) job.steps.after(first, last);
    }
}

/// One row: each thread takes its own outputs. Whoever is done, or waits while the first thread is at what
/// stands between two products, draws its share of the next one near.
void LinearRunner::run_row(Job& job) {
    RowProduct& product = row_products_.begin(job.w, job.n_panels, job.kind == TileOutput::Kind::swiglu);
    const RowProduct* next = row_products_.next();
    if (job.steps.before) job.steps.before(0, 1);
    pack(job, 0, 1);
    job.block_rows = 1;
    std::int64_t n_threads = 1;
    team_.run([&](std::int64_t self, std::int64_t team) {
        if (self == 0) n_threads = team;
        // The row lies in the caches of who wrote it.
        for (std::int64_t at = 0; at < job.row_bytes; at += 64) __builtin_prefetch(job.packed + at);
        row_products_.begin_share(self);
        run_units(job, int(self), product.border(self, team), product.border(self + 1, team));
        row_products_.end_share(self);
        team_.reads_soon(self, next ? next->share_of(self, team) : SoonRead());
    });
    row_products_.balance(product, n_threads);
    if (job.steps.after) job.steps.after(0, 1);
}

/// Tiles of one size, and blocks of rows: small enough for the cache, and enough of them that every thread
/// has work.
void LinearRunner::cut(Job& job) const {
    const std::int64_t n_rows = job.n_rows();
    job.most_rows = job.kernels.tile_rows(n_rows);
    const std::int64_t n_tiles = (n_rows + job.most_rows - 1) / job.most_rows;
    std::int64_t block_tiles = std::max<std::int64_t>(1, kBlockBytes / (job.row_bytes * job.most_rows));
    const std::int64_t wanted = (2 * team_.size() + job.n_panels - 1) / job.n_panels;
    block_tiles = std::min(block_tiles, std::max<std::int64_t>(1, n_tiles / wanted));
    job.block_rows = block_tiles * job.most_rows;
}

/// Few rows: each thread takes its own outputs, so that the weights pass once.
void LinearRunner::run_shared_rows(Job& job, Job* then) const {
    cut(job);
    if (then) cut(*then);
    const std::int64_t n_rows = job.n_rows(), tile = job.most_rows, n_tiles = (n_rows + tile - 1) / tile;
    const RowSteps::Step &before = job.steps.before, &after = job.steps.after;
    team_.run([&](std::int64_t self, std::int64_t team) {
        const std::int64_t begin = n_tiles * self / team * tile;
        const std::int64_t end = std::min(n_tiles * (self + 1) / team * tile, n_rows);
        if (before && begin < end) before(begin, end);
        pack(job, begin, end);
        team_.barrier();
        run_share(job, self, team);
        if (then) {
            team_.barrier();
            run_share(*then, self, team);
        }
        if (!after) return;
        team_.barrier();
        const std::int64_t first = n_rows * self / team, last = n_rows * (self + 1) / team;
        if (first < last) after(first, last);
    });
}

/// The first rows, as many as one of oneDNN's primitives takes; how many that were. What it can't do itself
/// (bias, rounding, the gate) passes through scratch memory.
std::int64_t LinearRunner::run_onednn(TileOutput::Kind kind,
                                      const Tensor& out,
                                      const Tensor& x,
                                      const Weight& weight) {
    const PanelWeight& w = panels_of(weight);
    const bool direct = kind != TileOutput::Kind::swiglu && out.dtype == DType::f32 && !weight.bias;
    // Through scratch in pieces of 128 rows, which stay in the caches.
    const std::int64_t n_rows =
        onednn_->rows_for(direct ? x.dim(0) : std::min<std::int64_t>(x.dim(0), 128), w);
    if (n_rows == 0) return 0;
    if (direct)
        return onednn_->run(out.rows(n_rows), x.rows(n_rows), w, kind == TileOutput::Kind::add) ? n_rows : 0;

    const Tensor sums(packed_.get(std::size_t(n_rows * w.out + kPanel) * sizeof(float)), DType::f32,
                      {n_rows, w.out});
    if (!onednn_->run(sums, x.rows(n_rows), w, false)) return 0;
    const std::int64_t outputs = kind == TileOutput::Kind::swiglu ? w.out / 2 : w.out;
    team_.ranges(n_rows, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            for (std::int64_t first = 0; first < outputs; first += kPanel)
                finish_columns(kind, out, row, first, outputs, weight,
                               sums.as<float>() + row * w.out + first);
    });
    return n_rows;
}

/// One row's outputs first … of one panel, from its sums; for swiglu the up projection's lie half a row on.
void LinearRunner::finish_columns(TileOutput::Kind kind,
                                  const Tensor& out,
                                  std::int64_t row,
                                  std::int64_t first,
                                  std::int64_t outputs,
                                  const Weight& weight,
                                  const float* sums) const {
    TileOutput tile;
    tile.kind = kind;
    tile.type = out.dtype;
    tile.stride = out.stride[0];
    tile.rows = 1;
    tile.width = int(std::min<std::int64_t>(kPanel, outputs - first));
    tile.data = static_cast<char*>(out.data) + (row * tile.stride + first) * std::int64_t(size_of(tile.type));
    alignas(64) float own[kPanel] = {}, up[kPanel] = {}, up_bias[kPanel] = {};
    std::copy_n(sums, tile.width, own);
    const auto* bias = weight.bias ? static_cast<const float*>(weight.bias->data()) : nullptr;
    if (bias) tile.bias = bias + first;
    if (kind == TileOutput::Kind::swiglu) {
        std::copy_n(sums + outputs, tile.width, up);
        if (bias) {
            std::copy_n(bias + outputs + first, tile.width, up_bias);
            tile.up_bias = up_bias;
        }
    }
    finish(tile, own, up);
}

void LinearRunner::finish(const TileOutput& tile, const float* sums, const float* up) const {
    const bool own_way = finish_swiglu_bf16_ && tile.kind == TileOutput::Kind::swiglu &&
                         tile.type == DType::bf16 && tile.width == kPanel;
    (own_way ? finish_swiglu_bf16_ : finish_tile_)(tile, sums, up);
}

/// A tile's whole panel to where the next product reads its packed rows: one piece of memory.
void LinearRunner::finish_packed(
    const Job& job, TileOutput tile, std::int64_t at, const float* sums, const float* up) const {
    alignas(64) float room[kMaxTileRows * kPanel];
    const void* sources[kMaxTileRows];
    tile.data = room;
    tile.stride = kPanel;
    finish(tile, sums, up);
    for (int r = 0; r < tile.rows; ++r)
        sources[r] = reinterpret_cast<const char*>(room) + std::size_t(r) * kPanel * size_of(tile.type);
    pack_(job.packed_out + at, job.kernels.x_type, sources, tile.type, tile.rows, kPanel);
}

void LinearRunner::pack(const Job& job, std::int64_t begin, std::int64_t end) const {
    if (!job.room) return;
    while (begin < end) {
        const int rows = job.tile_rows(end - begin);
        pack_tile(job, begin, rows);
        begin += rows;
    }
}

void LinearRunner::pack_tile(const Job& job, std::int64_t row, int rows) const {
    const void* sources[kMaxTileRows];
    for (int r = 0; r < rows; ++r)
        sources[r] = static_cast<const char*>(job.x.data) +
                     (row + r) * job.x.stride[0] * std::int64_t(size_of(job.x.dtype));
    // Half of each row may have been written by another core, and a transposition waits for line after line.
    for (int r = 0; r < rows; ++r)
        for (std::int64_t at = 0; at < job.w.in * std::int64_t(size_of(job.x.dtype)); at += 64)
            __builtin_prefetch(static_cast<const char*>(sources[r]) + at);
    char* to = job.room + row * job.row_bytes;
    pack_(to, job.kernels.x_type, sources, job.x.dtype, rows, job.w.in);
    // Weights of bf16 are padded to pairs; their packed f32 rows too.
    if (job.kernels.x_type == DType::f32 && job.w.depth() > job.w.in)
        std::memset(to + rows * job.w.in * 4, 0, std::size_t(rows) * 4);
}

/// A thread's share of the units, a panel of a block each.
void LinearRunner::run_share(const Job& job, std::int64_t self, std::int64_t team) const {
    const std::int64_t n_units = (job.n_rows() + job.block_rows - 1) / job.block_rows * job.n_panels;
    run_units(job, int(self), n_units * self / team, n_units * (self + 1) / team);
}

void LinearRunner::run_units(const Job& job, int self, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t first = unit / job.n_panels * job.block_rows;
        run_panel(job, self, unit % job.n_panels, int(first),
                  int(std::min(first + job.block_rows, job.n_rows())));
    }
}

/// What a tile draws near: the first two of a panel's tiles the halves of the next panel, the others nothing
/// new. A single tile runs through its panels as they lie in memory.
Ahead LinearRunner::ahead_of(const Job& job, std::int64_t panel, int tile, bool only_tile) const {
    const std::int64_t bytes = job.w.panel_size() * std::int64_t(size_of(job.w.dtype));
    const auto* here = static_cast<const char*>(job.panel(panel));
    if (only_tile) return {here + (job.n_rows() <= 2 ? kStreamAhead : kTileAhead), 128};
    if (tile < 2) return {here + bytes + tile * (bytes / 2), 64};
    return {here, 0};
}

void LinearRunner::run_panel(const Job& job, int self, std::int64_t panel, int row, int row_end) const {
    alignas(64) float sums[kMaxTileRows * kPanel], up[kMaxTileRows * kPanel],
        straddling[2][kMaxTileRows * kPanel];
    const std::int64_t first = panel * kPanel, depth = job.w.depth();
    const bool swiglu = job.kind == TileOutput::Kind::swiglu;
    const std::int64_t half = job.w.out / 2, outputs = swiglu ? half : job.w.out;
    const int shift = int(half % kPanel);  // where in its panel the up projection begins
    TileOutput tile;
    tile.kind = job.kind;
    tile.type = job.out.dtype;
    tile.stride = job.out.stride[0];
    tile.width = int(std::min<std::int64_t>(kPanel, outputs - first));
    // The bias is padded to whole panels, and the up projection's lies inside it: copy what exists.
    alignas(64) float up_bias[kPanel] = {};
    if (job.bias) {
        tile.bias = job.bias + first;
        if (swiglu) {
            std::copy_n(job.bias + half + first, tile.width, up_bias);
            tile.up_bias = up_bias;
        }
    }
    // Whole panels of plain f32 go from the registers to their destination.
    const bool direct = !swiglu && !job.bias && tile.type == DType::f32 && tile.width == kPanel;
    const auto& kernels =
        direct && job.kind == TileOutput::Kind::add ? job.kernels.tile_add : job.kernels.tile;
    const bool only_tile = job.tile_rows(row_end - row) == row_end - row;
    for (int index = 0; row < row_end; ++index) {
        const int rows = job.tile_rows(row_end - row);
        const TileKernel kernel = kernels[std::size_t(rows)];
        const void* x = job.packed + row * job.row_bytes;
        const auto multiply = [&](float* to, std::int64_t stride, std::int64_t at) {
            if (job.w.borrowed && rows == 1 && job.kernels.x_type == DType::bf16)
                return job.w.borrowed->multiply(to, at, x, depth, &kernels == &job.kernels.tile_add);
            kernel(to, stride, job.panel(at), x, depth, ahead_of(job, at, index, only_tile));
        };
        tile.data =
            static_cast<char*>(job.out.data) + (row * tile.stride + first) * std::int64_t(size_of(tile.type));
        if (direct) {
            multiply(static_cast<float*>(tile.data), tile.stride, panel);
            if (job.steps.outputs) job.steps.outputs(self, first, tile.width, row, rows);
            row += rows;
            continue;
        }
        multiply(sums, kPanel, panel);
        if (swiglu && shift == 0) multiply(up, kPanel, (half + first) / kPanel);
        if (swiglu && shift != 0) {  // the 32 up outputs lie in two panels
            const std::int64_t up_panel = (half + first) / kPanel;
            multiply(straddling[0], kPanel, up_panel);
            if (up_panel + 1 < job.w.n_panels()) multiply(straddling[1], kPanel, up_panel + 1);
            for (int r = 0; r < rows; ++r)
                for (int i = 0; i < tile.width; ++i)
                    up[r * kPanel + i] = straddling[(shift + i) / kPanel][r * kPanel + (shift + i) % kPanel];
        }
        tile.rows = rows;
        if (job.packed_out)
            finish_packed(
                job, tile,
                row * job.packed_out_row_bytes + first * rows * std::int64_t(size_of(job.kernels.x_type)),
                sums, up);
        else
            finish(tile, sums, up);
        if (job.steps.outputs) job.steps.outputs(self, first, tile.width, row, rows);
        row += rows;
    }
}

}  // namespace llmgen::cpu
