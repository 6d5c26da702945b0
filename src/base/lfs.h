// What a clone without git-lfs leaves in place of a large file: a few lines that name it.
#pragma once

#include <string>
#include <string_view>

namespace llmgen {

/// Error naming `file` if `text`, its beginning or all of it, is a Git LFS pointer instead of the file
/// itself.
void reject_lfs_pointer(const std::string& file, std::string_view text);

}  // namespace llmgen
