// score, inspect, devices: what a model says about a text, what a checkpoint holds, what the machine has.
#include <cmath>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/io.h"
#include "app/cli/json.h"
#include "app/cli/options.h"
#include "app/cli/session.h"
#include "base/error.h"
#include "base/utf8.h"

namespace llmgen::app {
namespace {

class Score : public Command {
public:
    explicit Score(CLI::App& root)
        : Command(add_subcommand(root,
                                 "score",
                                 "Log-probability of each token of a text, and its perplexity",
                                 "  llmgen score \"The capital of France is Paris.\" --top 3\n"
                                 "  llmgen score --ids 504,3575,282 --compute f32\n"
                                 "\n"
                                 "Prints {\"ids\", \"logprobs\" (natural logarithms, null for the first), "
                                 "\"nll\" (mean of -logprob),\n"
                                 "\"perplexity\", \"top\": after each position the N best {\"id\", "
                                 "\"logit\", \"logprob\"}}. The text is the\n"
                                 "argument, else stdin, byte for byte. --jsonl: a line is {\"text\"} or "
                                 "{\"ids\"}, \"id\" comes back.")) {
        Flags flags(*app_);
        flags.text("--ids", ids_, "IDS|@FILE", "token ids, 1,2,3, instead of text");
        flags.integer("--top", top_, 0, 1 << 20, "the N best tokens after each position");
        flags.flag("--json", json_, "(the output is JSON anyway)");
        flags.flag("--jsonl", jsonl_, "read JSON lines from stdin");
        engine_.add_to(flags);
        flags.text("TEXT", text_, "", "the text (stdin)");
    }
    int run(Context& context) override {
        if (int(ids_.has_value()) + int(text_.has_value()) + int(jsonl_) > 1)
            fail_usage("TEXT, --ids and --jsonl: give one of them");
        Prompt prompt;
        if (ids_)
            prompt = ids_from_flag("--ids", *ids_);
        else if (!jsonl_)
            prompt = RawText{utf8::repair(text_ ? *text_ : read_all(0, "standard input"))};
        Engine engine = open_engine(engine_.options(), engine_.quiet);
        if (jsonl_) return score_lines(engine, context);
        const std::optional<Json> scored = score(engine, std::move(prompt), context);
        if (!scored) return context.interrupts.exit_code();
        write_stdout(dump(*scored) + "\n");
        return kDone;
    }

private:
    int score_lines(Engine& engine, Context& context) {
        LineReader lines("-");
        bool failed = false;
        while (const auto line = lines.next()) {
            Json out = Json::object();
            const std::string where = fmt::format("line {}", lines.line_number());
            try {
                JsonObject object(*line, where);
                if (object.find("id")) out["id"] = *object.find("id");
                Prompt prompt;
                if (object.find("ids"))
                    prompt = ids_from_json(*object.find("ids"), where);
                else if (object.find("text"))
                    prompt = RawText{object.string("text")};
                else
                    fail("{}: neither \"text\" nor \"ids\"", where);
                const std::optional<Json> scored = score(engine, std::move(prompt), context);
                if (!scored) return context.interrupts.exit_code();
                out.update(*scored);
            } catch (const Error& error) {
                failed = true;
                out["error"] = printable(error.what());
            }
            write_stdout(dump(out) + "\n");
        }
        if (failed) say("some lines could not be scored; each has an \"error\" in its place");
        return failed ? kFailed : kDone;
    }

    // nullopt: interrupted.
    std::optional<Json> score(Engine& engine, Prompt prompt, Context& context) const {
        Request request;
        request.prompt = std::move(prompt);
        request.max_new_tokens = 0;
        request.sampling.temperature = 0;
        request.prompt_logprobs = true;
        request.logprobs = top_;
        Progress progress(!engine_.quiet && is_capable_terminal(2), engine_.engine.prefill_chunk);
        const Result result =
            run_request(engine, std::move(request), context.interrupts, progress, [](const std::string&) {});
        if (result.finish_reason == FinishReason::cancelled) return std::nullopt;
        if (result.finish_reason == FinishReason::error) fail("{}", result.error);
        double sum = 0;
        std::size_t n = 0;
        Json logprobs = Json::array();
        for (const auto& entry : result.prompt_logprobs) {
            logprobs.push_back(entry ? Json(entry->logprob) : Json(nullptr));
            if (!entry) continue;
            sum += entry->logprob;
            ++n;
        }
        Json top = Json::array();
        for (const auto& best : result.prompt_top_logprobs) {
            Json row = Json::array();
            for (const TokenLogprob& token : best)
                row.push_back({{"id", token.id}, {"logit", token.logit}, {"logprob", token.logprob}});
            top.push_back(std::move(row));
        }
        Json out{{"ids", result.prompt_ids}, {"logprobs", std::move(logprobs)}};
        out["nll"] =
            n ? Json(-sum / double(n)) : Json(nullptr);  // one token has nothing to be predicted from
        out["perplexity"] = n ? Json(std::exp(-sum / double(n))) : Json(nullptr);
        if (top_ > 0) out["top"] = std::move(top);
        return out;
    }

    EngineFlags engine_;
    std::optional<std::string> ids_, text_;
    int top_ = 0;
    bool json_ = false, jsonl_ = false;
};

// A JSON value as indented "name  value" lines: for people. Sizes keep their unit from the key's name.
void print_facts(const Json& json, int indent, std::string& out) {
    const std::string margin(std::size_t(indent) * 2, ' ');
    const auto scalar = [](const std::string& key, const Json& value) {
        if (value.is_string()) return printable(value.get<std::string>());
        if (value.is_number() && (key.find("bytes") != std::string::npos || key.starts_with("memory_")))
            return key.find("per_s") != std::string::npos
                       ? fmt::format("{:.2f} GB/s", value.get<double>() / 1e9)
                       : fmt::format("{} ({})", dump(value), human_bytes(value.get<double>()));
        if (value.is_number() && key.find("flop") != std::string::npos &&
            key.find("per_s") != std::string::npos)
            return fmt::format("{:.3f} TFLOP/s", value.get<double>() / 1e12);
        return dump(value);
    };
    const auto is_row = [](const Json& value) {
        if (!value.is_object()) return false;
        for (const auto& member : value)
            if (member.is_object()) return false;
        return true;
    };
    for (const auto& [key, value] : json.items()) {
        const std::string name = json.is_array() ? "-" : key;
        if (value.is_array() && !value.empty() && is_row(value.front())) {  // a table: a row a line
            out += margin + name + "\n";
            for (const Json& row : value) {
                out += margin + " ";
                for (const auto& [column, cell] : row.items())
                    out += fmt::format(" {}={}", column, scalar(column, cell));
                out += "\n";
            }
        } else if (value.is_object() ||
                   (value.is_array() && !value.empty() && value.front().is_structured())) {
            out += margin + name + "\n";
            print_facts(value, indent + 1, out);
        } else if (value.is_array()) {
            std::string list;
            for (const Json& item : value) list += (list.empty() ? "" : " ") + scalar("", item);
            out += fmt::format("{}{:<24} {}\n", margin, name, list.empty() ? "none" : list);
        } else {
            out += fmt::format("{}{:<24} {}\n", margin, name, scalar(key, value));
        }
    }
}

void write_facts(const Json& facts, bool as_json) {
    std::string out;
    if (as_json)
        out = dump(facts) + "\n";
    else
        print_facts(facts, 0, out);
    write_stdout(out);
}

class Inspect : public Command {
public:
    explicit Inspect(CLI::App& root)
        : Command(
              add_subcommand(root,
                             "inspect",
                             "Config, tensors, bytes and memory plan of a checkpoint; no weights are loaded",
                             "  llmgen inspect path/to/checkpoint\n"
                             "  llmgen inspect ORG/NAME --bandwidth 3350 --json")) {
        Flags flags(*app_);
        flags.text("--model", model_, "DIR|ORG/NAME",
                   "checkpoint directory, or a model in the Hugging Face cache");
        flags.real("--bandwidth", bandwidth_, {.low = 0, .open_low = true},
                   "read bandwidth in GB/s, for the floor of a token's time");
        flags.flag("--no-tensors", no_tensors_, "leave the list of tensors out");
        flags.flag("--json", json_, "print the facts as JSON");
        flags.text("DIR", dir_, "", "the checkpoint");
    }
    int run(Context&) override {
        if (!dir_.empty() && !model_.empty()) fail_usage("DIR and --model: give one of them");
        Json facts = Json::parse(inspect_checkpoint(locate_model(dir_.empty() ? model_ : dir_)));
        if (no_tensors_ && facts.is_object()) facts.erase("tensors");
        add_floor(facts);
        write_facts(facts, json_);
        return kDone;
    }

private:
    void add_floor(Json& facts) const {
        if (!bandwidth_) return;
        const Json* bytes = nullptr;
        for (const Json* holder :
             {static_cast<const Json*>(&facts),
              facts.contains("memory") ? static_cast<const Json*>(&facts["memory"]) : nullptr})
            if (holder && holder->contains("decode_bytes_per_token"))
                bytes = &(*holder)["decode_bytes_per_token"];
            else if (holder && holder->contains("weight_bytes"))
                bytes = &(*holder)["weight_bytes"];
        if (!bytes || !bytes->is_number())
            fail("the checkpoint's facts have no size of weights to compute a floor from");
        facts["floor"] = {{"bandwidth_gb_per_s", *bandwidth_},
                          {"ms_per_token", bytes->get<double>() / (*bandwidth_ * 1e9) * 1e3}};
    }
    std::string model_, dir_;
    std::optional<double> bandwidth_;
    bool no_tensors_ = false, json_ = false;
};

class Devices : public Command {
public:
    explicit Devices(CLI::App& root)
        : Command(add_subcommand(root,
                                 "devices",
                                 "CPU features, GPUs, driver, and the bandwidth they really reach",
                                 "  llmgen devices\n"
                                 "  llmgen devices --no-measure --json")) {
        Flags flags(*app_);
        flags.flag_off("--no-measure", measure_, "don't measure, which takes seconds");
        flags.integer("--threads", threads_, 1, 4096, "CPU threads to measure with");
        flags.flag("--json", json_, "print the facts as JSON");
    }
    int run(Context&) override {
        const Json facts = Json::parse(describe_devices(measure_, threads_));
        write_facts(facts, json_);
        return kDone;
    }

private:
    bool measure_ = true, json_ = false;
    int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_score(CLI::App& root) { return std::make_unique<Score>(root); }
std::unique_ptr<Command> make_inspect(CLI::App& root) { return std::make_unique<Inspect>(root); }
std::unique_ptr<Command> make_devices(CLI::App& root) { return std::make_unique<Devices>(root); }

}  // namespace llmgen::app
