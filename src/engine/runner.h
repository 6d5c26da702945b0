// Runs one step's rows on the device: lays the batch out, uploads it, calls the model, brings back the
// logits, or, where the device chooses tokens and nobody wants to see logits, the ids alone.
//
// A decode step may follow the one before without its ids having come to the host: they are chosen into the
// very tensor that the next step reads them from.
//
//   run(n) begin_choice(n) │ run_next(n + 1) begin_choice(n + 1) finish_choice(n) │ run_next(n + 2) …
//
// Owns the memory that a step needs, all of it allocated once: the pages of keys and values, one buffer
//   [layer][k | v][page][kv_head][kPageSize][head_dim]      on a device
//   [page][layer][k | v][kv_head][kPageSize][head_dim]      in the host's memory
// and the batch's index tensors. On the host memory is taken as it is touched: with a page's layers together
// a context fills it from one end, so that the backend can have it on huge pages and waste less than one. The
// model and its backend are used from one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "models/model.h"

namespace llmgen {

struct RunnerLimits {
    int max_tokens = 0;  // of a step
    int max_seqs = 0;
    int max_logits = 0;  // rows
    int max_context = 0;
    int n_pages = 0;
};

class Runner {
public:
    /// `model` lives longer than the runner and has its buffers sized here.
    Runner(Model& model, Ops& ops, const RunnerLimits& limits);

    /// Computes the rows; afterwards their sequences' keys and values are stored. Logits of each row's last
    /// token where it samples, of all its tokens where the sequence wants them all.
    void run(const Plan& plan);
    /// Whether the next step may be of the same rows, each with the token that the last step's choice gave
    /// it: one row a sequence, chosen on the device.
    bool can_follow() const { return recorded_ && chooses(); }
    /// That step: enqueued without a look at the ids. Rows as in the last run.
    void run_next(const Plan& plan);

    /// Logits of the last run, [vocab] f32, in the order of its rows; may be overwritten. Brought from the
    /// device when first asked for; where it computes in the host's memory, they are read there.
    int n_logits() const { return n_logits_; }
    std::span<float> logits(int i);
    /// Where row i's largest logit stands first, if the backend found it on the way; else -1.
    int largest(int i) const;

    /// Whether the device can choose tokens, so that logits need not be brought.
    bool chooses() const { return ops_.chooses_tokens(); }
    /// Has the tokens of `rows` of the last run's logits chosen, none of which logits() was asked for, and
    /// begins to read them. A ticket for finish_choice(), of which two may be open.
    int begin_choice(std::span<const TokenChoice> rows);
    /// The tokens by row of logits, valid until the next call; -1 where logits aren't finite, anything where
    /// nobody asked.
    std::span<const int> finish_choice(int ticket);
    const HostBatch& batch() const { return host_; }

private:
    void make_pages();
    void lay_out(const Plan& plan);
    void enqueue(bool follows);
    bool only_decodes() const;
    void pad();
    std::uint64_t bound_context();
    Batch upload_recorded(bool follows);
    Batch upload_batch();
    Tensor upload(const Tensor& room,
                  const std::vector<int>& values,
                  std::initializer_list<std::int64_t> dims);
    Tensor index_buffer(std::int64_t size);

    Model& model_;
    bool host_memory_ = false;
    Ops& ops_;
    RunnerLimits limits_;
    HostBatch host_;
    int n_logits_ = 0;       // of the last run, without padding
    Batch room_;             // index tensors of the largest size
    bool recorded_ = false;  // the last run: a step of few shapes
    Tensor decode_room_;     // the tensors of such a step but the page table, one after the other: ids first
    std::vector<int> staging_;
    std::unique_ptr<Buffer> kv_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
    Tensor device_logits_, device_ids_;  // of the last run
    std::vector<float> logits_;          // [max_logits, vocab]
    std::vector<char> have_;             // the rows of it that were brought
    std::vector<int> ids_;
    std::vector<TokenChoice> rest_;
};

}  // namespace llmgen
