// A member that is put back when the block ends, by whatever way.
#pragma once

#include <utility>

namespace llmgen::jinja {

template <typename T>
class Restore {
public:
    explicit Restore(T& member) : member_(member), old_(member) {}
    ~Restore() { member_ = std::move(old_); }
    Restore(const Restore&) = delete;

private:
    T& member_;
    T old_;
};

}  // namespace llmgen::jinja
