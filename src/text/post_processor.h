// Post-processors, for one sequence: ids of special tokens around the ids of the text.
#pragma once

#include <vector>

namespace llmgen {

/// What TemplateProcessing, BertProcessing and RobertaProcessing come to; ByteLevel only touches offsets.
struct PostStep {
    struct Item {
        bool is_sequence = false;
        std::vector<int> ids;  // of a special token
    };
    std::vector<Item> items;
};

class PostProcessor {
public:
    void add(PostStep step) { steps_.push_back(std::move(step)); }
    std::vector<int> apply(std::vector<int> ids, bool add_special_tokens) const {
        for (const PostStep& step : steps_) {
            std::vector<int> out;
            out.reserve(ids.size() + 8);
            for (const PostStep::Item& item : step.items) {
                if (item.is_sequence)
                    out.insert(out.end(), ids.begin(), ids.end());
                else if (add_special_tokens)
                    out.insert(out.end(), item.ids.begin(), item.ids.end());
            }
            ids = std::move(out);
        }
        return ids;
    }

private:
    std::vector<PostStep> steps_;
};

}  // namespace llmgen
