# Shared by tools/quickstart and tools/test: what must be installed, and how. Sourced, not run.
# Works as root or with sudo, on Debian and Ubuntu; says what it installs; does nothing where all is there.

# To build and run llmgen. ocl-icd-opencl-dev: the CMake package of the distribution's oneDNN asks for OpenCL.
BUILD_PACKAGES=(ca-certificates g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libspdlog-dev
                libpcre2-dev libutf8proc-dev libsentencepiece-dev libdnnl-dev ocl-icd-opencl-dev libhwy-dev libxxhash-dev libssl-dev
                libsimdjson-dev libedit-dev zlib1g-dev libzstd-dev)
# To fetch and convert the small model.
MODEL_PACKAGES=(python3 python3-venv)
# To test besides.
TEST_PACKAGES=(git libgtest-dev libgmock-dev libbenchmark-dev python3)
# Tests that need these are skipped, and say so, where a distribution lacks them.
OPTIONAL_TEST_PACKAGES=(ccache clang-format-14 clang-14 libclang-rt-14-dev valgrind zstd)

say() { printf '%s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo > /dev/null; then sudo "$@"
    else say "need root or sudo to run: $*"; return 1
    fi
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }

# ensure_packages [--optional] NAME...
ensure_packages() {
    local optional=0 missing=() name
    if [ "$1" = --optional ]; then optional=1; shift; fi
    for name in "$@"; do is_installed "$name" || missing+=("$name"); done
    [ ${#missing[@]} = 0 ] && return 0
    if ! command -v apt-get > /dev/null; then
        say "this script installs packages with apt-get; here, please install by hand: ${missing[*]}"
        return 1
    fi
    if [ -z "${LLMGEN_APT_UPDATED:-}" ]; then
        as_root apt-get update -qq || say "apt-get update failed; going on with the lists at hand"
        LLMGEN_APT_UPDATED=1
    fi
    if [ $optional = 1 ]; then
        local available=()
        for name in "${missing[@]}"; do
            if [ -n "$(apt-cache madison "$name" 2> /dev/null)" ]; then available+=("$name")
            else say "not in this distribution, going on without: $name"
            fi
        done
        missing=("${available[@]}")
        [ ${#missing[@]} = 0 ] && return 0
    fi
    say "installing: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

# configure_and_build SOURCE BUILD TARGETS -- CMAKE_OPTIONS...   (TARGETS is one word list, "" = all)
configure_and_build() {
    local source=$1 build=$2 targets=$3
    shift 4
    local launcher=()
    command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    cmake -S "$source" -B "$build" -G Ninja "${launcher[@]}" "$@" > "$build.configure.log" 2>&1 || {
        tail -n 20 "$build.configure.log" >&2
        return 1
    }
    local quiet=--quiet
    [ -t 2 ] && quiet=  # a person watches: one line that counts
    # Not to stdout, which carries the answer.
    # shellcheck disable=SC2086
    ninja -C "$build" $quiet $targets >&2
}
