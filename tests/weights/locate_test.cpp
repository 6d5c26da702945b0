// Finding a model by directory, by name in the Hugging Face cache, and by default.
#include "weights/locate.h"

#include <map>

#include "files.h"

namespace llmgen {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Locate : public testing::Test {
protected:
    Locate() { variables["HOME"] = folder.path() / "home"; }

    Environment environment() const {
        return [this](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            return found == variables.end() ? std::nullopt : std::optional(found->second);
        };
    }
    fs::path locate(const std::string& model) const { return locate_model(model, environment()); }
    std::string message(const std::string& model) const {
        return test::message_of([&] { locate(model); });
    }
    /// A snapshot as hf download leaves it: links into blobs.
    void fill(const std::string& hub, const std::string& commit, const std::string& ref) {
        const std::string repository = hub + "/models--org--name";
        folder.write(repository + "/refs/" + ref, commit);
        folder.write(repository + "/blobs/1234", "{}");
        const fs::path snapshot = folder.path() / repository / "snapshots" / commit;
        fs::create_directories(snapshot);
        fs::remove(snapshot / "config.json");
        fs::create_symlink("../../blobs/1234", snapshot / "config.json");
    }

    test::Folder folder;
    std::map<std::string, std::string> variables;
};

TEST_F(Locate, ADirectoryIsItself) {
    folder.write("m/config.json", "{}");
    EXPECT_EQ(locate((folder.path() / "m").string()), folder.path() / "m");
    folder.write("home/m/config.json", "{}");
    EXPECT_EQ(locate("~/m"), folder.path() / "home/m");
    EXPECT_THAT(message((folder.path() / "m/config.json").string()), HasSubstr("is a file; give its folder"));
    EXPECT_THAT(message((folder.path() / "none/deeper").string()), HasSubstr("no such directory"));
}

TEST_F(Locate, TheHubCacheByItsVariables) {
    fill("home/.cache/huggingface/hub", "c0ffee", "main");
    EXPECT_EQ(locate("org/name"),
              folder.path() / "home/.cache/huggingface/hub/models--org--name/snapshots/c0ffee");
    fill("xdg/huggingface/hub", "c1", "main");
    variables["XDG_CACHE_HOME"] = folder.path() / "xdg";
    EXPECT_EQ(locate("org/name").filename(), "c1");
    fill("hf/hub", "c2", "main");
    variables["HF_HOME"] = folder.path() / "hf";
    EXPECT_EQ(locate("org/name").filename(), "c2");
    fill("hub", "c3", "main");
    variables["HF_HUB_CACHE"] = folder.path() / "hub";
    EXPECT_EQ(locate("org/name").filename(), "c3");
}

TEST_F(Locate, RevisionsOfARepository) {
    variables["HF_HUB_CACHE"] = folder.path() / "hub";
    fill("hub", "c1", "main");
    fill("hub", "c2", "v2");
    fill("hub", "c3", "refs/pr/1");
    EXPECT_EQ(locate("org/name@main").filename(), "c1");
    EXPECT_EQ(locate("org/name@v2").filename(), "c2");
    EXPECT_EQ(locate("org/name@refs/pr/1").filename(), "c3");
    EXPECT_EQ(locate("org/name@c2").filename(), "c2");
    EXPECT_THAT(message("org/name@v3"), HasSubstr("but not revision v3"));
    EXPECT_THAT(message("org/name@v3"), HasSubstr("hf download org/name --revision v3"));
    for (const char* wrong : {"org/name@", "org/name@../../x", "org/name@/etc"})
        EXPECT_NE(message(wrong), "") << wrong;
    folder.write("hub/models--org--name/refs/main", "c1\n");
    EXPECT_EQ(locate("org/name").filename(), "c1");
    folder.write("hub/models--org--name/refs/main", "../../../../etc");
    EXPECT_THAT(message("org/name"), HasSubstr("but not revision main"));
}

TEST_F(Locate, WhatIsNotThereShowsTheCommand) {
    EXPECT_THAT(message("org/other"), HasSubstr("not in the Hugging Face cache"));
    EXPECT_THAT(message("org/other"), HasSubstr("fetch it with: hf download org/other"));
    variables["HF_HUB_CACHE"] = folder.path() / "hub";
    fill("hub", "c1", "main");
    fs::remove(folder.path() / "hub/models--org--name/blobs/1234");
    EXPECT_THAT(message("org/name"), HasSubstr("has no config.json"));
    for (const char* wrong : {"name", "a/b/c", "../x/y", "org/..", "org/na me", "org/\nname"})
        EXPECT_NE(message(wrong), "") << wrong;
}

TEST_F(Locate, TheDefaultIsWhatWasFetched) {
    EXPECT_THAT(message(""), HasSubstr("tools/fetch_model smollm2"));
    folder.write("home/.cache/llmgen/models/smollm2-135m-instruct/config.json", "{}");
    EXPECT_EQ(locate(""), folder.path() / "home/.cache/llmgen/models/smollm2-135m-instruct");
    folder.write("cache/models/smollm2-135m-instruct/config.json", "{}");
    variables["LLMGEN_CACHE"] = folder.path() / "cache";
    EXPECT_EQ(locate(""), folder.path() / "cache/models/smollm2-135m-instruct");
    folder.write("other/config.json", "{}");
    variables["LLMGEN_MODEL"] = folder.path() / "other";
    EXPECT_EQ(locate(""), folder.path() / "other");
    variables["LLMGEN_MODEL"] = "";  // set but empty: as if unset
    EXPECT_EQ(locate(""), folder.path() / "cache/models/smollm2-135m-instruct");
    variables["LLMGEN_MODEL"] = "org/none";
    EXPECT_THAT(message(""), HasSubstr("hf download org/none"));
}

}  // namespace
}  // namespace llmgen
