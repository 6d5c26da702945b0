#include "weights/locate.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/mmap.h"
#include "weights/json_file.h"

namespace llmgen {
namespace {

using weights::printable;
namespace fs = std::filesystem;

constexpr const char* kDefaultModel = "smollm2-135m-instruct";

std::optional<std::string> set_value(const Environment& environment, const char* name) {
    auto value = environment(name);
    return value && !value->empty() ? value : std::nullopt;
}

/// "~/x" as a shell would have it: values from files of settings come unexpanded.
fs::path expand(const std::string& path, const Environment& environment) {
    if (path == "~" || path.starts_with("~/"))
        if (const auto home = set_value(environment, "HOME")) return fs::path(*home + path.substr(1));
    return path;
}

fs::path user_cache(const Environment& environment) {
    if (const auto xdg = set_value(environment, "XDG_CACHE_HOME")) return expand(*xdg, environment);
    return fs::path(set_value(environment, "HOME").value_or("/")) / ".cache";
}

fs::path hub_cache(const Environment& environment) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
        if (const auto path = set_value(environment, name)) return expand(*path, environment);
    if (const auto home = set_value(environment, "HF_HOME")) return expand(*home, environment) / "hub";
    return user_cache(environment) / "huggingface" / "hub";
}

bool is_name_part(std::string_view part) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
               c == '_' || c == '.';
    };
    return !part.empty() && part != "." && part != ".." && std::all_of(part.begin(), part.end(), allowed);
}

struct RepositoryName {
    std::string organization, name, revision;
};

std::optional<RepositoryName> repository_name(std::string_view text) {
    RepositoryName found;
    const auto at = text.find('@');
    found.revision = at == std::string_view::npos ? "main" : text.substr(at + 1);
    const std::string_view path = text.substr(0, at);
    const auto slash = path.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    found.organization = path.substr(0, slash);
    found.name = path.substr(slash + 1);
    if (!is_name_part(found.organization) || !is_name_part(found.name)) return std::nullopt;
    if (found.revision.empty() || found.revision.front() == '/' ||
        found.revision.find("..") != std::string::npos)
        return std::nullopt;
    return found;
}

/// hub/models--ORG--NAME/refs/REVISION holds a commit; snapshots/COMMIT holds the files, as links.
fs::path in_hub_cache(const RepositoryName& wanted, const Environment& environment) {
    const std::string full = wanted.organization + "/" + wanted.name;
    const fs::path repository =
        hub_cache(environment) / ("models--" + wanted.organization + "--" + wanted.name);
    const std::string command =
        "hf download " + full + (wanted.revision == "main" ? "" : " --revision " + wanted.revision);
    if (!weights::is_folder(repository / "snapshots"))
        fail("{}: no such directory, and not in the Hugging Face cache ({}); fetch it with: {}", full,
             repository.string(), command);
    std::string commit = wanted.revision;
    const fs::path ref = repository / "refs" / wanted.revision;
    if (weights::is_file(ref)) {
        commit = read_file(ref, 4096);
        while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' '))
            commit.pop_back();
    }
    const fs::path snapshot = repository / "snapshots" / commit;
    if (!is_name_part(commit) || !weights::is_folder(snapshot))
        fail("{}: the Hugging Face cache has it, but not revision {} ({}); fetch it with: {}", full,
             printable(wanted.revision), repository.string(), command);
    // A download that was cut off leaves a snapshot without its files, or links to blobs that aren't there.
    if (!weights::exists(snapshot / "config.json"))
        fail("{}: its snapshot in the Hugging Face cache has no config.json ({}); fetch it with: {}", full,
             snapshot.string(), command);
    return snapshot;
}

fs::path default_model(const Environment& environment) {
    const fs::path fetched = default_model_directory(environment);
    if (!weights::exists(fetched / "config.json"))
        fail(
            "no model given and none at {}; give --model DIR or ORG/NAME, set LLMGEN_MODEL, or run: "
            "tools/fetch_model smollm2",
            fetched.string());
    return fetched;
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

fs::path cache_directory(const Environment& environment) {
    if (const auto cache = set_value(environment, "LLMGEN_CACHE")) return expand(*cache, environment);
    return user_cache(environment) / "llmgen";
}

fs::path default_model_directory(const Environment& environment) {
    return cache_directory(environment) / "models" / kDefaultModel;
}

fs::path locate_model(std::string_view model, const Environment& environment) {
    std::string wanted(model);
    if (wanted.empty()) wanted = set_value(environment, "LLMGEN_MODEL").value_or("");
    if (wanted.empty()) return default_model(environment);
    const fs::path path = expand(wanted, environment);
    if (weights::is_folder(path)) return path;
    // The file was named where its folder was meant.
    if (weights::is_file(path)) {
        if (weights::exists(path.parent_path() / "config.json"))
            fail("{}: is a file; give its folder: {}", printable(wanted),
                 path.has_parent_path() ? path.parent_path().string() : ".");
        fail("{}: is a file; give the folder of a checkpoint", printable(wanted));
    }
    if (const auto repository = repository_name(wanted)) return in_hub_cache(*repository, environment);
    fail(
        "{}: no such directory, and not of the form ORG/NAME; tools/fetch_model smollm2 fetches a small "
        "model",
        printable(wanted));
}

}  // namespace llmgen
