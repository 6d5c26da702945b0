#include <unistd.h>

#include <cstdlib>

#include "app/cli/command.h"

namespace {

// An idle OpenMP thread of libgomp spins for milliseconds before it sleeps. On a machine that others use too,
// that is where the time goes: with 19 other busy processes on two cores a token took 601 ms, and 12 ms with
// 500 turns of spinning (352 ms with 10,000, 102 ms with 2,000). libgomp reads the variable once, when it is
// loaded, before main: hence the second start (1 ms).
void spin_briefly(char** argv) {
    if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
    ::setenv("GOMP_SPINCOUNT", "500", 1);
    ::execv("/proc/self/exe", argv);  // returns only where it can't: then all goes on as it is
}

}  // namespace

int main(int argc, char** argv) {
    spin_briefly(argv);
    return llmgen::app::run_cli(argc, argv);
}
