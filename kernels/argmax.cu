// The largest logit of each row, and log-probabilities of a few tokens.
#include "choice.cuh"

namespace llmgen::kernels {
namespace {

__global__ void take_best_kernel(int* ids, Best* best, int n_rows) {
    const int t = int(blockIdx.x) * kWarp + int(threadIdx.x);
    if (t >= n_rows) return;
    ids[t] = is_finite(best_logit(best[t])) ? best_id(best[t]) : -1;
    best[t] = 0;
}

/// A grid of (parts, rows): each block finds the best of its part.
__global__ void __launch_bounds__(kChoiceThreads)
    argmax_kernel(Best* best, const float* logits, std::int64_t stride, int vocab) {
    SHARED_ARRAY(Best, slots, kChoiceWarps);
    const float* row = logits + std::int64_t(blockIdx.y) * stride;
    Best mine = 0;
    for (int i = int(blockIdx.x) * kChoiceThreads + int(threadIdx.x); i < vocab;
         i += int(gridDim.x) * kChoiceThreads) {
        const Best other = best_of(row[i], i);
        mine = other > mine ? other : mine;
    }
    mine = block_best(mine, slots);
    if (threadIdx.x == 0) atomic_max(&best[blockIdx.y], mine);
}

/// One block per row. The top are found one after another, each the best below the one before.
__global__ void __launch_bounds__(kChoiceThreads) logprobs_kernel(LogProbs p) {
    SHARED_ARRAY(Best, slots, kChoiceWarps);
    SHARED_ARRAY(double, sums, kChoiceWarps);
    const float* row = p.logits + std::int64_t(blockIdx.x) * p.stride;
    auto best_below = [&](Best limit) {
        Best best = 0;
        for (int i = int(threadIdx.x); i < p.vocab; i += kChoiceThreads) {
            const Best mine = best_of(row[i], i);
            if (mine < limit && mine > best) best = mine;
        }
        return block_best(best, slots);
    };
    const Best first = best_below(~Best(0));
    const float largest = best_logit(first);
    double sum = 0;
    for (int i = int(threadIdx.x); i < p.vocab; i += kChoiceThreads)
        sum += double(exp_of_negative(row[i] - largest));
    const double total = double(largest) + log(block_total(sum, sums));
    if (threadIdx.x == 0 && p.chosen != nullptr) {
        const int id = p.chosen[blockIdx.x];
        p.chosen_logprobs[blockIdx.x] = id < 0 || id >= p.vocab ? -INFINITY : float(double(row[id]) - total);
    }
    Best best = first;
    for (int n = 0; n < p.n_top; ++n) {
        if (n > 0) best = best_below(best);
        if (threadIdx.x != 0) continue;
        const std::int64_t at = std::int64_t(blockIdx.x) * p.n_top + n;
        p.top_ids[at] = best == 0 ? -1 : best_id(best);  // more asked than there are
        p.top_logprobs[at] = best == 0 ? -INFINITY : float(double(best_logit(best)) - total);
    }
}

}  // namespace

void take_best(int* ids, Best* best, int n_rows, Stream stream) {
    if (n_rows == 0) return;
    const Shape shape{unsigned((n_rows + kWarp - 1) / kWarp), 1, 1, kWarp, 0};
    launch("take_best", take_best_kernel, shape, Dependent::no, stream, ids, best, n_rows);
}

void argmax(Best* best, const float* logits, std::int64_t stride, int n_rows, int vocab, Stream stream) {
    if (n_rows == 0) return;
    const int parts = (vocab + 4 * kChoiceThreads - 1) / (4 * kChoiceThreads);
    const Shape shape{unsigned(parts < 64 ? parts : 64), unsigned(n_rows), 1, kChoiceThreads, 0};
    launch("argmax", argmax_kernel, shape, Dependent::no, stream, best, logits, stride, vocab);
}

void logprobs(const LogProbs& p, Stream stream) {
    if (p.n_rows == 0) return;
    const Shape shape{unsigned(p.n_rows), 1, 1, kChoiceThreads, 0};
    launch("logprobs", logprobs_kernel, shape, Dependent::no, stream, p);
}

}  // namespace llmgen::kernels
