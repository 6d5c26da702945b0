// A checkpoint on the CPU with the engine's own loop around it, ids in and ids or logits out: no text.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "models/model.h"
#include "ops/backend.h"
#include "tests/support.h"
#ifdef LLMGEN_EMULATED_CUDA
#include "simt/device/emulated_runtime.h"
#endif

namespace llmgen::test {

inline nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

/// Where the small real model lies, or an empty path.
inline std::filesystem::path smollm2() {
    if (const char* given = std::getenv("LLMGEN_SMOLLM2")) return given;
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::filesystem::path base =
        cache ? std::filesystem::path(cache) : std::filesystem::path(home ? home : "/nonexistent") / ".cache";
    return base / "llmgen/models/smollm2-135m-instruct";
}

inline std::unique_ptr<Ops> open_ops(const std::string& compute) {
#ifdef LLMGEN_EMULATED_CUDA
    return simt::make_emulated_cuda_ops(compute == "f32" ? Compute::f32 : Compute::bf16);
#elif defined(LLMGEN_HARDWARE)
    return open_backend({"cuda", compute, 0}).ops;
#else
    return open_backend({"cpu", compute, 2}).ops;
#endif
}

class Harness {
public:
    Harness(const std::filesystem::path& directory,
            const std::string& compute,
            int max_context = 0,
            std::unique_ptr<Ops> ops = nullptr)
        : checkpoint_(Checkpoint::open(directory, known_architectures())),
          ops_(ops != nullptr ? std::move(ops) : open_ops(compute)),
          model_(load_model(checkpoint_, *ops_)) {
        const int context =
            max_context > 0 ? max_context : std::min(2048, context_limit(checkpoint_.config()));
        n_pages_ = 8 * PagePool::pages_for(context);
        runner_.emplace(*model_, *ops_,
                        RunnerLimits{.max_tokens = kMaxTokens + 64,
                                     .max_seqs = 64,
                                     .max_logits = 64 + kMaxTokens,
                                     .max_context = context,
                                     .n_pages = n_pages_});
    }

    const Model& model() const { return *model_; }
    const ModelConfig& config() const { return checkpoint_.config(); }
    int n_pages() const { return n_pages_; }
    Runner& runner() { return *runner_; }

    /// Argmax, `n[i]` times for prompt i; all in one batch.
    std::vector<std::vector<int>> greedy(const std::vector<std::vector<int>>& prompts,
                                         const std::vector<int>& n,
                                         int chunk = 512) {
        PagePool pool(n_pages_, false);
        Scheduler scheduler(pool, {.max_sequences = 64, .prefill_chunk = chunk, .mixed_chunk = chunk});
        std::vector<Sequence> sequences(prompts.size());
        logits_.assign(prompts.size(), {});
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            sequences[i].tokens = prompts[i];
            sequences[i].n_prompt = int(prompts[i].size());
            sequences[i].arrival = std::int64_t(i);
            scheduler.add(sequences[i]);
        }
        while (true) {
            const Plan& plan = scheduler.next();
            if (plan.rows.empty()) break;
            runner_->run(plan);
            const std::vector<PlanRow> rows = plan.rows;
            scheduler.commit();
            int next = 0;
            for (const PlanRow& row : rows) {
                if (!row.samples()) continue;
                Sequence& s = *row.sequence;
                const auto logits = runner_->logits(next++);
                const auto i = std::size_t(s.arrival);
                if (logits_[i].size() < kKeptLogits) logits_[i].emplace_back(logits.begin(), logits.end());
                s.tokens.push_back(int(std::ranges::max_element(logits) - logits.begin()));
                if (int(s.tokens.size()) == s.n_prompt + n[i]) scheduler.remove(s);
            }
        }
        std::vector<std::vector<int>> answers;
        for (const Sequence& s : sequences)
            answers.emplace_back(s.tokens.begin() + s.n_prompt, s.tokens.end());
        return answers;
    }
    std::vector<int> greedy(const std::vector<int>& prompt, int n, int chunk = 512) {
        return greedy(std::vector<std::vector<int>>{prompt}, std::vector{n}, chunk).front();
    }
    /// Of prompt i of the last greedy(): the logits that each of its first tokens was chosen from.
    const std::vector<std::vector<float>>& step_logits(std::size_t i = 0) const { return logits_[i]; }

    /// Logits after every token.
    std::vector<std::vector<float>> all_logits(const std::vector<int>& tokens, int chunk = 512) {
        PagePool pool(n_pages_, false);
        Scheduler scheduler(pool, {.prefill_chunk = chunk, .all_logits_rows = std::min(chunk, kMaxTokens)});
        Sequence sequence;
        sequence.tokens = tokens;
        sequence.n_prompt = int(tokens.size());
        sequence.all_logits = true;
        scheduler.add(sequence);
        std::vector<std::vector<float>> all;
        while (all.size() < tokens.size()) {
            const Plan& plan = scheduler.next();
            runner_->run(plan);
            for (int i = 0; i < runner_->n_logits(); ++i) {
                const auto logits = runner_->logits(i);
                all.emplace_back(logits.begin(), logits.end());
            }
            scheduler.commit();
        }
        scheduler.remove(sequence);
        return all;
    }

private:
    static constexpr int kMaxTokens = 512;
    static constexpr std::size_t kKeptLogits = 8;
    Checkpoint checkpoint_;
    std::unique_ptr<Ops> ops_;
    std::unique_ptr<Model> model_;
    std::optional<Runner> runner_;
    int n_pages_ = 0;
    std::vector<std::vector<std::vector<float>>> logits_;  // [prompt][step][vocab]
};

/// Every directory below `root` that holds a golden.json, by name.
inline std::vector<std::filesystem::path> checkpoints_under(const std::filesystem::path& root) {
    std::vector<std::filesystem::path> found;
    if (std::filesystem::is_directory(root))
        for (const auto& entry : std::filesystem::directory_iterator(root))
            if (std::filesystem::exists(entry.path() / "golden.json")) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
}

}  // namespace llmgen::test
