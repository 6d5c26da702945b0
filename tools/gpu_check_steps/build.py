"""What machine this is, and the build for its card."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile

from gpu_check_steps.run import PLACES, Missing, Wrong

TARGETS = ["llmgen", "hardware_kernels_test", "hardware_ops_test", "hardware_models_test", "hardware_bench"]


def machine(check):
    check.facts["machine"] = {"system": platform.platform(), "cores": os.cpu_count()}
    fields = "name,driver_version,compute_cap,memory.total,memory.used,clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current"
    if check.dry:
        return check.say("the emulated device")
    try:
        smi = check.must([check.tool("nvidia-smi"), f"--query-gpu={fields}", "--format=csv,noheader"])
        check.facts["machine"]["gpus"] = smi.stdout.strip().splitlines()
        check.say(smi.stdout.strip())
    except (Missing, Wrong) as problem:
        check.say(f"nvidia-smi: {problem}")
    nvcc = check.must([check.tool("nvcc"), "--version"]).stdout.strip().splitlines()
    check.facts["machine"]["nvcc"] = nvcc[-1]
    check.say(nvcc[-1])


def build(check):
    if check.options.build is not None:
        check.llmgen()
        return check.say(f"taken as it is: {check.build_dir}")
    for command in commands(check.root, check.build_dir, "native"):
        check.must(command)
    check.say(f"built in {check.build_dir}")


def commands(root, build_dir, architectures):
    yield ["cmake", "-S", root, "-B", build_dir, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLLMGEN_CUDA=ON",
           f"-DLLMGEN_CUDA_ARCHITECTURES={architectures}", "-DLLMGEN_HARDWARE_TESTS=ON", "-DLLMGEN_SIMT_SANITIZE="]
    yield ["cmake", "--build", build_dir, "--parallel", str(os.cpu_count() or 2), "--target", *TARGETS]


# Every machine has its own, which its driver and the others of its libraries go with.
OF_THE_SYSTEM = re.compile(r"(ld-linux|libc\.|libm\.|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s)")


ARCHIVES = (".tar.xz", ".tar.gz")


def pack(root, build_dir, to, architectures):
    """The programs and the libraries that they need, as a folder or an archive of it. Without a build one is made."""
    if build_dir is None:
        build_dir = root / "build" / "gpu_check_pack"
        for command in commands(root, build_dir, architectures):
            if subprocess.run(command, check=False).returncode != 0:
                return 1
    if not to.name.endswith(ARCHIVES):
        return pack_folder(build_dir, to)
    with tempfile.TemporaryDirectory() as folder:
        code = pack_folder(build_dir, pathlib.Path(folder))
        if code == 0:
            to.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(to, "w:" + to.name[-2:]) as archive:
                archive.add(folder, ".")
            print(f"gpu_check: {to.stat().st_size / 2**20:.1f} MiB as {to}")
    return code


def pack_folder(build_dir, to):
    (to / "lib").mkdir(parents=True, exist_ok=True)
    for name in TARGETS:
        found = [build_dir / place / name for place in PLACES if (build_dir / place / name).is_file()]
        if not found:
            print(f"gpu_check: {name} is not in {build_dir}: build it with -DLLMGEN_HARDWARE_TESTS=ON")
            return 1
        shutil.copy2(found[0], to / name)
        if shutil.which("strip"):
            subprocess.run(["strip", to / name], check=True)
        needs = subprocess.run(["ldd", found[0]], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"=> (/\S+)", needs):
            if not OF_THE_SYSTEM.match(pathlib.Path(library).name):
                shutil.copy(library, to / "lib")
    size = sum(file.stat().st_size for file in to.rglob("*") if file.is_file())
    print(f"gpu_check: {size >> 20} MiB in {to}")
    return 0


def devices(check):
    """Whether the card answers at all: without it every later step is skipped."""
    try:
        report = json.loads(check.must([check.llmgen(), "devices", "--json"]).stdout)
    except (Missing, Wrong) as problem:
        check.no_gpu = str(problem)
        raise
    gpus = [device for device in report["devices"] if device["name"].startswith("cuda")]
    usable = [device for device in gpus if device["usable"]]
    check.facts["devices"] = report["devices"]
    if not usable:
        check.no_gpu = gpus[0].get("problem", "none listed") if gpus else "llmgen lists no GPU"
        raise Missing(check.no_gpu)
    check.say(f"{usable[0]['name']}: {usable[0].get('description', '')}")
