# shellcheck shell=bash
# Shared by scripts that build for a GPU: is there a card, and an nvcc that its driver can follow? Sourced after
# tools/lib_setup.sh, not run.

has_gpu() { [[ $(nvidia-smi -L 2> /dev/null) == GPU* ]]; }

# The newest CUDA that the driver knows, "13.0".
driver_cuda() { nvidia-smi 2> /dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\.[0-9]*\).*/\1/p' | head -n 1; }

nvcc_release() { "$1" --version 2> /dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p'; }

# Where toolkits lie that are on nobody's PATH.
TOOLKITS=${LLMGEN_TOOLKITS-/usr/local/cuda /opt/cuda}

# find_nvcc [FOLDER]: prints the path of an nvcc of CUDA 12 or later that is no newer, by major version, than the driver.
# FOLDER is where ensure_nvcc brings one.
find_nvcc() {
    local most path release
    most=$(driver_cuda)
    most=${most%%.*}
    # shellcheck disable=SC2086
    for path in "${LLMGEN_NVCC:-}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" "$(command -v nvcc || true)" ${TOOLKITS:+$(printf '%s/bin/nvcc ' $TOOLKITS)} \
        "${1:+$(echo "$1"/lib/python3*/site-packages/nvidia/cu*/bin/nvcc)}"; do
        [ -x "$path" ] || continue
        release=$(nvcc_release "$path")
        if [ -n "$release" ] && [ "${release%%.*}" -ge 12 ] && [ "${release%%.*}" -le "${most:-99}" ]; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

# ensure_nvcc FOLDER: as find_nvcc; where there is none, brings NVIDIA's wheels from PyPI into FOLDER, a virtual
# environment of its own. Returns 1, having said why, where that can't be.
ensure_nvcc() {
    local folder=$1 driver
    find_nvcc "$folder" && return 0
    driver=$(driver_cuda)
    if [ "${driver%%.*}" != 13 ]; then
        say "no nvcc that fits the driver (CUDA ${driver:-unknown}): install the CUDA toolkit ${driver%%.*}, or update the driver to one of CUDA 13, for which this script brings nvcc"
        return 1
    fi
    say "no nvcc found: bringing CUDA 13.0's compiler and cuBLAS from PyPI into $folder (500 MB to fetch, 900 MB on disk)"
    ensure_packages python3 python3-venv >&2 || return 1
    [ -x "$folder/bin/pip" ] || python3 -m venv "$folder" >&2 || return 1
    "$folder/bin/pip" install -q --disable-pip-version-check nvidia-cuda-nvcc==13.0.* nvidia-cuda-crt==13.0.* \
        nvidia-nvvm==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.* nvidia-cublas==13.0.* >&2 || {
        say "they could not be fetched; install the CUDA toolkit, and run this again"
        return 1
    }
    find_nvcc "$folder" || {
        say "the wheels brought no nvcc; install the CUDA toolkit, and run this again"
        return 1
    }
}
