// What stands behind Engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/answer.h"
#include "engine/runner.h"
#include "engine/worker.h"
#include "ops/backend.h"

namespace llmgen {

/// What the worker's thread makes and uses, in the order of its life.
struct LoadedModel {
    std::unique_ptr<Ops> ops;
    std::unique_ptr<Model> model;
    std::unique_ptr<Runner> runner;
    std::unique_ptr<PagePool> pool;
    SchedulerLimits limits;
};

class Engine::Impl {
public:
    explicit Impl(const EngineOptions& options);
    ~Impl();

    Engine::Formatted format(const Request& request) const;
    Stream submit(Request request);
    const EngineInfo& info() const { return info_; }
    EngineStats stats() const;
    const Tokenizer& tokenizer() const;

private:
    // load.cpp, on the worker's thread, before anything else sees the engine
    std::unique_ptr<LoadedModel> load();
    void load_text(const std::filesystem::path& directory, int vocab_size);
    void progress(const std::string& phase, double fraction) const;

    Answer::Terms terms_of(const Request& request) const;

    EngineOptions options_;
    EngineInfo info_;
    std::optional<Tokenizer> tokenizer_;  // absent where dummy weights have none
    std::optional<ChatTemplate> chat_template_;
    std::vector<int> control_ids_;  // ascending: not special, yet words of the template ("<think>")
    std::string template_fault_;    // a template that doesn't parse is no reason not to complete plain text
    std::int64_t n_submitted_ = 0;  // under the mailbox's mutex
    std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
    std::jthread worker_;
};

}  // namespace llmgen
