"""What machine this is, and the build for its card."""
import json
import os
import platform

from gpu_check_steps.run import Missing, Wrong

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
    check.must(["cmake", "-S", check.root, "-B", check.build_dir, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLLMGEN_CUDA=ON",
                "-DLLMGEN_CUDA_ARCHITECTURES=native", "-DLLMGEN_HARDWARE_TESTS=ON", "-DLLMGEN_SIMT_SANITIZE="])
    check.must(["cmake", "--build", check.build_dir, "--parallel", str(os.cpu_count() or 2), "--target", *TARGETS])
    check.say(f"built in {check.build_dir}")


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
