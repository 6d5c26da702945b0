#include "app/cli/report.h"

#include <cmath>

#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/numbers.h"
#include "base/error.h"

namespace llmgen::app {
namespace {

std::string line(const std::string& name, const std::string& value) {
    return fmt::format("{:<12} {}\n", name, printable(value));
}

std::string ms(double seconds) { return fmt::format("{:.{}f} ms", 1000 * seconds, seconds < 0.1 ? 1 : 0); }

// A token as a person sees it: its text in quotes, or its name where it has no text of its own.
std::string token_text(const Tokenizer& tokenizer, int id) {
    const int one[] = {id};
    std::string text = tokenizer.decode(one, false);
    if (tokenizer.is_special(id) || text.empty()) {
        const std::string name = tokenizer.token(id);
        return name.empty() ? fmt::format("<id {}>", id) : printable(name);
    }
    std::string shown;
    for (const char c : text)
        shown += c == '\n' ? std::string("\\n") : c == '\t' ? std::string("\\t") : std::string(1, c);
    return "\"" + printable(shown) + "\"";
}

std::string sampling_text(const Sampling& s) {
    const bool greedy = s.temperature == 0;
    std::string out =
        greedy ? "greedy (temperature 0)" : fmt::format("temperature {:g}", s.temperature.value_or(1));
    const auto add = [&](const char* name, double value, bool on) {
        if (on) out += fmt::format(", {} {:g}", name, value);
    };
    add("top-k", s.top_k.value_or(0), !greedy && s.top_k.value_or(0) > 0);
    add("top-p", s.top_p.value_or(1), !greedy && s.top_p.value_or(1) < 1);
    add("min-p", s.min_p.value_or(0), !greedy && s.min_p.value_or(0) > 0);
    add("repetition-penalty", s.repetition_penalty.value_or(1), s.repetition_penalty.value_or(1) != 1);
    add("presence-penalty", s.presence_penalty.value_or(0), s.presence_penalty.value_or(0) != 0);
    add("frequency-penalty", s.frequency_penalty.value_or(0), s.frequency_penalty.value_or(0) != 0);
    if (!s.logit_bias.empty())
        out += fmt::format(", logit-bias of {} token{}", s.logit_bias.size(),
                           s.logit_bias.size() == 1 ? "" : "s");
    if (s.seed && !greedy) out += fmt::format(", seed {}", *s.seed);
    return out;
}

// "first token after 20.3 ms, then 8.2 ms a token (TPOT), ": as much of it as there is.
std::string latency_text(const Timing& t) {
    std::string out;
    if (!t.token_times_s.empty()) out += fmt::format("first token after {}, ", ms(t.ttft_s));
    if (t.tpot_s > 0) out += fmt::format("then {} a token (TPOT), ", ms(t.tpot_s));
    return out;
}

std::string stops_text(const GenerationFlags& asked, const EngineInfo& info, const Tokenizer& tokenizer) {
    std::vector<int> ids = asked.stop_token_ids;
    if (!asked.ignore_eos) ids.insert(ids.begin(), info.eos_token_ids.begin(), info.eos_token_ids.end());
    std::string out;
    for (const int id : ids)
        out += (out.empty() ? "" : ", ") + fmt::format("{} (id {})", token_text(tokenizer, id), id);
    for (const std::string& text : asked.stop) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", text);
    return out.empty() ? "no token" : out;
}

std::string step_line(const Result& result, const Step& step, const Tokenizer& tokenizer) {
    std::string out;
    if (step.index == 0) {
        out = fmt::format("step 0 (prefill): computed {} prompt token{}", step.computed_tokens,
                          step.computed_tokens == 1 ? "" : "s");
        if (step.cached_tokens > 0) out += fmt::format(", took {} from the prefix cache", step.cached_tokens);
    } else {
        const std::size_t previous = std::size_t(step.index) - 1;
        const std::string fed =
            previous < result.token_ids.size() ? " " + token_text(tokenizer, result.token_ids[previous]) : "";
        out = fmt::format("step {}: computed {} token{}{}, read {} from the cache", step.index,
                          step.computed_tokens, step.computed_tokens == 1 ? "" : "s",
                          step.computed_tokens == 1 ? fed : "", step.cached_tokens);
    }
    const double by_model = std::exp(step.chosen.logprob);
    out += fmt::format(", {:.1f} ms -> chose {} {:.1f} %", step.milliseconds,
                       token_text(tokenizer, step.chosen.id), 100 * by_model);
    // Greedy leaves the choice no chance; other rules shift it.
    if (step.probability < 1 && std::abs(step.probability - by_model) > 0.0005)
        out += fmt::format(" ({:.1f} % after the sampling rules)", 100 * step.probability);
    std::string others;
    for (const TokenLogprob& other : step.runners_up) {
        if (other.id == step.chosen.id) continue;
        others += (others.empty() ? "" : ", ") +
                  fmt::format("{} {:.1f} %", token_text(tokenizer, other.id), 100 * std::exp(other.logprob));
    }
    return out + (others.empty() ? "" : "; next were " + others) + "\n";
}

}  // namespace

double measured_read_bandwidth(const EngineInfo& info) {
    try {
        const Json report = Json::parse(describe_devices(true, info.threads));
        for (const Json& device : report.at("devices"))
            if (device.at("name") == info.device) return device.value("read_bandwidth_bytes_per_s", 0.0);
    } catch (const std::exception&) {  // a report without its floor is still a report
    }
    return 0;
}

std::string finish_text(const Result& result, const Tokenizer& tokenizer) {
    switch (result.finish_reason) {
        case FinishReason::eos:
            return result.stop_token_id
                       ? fmt::format("eos: the model produced {} (id {}), which ends the text",
                                     token_text(tokenizer, *result.stop_token_id), *result.stop_token_id)
                       : "eos: the model ended the text";
        case FinishReason::stop_string:
            return fmt::format("stop_string: the text \"{}\" came up (--stop)", result.stop_string);
        case FinishReason::max_new_tokens:
            return result.max_new_tokens == 1 ? "max_new_tokens: 1 token was asked for"
                                              : fmt::format("max_new_tokens: {} tokens were asked for",
                                                            result.max_new_tokens.value_or(0));
        case FinishReason::context_full:
            return fmt::format("context_full: prompt and answer reached the limit of {} tokens",
                               result.context_limit);
        case FinishReason::cancelled:
            return "cancelled: interrupted from outside";
        case FinishReason::error:
            return "error: " + result.error;
    }
    return "";
}

std::string stats_report(const Result& result,
                         const EngineInfo& info,
                         const Tokenizer& tokenizer,
                         const GenerationFlags& asked,
                         double bandwidth) {
    const Timing& t = result.timing;
    const int computed = int(result.prompt_ids.size()) - result.cached_tokens;
    const std::size_t n_out = result.token_ids.size();
    const double prefill_s = t.ttft_s - t.queued_s;  // below 0 where no token came
    const auto pace = [](double per_s) { return per_s > 0 ? fmt::format(", {:.1f} tok/s", per_s) : ""; };
    std::string out;
    out += line("model", fmt::format("{} ({}, {}, {:.1f} M parameters, {})", info.model_path,
                                     info.architecture, info.dtype, double(info.parameters) / 1e6,
                                     human_bytes(double(info.weight_bytes))));
    out += line("device", fmt::format("{}{}{}, compute {}, {} threads", info.device,
                                      info.device_description.empty() ? "" : ": ", info.device_description,
                                      info.compute, info.threads));
    out += line("load", fmt::format("{:.2f} s", info.load_seconds));
    out += line("prompt", fmt::format("{} tokens ({} from the cache){}", result.prompt_ids.size(),
                                      result.cached_tokens, prefill_s > 0 ? pace(computed / prefill_s) : ""));
    out += line("answer", fmt::format("{} token{}{}", n_out, n_out == 1 ? "" : "s", pace(t.tokens_per_s)));
    out += line("latency", fmt::format("{}all {}", latency_text(t), ms(t.completion_s)));
    if (bandwidth > 0 && info.weight_bytes > 0) {
        const double floor_s = double(info.weight_bytes) / bandwidth;
        const std::string reached =
            t.tpot_s > 0 ? fmt::format("; reached {:.0f} %", 100 * floor_s / t.tpot_s) : "";
        out +=
            line("floor",
                 fmt::format("{} a token: {} of weights at the {:.1f} GB/s that a plain read loop measured{}",
                             ms(floor_s), human_bytes(double(info.weight_bytes)), bandwidth / 1e9, reached));
    }
    if (prefill_s > 0 && info.prefill_flop_per_token > 0 && computed > 0)
        out += line("prefill", fmt::format("{:.3f} TFLOP/s (matmuls of the model's own count)",
                                           computed * info.prefill_flop_per_token / prefill_s / 1e12));
    out += line("context",
                fmt::format("{} of {} tokens used", result.prompt_ids.size() + result.token_ids.size(),
                            result.context_limit));
    out += line("sampling", sampling_text(result.sampling));
    out += line("stops on", stops_text(asked, info, tokenizer));
    out += line("finish", finish_text(result, tokenizer));
    return out;
}

std::string explain_report(const Result& result, const EngineInfo& info, const Tokenizer& tokenizer) {
    std::string out =
        "How this answer was made\n"
        "  A model reads the text as tokens (words or pieces of words) and gives each token of its "
        "vocabulary a\n"
        "  probability of coming next. One is chosen, appended, and the model is asked again: that is the "
        "whole loop.\n"
        "  The first step (prefill) must compute the whole prompt: that is the pause before the first word. "
        "It keeps\n"
        "  what it computed (the keys and values, the KV cache), so every later step computes one token only "
        "and\n"
        "  reads the rest: that is the pace of the words. Each step reads all weights once";
    out +=
        info.weight_bytes > 0 ? fmt::format(" ({}).\n\n", human_bytes(double(info.weight_bytes))) : ".\n\n";
    for (const Step& step : result.steps) out += step_line(result, step, tokenizer);
    const Timing& t = result.timing;
    if (!t.token_times_s.empty()) out += fmt::format("\nPause before the first token: {}.", ms(t.ttft_s));
    if (t.tpot_s > 0) out += fmt::format(" Pace after it: {} a token.", ms(t.tpot_s));
    out += "\n";
    out += "How a token was chosen: " + printable(sampling_text(result.sampling)) + ".\n";
    out += "Why it ended: " + printable(finish_text(result, tokenizer)) + ".\n";
    return out;
}

}  // namespace llmgen::app
