"""tools/quickstart on a machine with an NVIDIA GPU, whose driver, compiler, package index and build are played by a script:
which nvcc it takes, when it brings one, and that it answers on the CPU, having said why, wherever that fails."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"

# Every program, by its name. VENV/bin/pip and whatever nvcc it brings are copies of this too.
ACTOR = r'''#!/bin/bash
echo "$(basename "$0") $*" >> "$ACTOR_LOG"
case $(basename "$0") in
    nvidia-smi)
        [ -n "${ACTOR_DRIVER:-}" ] || { echo "couldn't communicate with the NVIDIA driver"; exit 9; }
        if [ "${1:-}" = -L ]; then echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"; else echo "| Driver Version: 1  CUDA Version: $ACTOR_DRIVER  |"; fi ;;
    nvcc) echo "Cuda compilation tools, release $(cat "$0.release"), V1" ;;
    dpkg-query) printf installed ;;
    python3) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/pip" ;;
    pip)
        [ -z "${ACTOR_OFFLINE:-}" ] || exit 1
        bin=$(dirname "$0")/../lib/python3.11/site-packages/nvidia/cu13/bin
        mkdir -p "$bin" && cp "$0" "$bin/nvcc" && echo 13.0 > "$bin/nvcc.release" ;;
    cmake) [[ "$*" != *"${ACTOR_BROKEN:-nothing}"* ]] && mkdir -p "$4" ;;
    ninja) mkdir -p "$2/src/app" && cp "$0" "$2/src/app/llmgen" ;;
    llmgen) echo "answer: $*" ;;
esac
'''


class Quickstart(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        (self.place / "tools").mkdir()
        (self.place / "bin").mkdir()
        for name in ("quickstart", "lib_setup.sh", "lib_cuda.sh"):
            shutil.copy(TOOLS / name, self.place / "tools" / name)
        for name in ("nvidia-smi", "dpkg-query", "python3", "cmake", "ninja"):
            self.play(self.place / "bin" / name)
        for name in ("bash", "basename", "dirname", "cat", "cp", "mkdir", "sed", "head", "tail", "touch", "rm", "find", "id"):
            (self.place / "bin" / name).symlink_to(shutil.which(name))

    def play(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ACTOR)
        path.chmod(0o755)

    def nvcc(self, folder, release):
        self.play(self.place / folder / "bin" / "nvcc")
        (self.place / folder / "bin" / "nvcc.release").write_text(release)

    def quickstart(self, driver, **environment):
        """What it answered and what it said; self.log has every program's call."""
        log = self.place / "log"
        log.unlink(missing_ok=True)
        done = subprocess.run(["bash", self.place / "tools" / "quickstart", "Hello"], capture_output=True, text=True, check=False,
                              env={"PATH": str(self.place / "bin"), "HOME": str(self.place), "LLMGEN_MODEL": "some",
                                   "ACTOR_LOG": str(log), "LLMGEN_TOOLKITS": str(self.place / "toolkit"),
                                   "ACTOR_DRIVER": driver, **environment})
        self.log = log.read_text()
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def configured(self):
        return [line for line in self.log.splitlines() if line.startswith("cmake ")]

    def assert_on_the_cpu(self, answer):
        self.assertEqual(answer, "answer: --prompt Hello --device cpu")
        self.assertIn("-DLLMGEN_CUDA=OFF", self.configured()[-1])

    def test_takes_the_toolkit_that_is_there(self):
        self.nvcc("toolkit", "12.8")
        answer, said = self.quickstart("13.0")
        self.assertEqual(answer, "answer: --prompt Hello --device auto")
        self.assertIn("NVIDIA H100, kernels by", said)
        self.assertIn(f"-DLLMGEN_CUDA=ON -DLLMGEN_NVCC={self.place}/toolkit/bin/nvcc", self.configured()[0])
        self.assertNotIn("pip ", self.log)
        self.quickstart("13.0")
        self.assertEqual(self.configured(), [], "the second run finds all of it done")

    def test_brings_one_where_there_is_none_or_only_an_old_one(self):
        self.nvcc("toolkit", "11.8")
        answer, said = self.quickstart("13.0")
        self.assertEqual(answer, "answer: --prompt Hello --device auto")
        self.assertIn("bringing CUDA 13.0's compiler", said)
        self.assertEqual(self.log.count("pip install"), 1)
        self.assertIn(f"-DLLMGEN_NVCC={self.place}/build/cuda-toolkit/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc", self.configured()[0])
        self.quickstart("13.1")
        self.assertNotIn("pip install", self.log)

    def test_an_nvcc_newer_than_the_driver_would_make_kernels_that_do_not_load(self):
        self.nvcc("toolkit", "13.0")
        answer, said = self.quickstart("12.4")
        self.assert_on_the_cpu(answer)
        self.assertIn("no nvcc that fits the driver (CUDA 12.4): install the CUDA toolkit 12", said)
        self.nvcc("another", "12.4")
        answer, _ = self.quickstart("12.4", CUDA_PATH=str(self.place / "another"))
        self.assertEqual(answer, "answer: --prompt Hello --device auto")

    def test_without_the_network_or_with_a_build_that_fails_the_cpu_answers(self):
        answer, said = self.quickstart("13.0", ACTOR_OFFLINE="1")
        self.assert_on_the_cpu(answer)
        self.assertIn("could not be fetched", said)
        answer, said = self.quickstart("13.0", ACTOR_BROKEN="LLMGEN_CUDA=ON")
        self.assertEqual(answer, "answer: --prompt Hello --device cpu")
        self.assertIn("the build for the GPU failed", said)

    def test_no_gpu_or_a_driver_that_does_not_answer(self):
        answer, said = self.quickstart("")
        self.assert_on_the_cpu(answer)
        self.assertIn("no NVIDIA GPU found", said)
        (self.place / "bin" / "nvidia-smi").unlink()
        self.assertIn("no NVIDIA GPU found", self.quickstart("")[1])


unittest.main()
