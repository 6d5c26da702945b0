// Grow-only memory for one step's intermediate values: allocated the first time a size is needed, then kept.
#pragma once

#include <memory>

#include "ops/cpu/memory.h"

namespace llmgen::cpu {

class Scratch {
public:
    void* get(std::size_t bytes) {
        if (!buffer_ || buffer_->bytes() < bytes) {
            buffer_.reset();  // first free, then take: the peak is what counts
            buffer_ = allocate_buffer(bytes + bytes / 4, "scratch memory of a step");
        }
        return buffer_->data();
    }

private:
    std::unique_ptr<Buffer> buffer_;
};

}  // namespace llmgen::cpu
