#include "base/lfs.h"

#include "base/error.h"

namespace llmgen {

void reject_lfs_pointer(const std::string& file, std::string_view text) {
    if (text.starts_with("version https://git-lfs"))
        fail("{}: is a Git LFS pointer, not the file itself; run git lfs pull in that folder", file);
}

}  // namespace llmgen
