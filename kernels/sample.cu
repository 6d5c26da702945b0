// One block chooses the next token of one row. Formulas and order are the host sampler's (engine/sampler.h);
// see kernels.h for what "the same choice" means.
//
// Nothing is sorted: a border in the sorted order (the k-th logit, the end of the nucleus, the draw) is found
// by four passes over the bytes of a key, each a histogram of counts or masses; an element in the order of
// ids by narrowing the row 16-fold at a time. With all filters on the row is read about 16 times from L2,
// greedy reads it once. One block draws at the pace of its loads in flight, so each thread asks for kAhead
// logits before it looks at the first.
#include "choice.cuh"

namespace llmgen::kernels {
namespace {

__device__ std::uint32_t mul_high(std::uint32_t a, std::uint32_t b) {
    return std::uint32_t((Mass(a) * b) >> 32);
}

/// Philox4x32-10 of (step, seed), the first 53 bits as a number in [0, 1).
__device__ double uniform(std::uint64_t seed, std::uint64_t step) {
    std::uint32_t c[4] = {std::uint32_t(step), std::uint32_t(step >> 32), 0, 0};
    std::uint32_t key[2] = {std::uint32_t(seed), std::uint32_t(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const std::uint32_t a_high = mul_high(0xD2511F53u, c[0]), a_low = 0xD2511F53u * c[0];
        const std::uint32_t b_high = mul_high(0xCD9E8D57u, c[2]), b_low = 0xCD9E8D57u * c[2];
        c[0] = b_high ^ c[1] ^ key[0];
        c[1] = b_low;
        c[2] = a_high ^ c[3] ^ key[1];
        c[3] = a_low;
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return double(((std::uint64_t(c[0]) << 32) | c[1]) >> 11) * 0x1p-53;
}

constexpr int kAhead = 8;

/// Calls body(logit) for every `stride`-th logit from `first` on.
template <typename Body>
__device__ __forceinline__ void for_each(const float* logits, int first, int end, int stride, Body body) {
    for (int i0 = first; i0 < end; i0 += kAhead * stride) {
        float l[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) l[j] = i0 + j * stride < end ? logits[i0 + j * stride] : 0.0f;
#pragma unroll
        for (int j = 0; j < kAhead; ++j)
            if (i0 + j * stride < end) body(l[j], i0 + j * stride);
    }
}

/// What is left to choose from, after the filters so far.
struct Candidates {
    float largest, inverse;
    std::uint32_t least_key;  // of a logit, by top-k
    double least_weight;      // by min-p

    __device__ float weight(float l) const {
        return key_of(l) < least_key
                   ? 0.0f
                   : exp_of_negative(l == largest ? 0.0f : mul_rn(sub_rn(l, largest), inverse));
    }
    __device__ Mass mass(float l) const {
        const float w = weight(l);
        return double(w) < least_weight ? 0 : mass_of(w);
    }
};

/// A row with the scratch of its block: `bins` holds 256 values, `found` 2.
struct Row {
    const float* logits;
    int vocab;
    Mass *bins, *found, *slots;
};

__device__ __forceinline__ Mass total_mass(const Candidates& c, const Row& row) {
    Mass sum = 0;
    for_each(row.logits, int(threadIdx.x), row.vocab, kChoiceThreads,
             [&](float l, int) { sum += c.mass(l); });
    return block_total(sum, row.slots);
}

/// The place in a list sorted by key, largest first, that has `target` of the mass (or of the count) before
/// it.
struct Place {
    std::uint32_t key;  // of the elements there
    Mass before;        // mass of all with a larger key
};

/// The bin, from the last down, that takes `before` past the target, and what is before it; by one warp, of
/// which a lane has eight bins.
__device__ __forceinline__ void find_bin(Mass target, Mass before, const Row& row) {
    const int lane = int(threadIdx.x) % kWarp, last = 255 - lane * 8;
    Mass own = 0;
    for (int i = 0; i < 8; ++i) own += row.bins[last - i];
    Mass through = own;  // of this lane's bins and all above
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const Mass other = shfl_up(through, distance);
        if (lane >= distance) through += other;
    }
    Mass at = before + through - own;
    const bool here = at <= target && (target < before + through || lane == kWarp - 1);
    if (!here) return;
    int bin = last;
    while (bin > last - 7 && at + row.bins[bin] <= target) at += row.bins[bin--];
    row.found[0] = Mass(bin);
    row.found[1] = at;
}

/// Walks down the 256 bins of each byte of the key. The total of `mass` must exceed `target`.
template <typename KeyOf, typename MassOf>
__device__ __forceinline__ Place select(Mass target, const Row& row, KeyOf key, MassOf mass) {
    std::uint32_t prefix = 0;
    Mass before = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = int(threadIdx.x); i < 256; i += kChoiceThreads) row.bins[i] = 0;
        sync_block();
        const std::uint32_t fixed = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
        for_each(row.logits, int(threadIdx.x), row.vocab, kChoiceThreads, [&](float l, int) {
            const std::uint32_t k = key(l);
            const Mass m = (k & fixed) == prefix ? mass(l) : 0;
            if (m != 0) atomic_add(&row.bins[k >> shift & 255], m);
        });
        sync_block();
        if (threadIdx.x < kWarp) find_bin(target, before, row);
        sync_block();
        prefix |= std::uint32_t(row.found[0]) << shift;
        before = row.found[1];
        sync_block();
    }
    return {prefix, before};
}

/// The element at `target` in the order of ids: the first whose running sum passes it. `counts(logit)` is
/// what an element adds; the total must exceed `target`.
template <typename CountOf>
__device__ __forceinline__ int nth_by_id(Mass target, const Row& row, CountOf counts) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    int begin = 0, end = row.vocab;
    Mass before = 0;
    while (end - begin > kWarp) {  // a part for each warp; the one that passes the target is parted next
        const int part = (end - begin + kChoiceWarps - 1) / kChoiceWarps, first = begin + warp * part;
        Mass sum = 0;
        for_each(row.logits, first + lane, first + part < end ? first + part : end, kWarp,
                 [&](float l, int) { sum += counts(l); });
        for (int bits = kWarp / 2; bits > 0; bits /= 2) sum += shfl_xor(sum, bits);
        sync_block();
        if (lane == 0) row.slots[warp] = sum;
        sync_block();
        int w = 0;
        while (w < kChoiceWarps - 1 && before + row.slots[w] <= target) before += row.slots[w++];
        begin += w * part;
        end = begin + part < end ? begin + part : end;
    }
    const Mass own = begin + lane < end ? counts(row.logits[begin + lane]) : 0;  // the same in every warp
    Mass through = own;
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const Mass other = shfl_up(through, distance);
        if (lane >= distance) through += other;
    }
    const unsigned past = ballot(own != 0 && target < before + through);
    int first = 0;
    while (first < kWarp - 1 && (past >> first & 1) == 0) ++first;
    return begin + first;
}

/// Adds bias and penalties in place, as the host does, rounding for rounding. False where the logits aren't
/// finite.
__device__ __forceinline__ bool adjust(
    float* logits, const SampleRow& row, int vocab, Best* best, Best* slots) {
    Best raw = 0;
    for_each(logits, int(threadIdx.x), vocab, kChoiceThreads, [&](float l, int i) {
        const Best mine = best_of(l, i);
        raw = mine > raw ? mine : raw;
    });
    raw = block_best(raw, slots);
    if (!is_finite(best_logit(raw))) return false;
    for (int i = int(threadIdx.x); i < row.n_bias; i += kChoiceThreads)
        logits[row.bias_ids[i]] = add_rn(logits[row.bias_ids[i]], row.biases[i]);
    sync_block();
    for (int i = int(threadIdx.x); i < row.n_penalties; i += kChoiceThreads) {
        float l = logits[row.penalty_ids[i]];
        l = l > 0 ? l / row.repetition : mul_rn(l, row.repetition);
        logits[row.penalty_ids[i]] = sub_rn(l, row.penalties[i]);
    }
    if (row.n_bias == 0 && row.n_penalties == 0) {
        *best = raw;
        return true;
    }
    sync_block();
    Best after = 0;
    for_each(logits, int(threadIdx.x), vocab, kChoiceThreads, [&](float l, int i) {
        const Best mine = best_of(l, i);
        after = mine > after ? mine : after;
    });
    *best = block_best(after, slots);
    sync_block();  // everyone sees the adjusted logits
    return is_finite(best_logit(*best));
}

__device__ __forceinline__ Sampled draw(Best best, const SampleRow& how, const Row& row) {
    Candidates c{best_logit(best), how.inverse_temperature, 0u, 0.0};
    if (how.top_k > 0 && how.top_k < row.vocab)
        c.least_key =
            select(
                Mass(how.top_k - 1), row, [](float l) { return key_of(l); }, [](float) { return Mass(1); })
                .key;
    Mass total = total_mass(c, row);
    const auto weight_key = [&](float l) { return f32_to_bits(c.weight(l)); };
    const auto mass = [&](float l) { return c.mass(l); };
    if (how.top_p < 1) {
        // The nucleus ends with the element that carries the sum over p: the largest whole number below is in
        // it.
        const double border = how.top_p * double(total);
        const Mass last = border > 1 ? Mass(ceil(border)) - 1 : 0;
        const Place end = select(last < total ? last : total - 1, row, weight_key, mass);
        const Mass one = mass_of(bits_to_f32(end.key));
        total = end.before + ((last - end.before) / one + 1) * one;
    }
    if (how.min_p > 0) {
        c.least_weight = how.min_p;  // the largest weight is 1
        const Mass heavy = total_mass(c, row);
        total = heavy < total ? heavy : total;
    }
    Mass target = Mass(double(total) * uniform(how.seed, how.step));
    if (target >= total) target = total - 1;  // where rounding a sum of more than 53 bits went up
    int id;
    if (how.top_p < 1) {
        const Place place = select(target, row, weight_key, mass);
        const Mass rank = (target - place.before) / mass_of(bits_to_f32(place.key));
        id = nth_by_id(rank, row,
                       [&](float l) { return Mass(weight_key(l) == place.key && mass(l) != 0 ? 1 : 0); });
    } else {
        id = nth_by_id(target, row, mass);
    }
    return {id, float(double(mass(row.logits[id])) / double(total))};
}

__global__ void __launch_bounds__(kChoiceThreads, 2)
    sample_kernel(Sampled* out, float* logits, std::int64_t stride, const SampleRow* rows, int vocab) {
    SHARED_ARRAY(Mass, bins, 256);
    SHARED_ARRAY(Mass, found, 2);
    SHARED_ARRAY(Mass, slots, kChoiceWarps);
    const SampleRow& row = rows[blockIdx.x];
    float* own = logits + row.row * stride;
    Best best = 0;
    Sampled result{-1, 0};
    if (adjust(own, row, vocab, &best, slots))
        result = row.inverse_temperature == 0 ? Sampled{best_id(best), 1.0f}
                                              : draw(best, row, Row{own, vocab, bins, found, slots});
    if (threadIdx.x != 0) return;
    out[blockIdx.x] = result;
    if (row.id != nullptr) *row.id = result.id;
}

}  // namespace

void sample(Sampled* out,
            float* logits,
            std::int64_t stride,
            const SampleRow* rows,
            int n_rows,
            int vocab,
            Stream stream) {
    if (n_rows == 0) return;
    const Shape shape{unsigned(n_rows), 1, 1, kChoiceThreads, 0};
    launch("sample", sample_kernel, shape, Dependent::no, stream, out, logits, stride, rows, vocab);
}

}  // namespace llmgen::kernels
