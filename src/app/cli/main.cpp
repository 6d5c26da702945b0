#include <unistd.h>

#include <cstdlib>

#include "app/cli/command.h"

namespace {

// An idle OpenMP thread of libgomp spins for milliseconds before it sleeps. On a machine that others use too
// that is where the time goes: measured with 20 other busy processes on two cores, a 64-token answer took
// minutes. Some 50 µs cover the gaps between the steps of a forward pass. libgomp reads the variable once,
// when it is loaded, before main: hence the second start (1 ms).
void spin_briefly(char** argv) {
    if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
    ::setenv("GOMP_SPINCOUNT", "2000", 1);
    ::execv("/proc/self/exe", argv);  // returns only where it can't: then all goes on as it is
}

}  // namespace

int main(int argc, char** argv) {
    spin_briefly(argv);
    return llmgen::app::run_cli(argc, argv);
}
