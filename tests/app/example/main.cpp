// Answers one question, token by token: example CHECKPOINT [QUESTION].
#include <llmgen/llmgen.h>

#include <iostream>

int main(int argc, char** argv) try {
    llmgen::EngineOptions options;
    options.model = argc > 1 ? argv[1] : "";  // "" = LLMGEN_MODEL, else what tools/quickstart fetched
    auto engine = llmgen::Engine::open(options);

    llmgen::Request request;
    request.prompt = llmgen::Chat::user(argc > 2 ? argv[2] : "What is the capital of France?");
    request.max_new_tokens = 64;
    const auto result = engine.generate(request, [](const llmgen::Chunk& chunk) {
        std::cout << chunk.text << std::flush;
        return true;  // false would cancel
    });

    std::cout << "\n";
    std::cerr << result.token_ids.size() << " tokens, first after " << result.timing.ttft_s << " s, ended by "
              << llmgen::name_of(result.finish_reason) << "\n";
} catch (const llmgen::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
}
