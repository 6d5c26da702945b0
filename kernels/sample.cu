// One block chooses the next token of one row. Formulas and order are the host sampler's (engine/sampler.h);
// see kernels.h for what "the same choice" means.
//
// Nothing is sorted: a border in the sorted order (the k-th logit, the end of the nucleus, the draw) is found
// by four passes over the bytes of a key, each a histogram of counts or masses. The worst case, all filters
// on, reads the row about 16 times from L2: some 150 µs at a vocabulary of 128k (NOTES.md); greedy reads it
// twice.
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

/// What is left to choose from, after the filters so far.
struct Candidates {
    const float* logits;
    float largest, inverse;
    std::uint32_t least_key;  // of a logit, by top-k
    double least_weight;      // by min-p

    __device__ float weight(int i) const {
        const float l = logits[i];
        return key_of(l) < least_key
                   ? 0.0f
                   : exp_of_negative(l == largest ? 0.0f : mul_rn(sub_rn(l, largest), inverse));
    }
    __device__ Mass mass(int i) const {
        const float w = weight(i);
        return double(w) < least_weight ? 0 : mass_of(w);
    }
};

/// The scratch of a block.
struct Scratch {
    Mass *bins, *found, *slots;
};

__device__ __forceinline__ Mass total_mass(const Candidates& c, int vocab, const Scratch& s) {
    Mass sum = 0;
    for (int i = int(threadIdx.x); i < vocab; i += kChoiceThreads) sum += c.mass(i);
    return block_total(sum, s.slots);
}

/// The element at `target` in id order: the first whose running sum passes it. `counts(i)` is what it adds.
template <typename CountOf>
__device__ __forceinline__ int nth_by_id(Mass target, int vocab, const Scratch& s, CountOf counts) {
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    const int part = (vocab + kChoiceWarps - 1) / kChoiceWarps;  // a warp's run of ids
    const int begin = warp * part, end = begin + part < vocab ? begin + part : vocab;
    Mass sum = 0;
    for (int i = begin + lane; i < end; i += kWarp) sum += counts(i);
    for (int bits = kWarp / 2; bits > 0; bits /= 2) sum += shfl_xor(sum, bits);
    sync_block();
    if (lane == 0) s.slots[warp] = sum;
    if (threadIdx.x == 0) s.found[0] = 0;
    sync_block();
    Mass before = 0;
    for (int w = 0; w < warp; ++w) before += s.slots[w];
    if (before <= target && target < before + sum) {  // the same in all lanes
        for (int i0 = begin; i0 < end; i0 += kWarp) {
            const Mass own = i0 + lane < end ? counts(i0 + lane) : 0;
            Mass running = own;
            for (int distance = 1; distance < kWarp; distance *= 2) {
                const Mass other = shfl_up(running, distance);
                if (lane >= distance) running += other;
            }
            if (own != 0 && before + running - own <= target && target < before + running)
                s.found[0] = Mass(i0 + lane);
            before += shfl(running, kWarp - 1);
        }
    }
    sync_block();
    return int(s.found[0]);
}

/// Adds bias and penalties in place, as the host does, rounding for rounding. False where the logits aren't
/// finite.
__device__ __forceinline__ bool adjust(
    float* logits, const SampleRow& row, int vocab, Best* best, Best* slots) {
    Best raw = 0;
    for (int i = int(threadIdx.x); i < vocab; i += kChoiceThreads) {
        const Best mine = best_of(logits[i], i);
        raw = mine > raw ? mine : raw;
    }
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
    for (int i = int(threadIdx.x); i < vocab; i += kChoiceThreads) {
        const Best mine = best_of(logits[i], i);
        after = mine > after ? mine : after;
    }
    *best = block_best(after, slots);
    sync_block();  // everyone sees the adjusted logits
    return is_finite(best_logit(*best));
}

__device__ __forceinline__ Sampled
draw(const float* logits, Best best, const SampleRow& row, int vocab, const Scratch& s) {
    Candidates c{logits, best_logit(best), row.inverse_temperature, 0u, 0.0};
    if (row.top_k > 0 && row.top_k < vocab)
        c.least_key = select(
                          Mass(row.top_k - 1), vocab, s.bins, s.found,
                          [&](int i) { return key_of(logits[i]); }, [](int) { return Mass(1); })
                          .key;
    Mass total = total_mass(c, vocab, s);
    const auto weight_key = [&](int i) { return f32_to_bits(c.weight(i)); };
    const auto mass = [&](int i) { return c.mass(i); };
    if (row.top_p < 1) {
        // The nucleus ends with the element that carries the sum over p: the largest whole number below is in
        // it.
        const double border = row.top_p * double(total);
        const Mass last = border > 1 ? Mass(ceil(border)) - 1 : 0;
        const Place end = select(last < total ? last : total - 1, vocab, s.bins, s.found, weight_key, mass);
        const Mass one = mass_of(bits_to_f32(end.key));
        total = end.before + ((last - end.before) / one + 1) * one;
    }
    if (row.min_p > 0) {
        c.least_weight = row.min_p;  // the largest weight is 1
        const Mass heavy = total_mass(c, vocab, s);
        total = heavy < total ? heavy : total;
    }
    const Mass target = Mass(double(total) * uniform(row.seed, row.step));
    int id;
    if (row.top_p < 1) {
        const Place place = select(target, vocab, s.bins, s.found, weight_key, mass);
        const Mass rank = (target - place.before) / mass_of(bits_to_f32(place.key));
        id = nth_by_id(rank, vocab, s,
                       [&](int i) { return Mass(weight_key(i) == place.key && mass(i) != 0 ? 1 : 0); });
    } else {
        id = nth_by_id(target, vocab, s, mass);
    }
    return {id, float(double(mass(id)) / double(total))};
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
                                              : draw(own, best, row, vocab, Scratch{bins, found, slots});
    if (threadIdx.x == 0) out[blockIdx.x] = result;
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
