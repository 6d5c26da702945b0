// How the engine's tests open a checkpoint and ask it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "llmgen/llmgen.h"

namespace llmgen::test {

/// On the CPU in f32 with one thread, unless `change` says otherwise.
inline Engine open_engine(const std::filesystem::path& path,
                          const std::function<void(EngineOptions&)>& change = {}) {
    EngineOptions options;
    options.model = path.string();
    options.device = "cpu";
    options.compute = "f32";
    options.threads = 1;
    if (change) change(options);
    return Engine::open(options);
}

/// The likeliest ids, `n_new` of them whatever they are; without a number, until the context is full.
inline Request greedy(Prompt prompt, std::optional<int> n_new) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_new_tokens = n_new;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    return request;
}

/// The results of all of them, submitted at once.
inline std::vector<Result> together(Engine& engine, const std::vector<Request>& requests) {
    std::vector<Stream> streams;
    for (const Request& request : requests) streams.push_back(engine.submit(request));
    std::vector<Result> results;
    for (Stream& stream : streams) results.push_back(stream.result());
    return results;
}

}  // namespace llmgen::test
