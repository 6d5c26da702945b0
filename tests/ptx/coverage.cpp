#include "ptx/coverage.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <map>
#include <numeric>
#include <set>

namespace llmgen::ptx {

Coverage report_coverage(Witness& witness, std::ostream& out) {
    struct Part {
        Coverage coverage;
        std::size_t entries = 0;
        std::string missing;
    };
    std::map<std::string, Part> files;
    Coverage total;
    for (const auto& [entry, file] : witness.entries()) {
        Kernel& kernel = *witness.kernel(entry);
        Part& part = files[file->name()];
        ++part.entries;
        Coverage own;
        std::map<std::pair<std::string, int>, std::vector<int>> missing;  // PTX lines by source line
        for (std::size_t i = 0; i < kernel.ops.size(); ++i) {
            ++own.all;
            if (kernel.counts[i] > 0) {
                ++own.reached;
                continue;
            }
            const Instruction& in = kernel.entry.instructions[i];
            missing[{file->source(in.file), in.source_line}].push_back(in.line);
        }
        part.coverage.all += own.all;
        part.coverage.reached += own.reached;
        if (missing.empty()) continue;
        part.missing += fmt::format("  {:5.1f} % {}\n", 100 * own.share(), entry);
        for (const auto& [source, lines] : missing)
            part.missing += fmt::format("          {}:{}: {} instructions, PTX line {} first\n", source.first,
                                        source.second, lines.size(), lines.front());
    }
    for (const auto& [name, part] : files) {
        fmt::print(out, "{:20} {:3} kernels {:7} of {:7} instructions {:6.2f} %\n", name, part.entries,
                   part.coverage.reached, part.coverage.all, 100 * part.coverage.share());
        total.all += part.coverage.all;
        total.reached += part.coverage.reached;
    }
    fmt::print(out, "{:20} {:7} of {:7} instructions {:6.2f} %\n", "all", total.reached, total.all,
               100 * total.share());
    for (const auto& [name, part] : files)
        if (!part.missing.empty()) fmt::print(out, "\n{}, not reached:\n{}", name, part.missing);
    return total;
}

void write_reached(Witness& witness, std::ostream& out) {
    for (const auto& [entry, file] : witness.entries()) {
        const Kernel& kernel = *witness.kernel(entry);
        for (std::size_t i = 0; i < kernel.ops.size(); ++i)
            if (kernel.counts[i] > 0)
                fmt::print(out, "{}:{}\n", file->name(), kernel.entry.instructions[i].line);
    }
}

std::map<std::string, std::uint64_t> executed_by_entry(Witness& witness) {
    std::map<std::string, std::uint64_t> executed;
    for (const auto& [entry, file] : witness.entries())
        if (const Kernel* kernel = witness.known(entry); kernel != nullptr)
            executed[entry] = std::accumulate(kernel->counts.begin(), kernel->counts.end(), std::uint64_t(0));
    return executed;
}

}  // namespace llmgen::ptx
