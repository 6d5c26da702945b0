// Puts the PTX of a kernel in the place of its source at every launch: the same launchers, shapes and tests,
// another witness. A launch is known by the address of its kernel function; the program's own symbol table
// gives its mangled name, and that is the entry's name.
//
// Where launches don't overlap, the source runs first on the same memory and what both leave is compared: bit
// for bit, or within the bound of the kernel (compare.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ptx/kernel.h"

namespace llmgen::ptx {

class Profile;

/// How far a kernel's results may be from those of its source.
struct Difference {
    std::uint64_t launches = 0, values = 0, unequal = 0;
    double largest = 0;  // of |a - b| / the largest magnitude in the array, by type
};

class Witness {
public:
    /// `folder` holds *.ptx.
    explicit Witness(const std::string& folder);
    ~Witness();
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;

    /// The one that is installed, or null.
    static Witness* current();

    /// Redirects the launches of this thread's Machine.
    void install();
    /// The kernel of an entry, decoded at first use; null where there is none.
    Kernel* kernel(const std::string& entry);
    /// The same where it was decoded already, else null.
    const Kernel* known(const std::string& entry) const {
        const auto it = kernels_.find(entry);
        return it == kernels_.end() ? nullptr : it->second.get();
    }
    const std::map<std::string, std::shared_ptr<const File>>& entries() const { return entries_; }
    const std::map<std::string, Difference>& differences() const { return differences_; }

    bool compare = true;
    bool exact = false;          // no launch may differ by a bit
    std::string only;            // the one entry whose launches are redirected; empty: all
    bool skip_others = false;    // with `only`: the other launches don't run at all
    Profile* profile = nullptr;  // of the launches from now on; null: not counted

private:
    void redirect(simt::Machine&, simt::Launch&);
    std::string entry_of(const void* function) const;
    void run_now(simt::Machine&, const simt::Launch&, std::function<void()> body);
    void compare_with(const std::string& name, const std::map<std::uintptr_t, std::string>& expected);

    std::map<std::string, std::shared_ptr<const File>> entries_;
    std::map<std::string, std::unique_ptr<Kernel>> kernels_;
    std::map<std::uintptr_t, std::string> symbols_;
    std::map<std::string, Difference> differences_;
    bool inside_ = false;
};

/// In its scope PTX and source must agree bit for bit, whatever the launch.
class Exact {
public:
    Exact() { set(true); }
    ~Exact() { set(false); }
    Exact(const Exact&) = delete;
    Exact& operator=(const Exact&) = delete;

private:
    static void set(bool on) {
        if (Witness::current() != nullptr) Witness::current()->exact = on;
    }
};

}  // namespace llmgen::ptx
