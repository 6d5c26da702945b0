"""Is what the card computes right? Tests, maps, sanitizers, ids against the CPU and transformers, leaks."""
import json
import os
import subprocess
import threading
import time

from gpu_check_steps import models as made
from gpu_check_steps.run import Missing, Wrong, how_it_ended


def maps(check):
    check.gtest("hardware_kernels_test", "dry_hardware_test", "Maps.*")


# Every test of a kernel. Two read the emulator's counters, which a card doesn't have.
KERNELS = ("Attention.*:Fused.*:Gemv.*:Rope.*:Rows.*:RmsNorm.*:Sample.*:Argmax.*:LogProbs.*-Gemv.ReadsTheWeightsOnce:"
           "Attention.ReadsTilesWithoutBankConflicts")


def kernels(check):
    check.gtest("hardware_kernels_test", "dry_hardware_test", KERNELS)


def ops(check):
    check.gtest("hardware_ops_test", "dry_hardware_test", "*RmsNorm*:*Fused*bf16*" if check.dry else "*")


def models(check):
    pattern = "*GreedyIdsAndLogitsInF32/llama:" if check.dry else "*GreedyIdsAndLogitsInF32*:*Bf16StaysAsClose*"
    check.gtest("hardware_models_test", "cuda_models_test", pattern)


def sanitizer(check, tool, pattern, seconds):
    if check.dry:
        raise Missing("the emulated device has checks of its own")
    program = check.binary("hardware_kernels_test", "dry_hardware_test")
    compute_sanitizer = check.tool("compute-sanitizer")
    late = None
    try:
        done = check.run([compute_sanitizer, "--tool", tool, "--error-exitcode", "9", program, f"--gtest_filter={pattern}"],
                         seconds=seconds)
    except Wrong as wrong:
        late = str(wrong)
    found = [line.strip("= ") for line in check.output.splitlines() if line.startswith("=========")][1:5]
    if late and found:
        raise Wrong(f"{late}; it had found: " + " | ".join(found))
    if late:
        raise Missing(f"{late}{check.test_under_way()}, without a finding until then")
    summary = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
    check.say(summary[-1].strip("= ") if summary else "no summary")
    if done.returncode != 0:
        raise Wrong(f"{tool}: {how_it_ended(done.returncode)}: " + " | ".join(found))


# A few tests of every kernel: a sanitizer slows them by a factor of 10 to 100.
REDUCED = ("Maps.*:Rows.*:RmsNorm.*:Rope.*:Gemv.OddNumbersOfOutputs:Gemv.ChainsAsDependentLaunches:Argmax.*:"
           "Attention.RaggedBatchesInEveryOrder:Attention.DecodeOverlapsItsPredecessor:Fused.QkvOverlapsItsPredecessor:"
           "Sample.GreedyTakesTheLowestIdOfTheLargest")


def memcheck(check):
    sanitizer(check, "memcheck", REDUCED, 38)


def racecheck(check):
    sanitizer(check, "racecheck", REDUCED, 38)


def synccheck(check):
    sanitizer(check, "synccheck", REDUCED, 28)


# --- ids

def ids_of(check, device, model, compute, prompts, n_new, env=None):
    """Greedy ids of every prompt, all in one `batch` run."""
    lines = "".join(json.dumps({"token_ids": ids}) + "\n" for ids in prompts)
    source, target = check.scratch / "in.jsonl", check.scratch / "out.jsonl"
    source.write_text(lines)
    target.unlink(missing_ok=True)
    check.must([check.llmgen(), "batch", source, "-o", target, "--model", model, "--device", device, "--compute", compute,
                "--greedy", "--ignore-eos", "--max-new-tokens", n_new, "-q"], env=env)
    records = [json.loads(line) for line in target.read_text().splitlines()]
    return [record["output"]["token_ids"] for record in records]


def agreement(got, want):
    """Of all ids, how many come before the first difference."""
    same = total = 0
    for a, b in zip(got, want):
        total += len(b)
        for x, y in zip(a, b):
            if x != y:
                break
            same += 1
    return same, total


def rows_to_try(check, shape):
    """Each a kernel of its own: one row, few, most that those take, and what goes through cuBLASLt."""
    if check.dry:
        return (1, 3)
    return (1, 3, 8, 17) if shape is made.TINY[0] else (8, 17)


def greedy(check):
    """f32 must be equal; bf16 may part at a near tie, so it must agree on nearly all."""
    shapes = made.TINY[:1] if check.dry else made.TINY
    facts = check.facts.setdefault("greedy", [])
    wrong = []
    for shape in shapes:
        model = made.make(check.scratch, check.root, shape, small=check.dry)
        for compute in ("f32", "bf16"):
            for rows in rows_to_try(check, shape):
                prompts = made.prompts(rows, longest=20 if check.dry else 300)
                n_new = 4 if check.dry else 32
                want = ids_of(check, "cpu", model, compute, prompts, n_new)
                enough = 1 if compute == "f32" else 0.7
                what = f"{shape['name']} {compute}, {rows} rows"
                same, total, says = on_device(check, model, compute, prompts, want, enough)
                facts.append({"model": shape["name"], "compute": compute, "rows": rows, "same": same, "ids": total})
                check.say(f"{what}: {same} of {total} ids as on the CPU")
                if same < enough * total:
                    wrong.append(f"{what}: ids differ from the CPU's after {same} of {total}{says}")
                if len(wrong) > 2:  # enough to know
                    raise Wrong("; ".join(wrong))
    if wrong:
        raise Wrong("; ".join(wrong))


# What to leave out, one after the other, where ids are wrong or a step fails.
WITHOUT = {"LLMGEN_RECORD=0, without recordings": {"LLMGEN_RECORD": "0"},
           "LLMGEN_OVERLAP=0, without overlapping launches": {"LLMGEN_OVERLAP": "0"},
           "LLMGEN_SYNC=1, each operation waited for": {"LLMGEN_SYNC": "1"}}


def on_device(check, model, compute, prompts, want, enough):
    """How many ids agree; where too few do, what leaving something out makes of it. What then works is left out from here on, so
    that the other steps still measure something."""
    fault = None
    n_new = len(want[0])
    try:
        same, total = agreement(ids_of(check, check.options.device, model, compute, prompts, n_new), want)
        if same >= enough * total:
            return same, total, ""
    except Wrong as wrong:
        fault, same, total = wrong, 0, sum(map(len, want))
    says = ""
    for what, env in WITHOUT.items():
        try:
            plain = agreement(ids_of(check, check.options.device, model, compute, prompts, n_new, env=env), want)[0]
        except Wrong as also:
            says += f"; with {what}: {also}"
            continue
        says += f"; {plain} agree with {what}"
        if plain >= enough * total:
            check.left_out = env
            says += ", which later steps go without"
            break
    if fault:
        raise Wrong(f"{fault}{says}")
    return same, total, says


def transformers(check):
    """The same tiny checkpoint through transformers on this machine's CPU, in f32."""
    python = check.python()
    if check.run([python, "-c", "import torch, transformers"], seconds=30).returncode != 0:
        raise Missing("transformers is not installed for this python")
    shape = made.TINY[0]
    model = made.make(check.scratch, check.root, shape, small=check.dry)
    prompts, n_new = made.prompts(3, longest=20 if check.dry else 100), 4 if check.dry else 24
    code = ("import sys, json, torch, transformers as tf\n"
            "model = tf.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()\n"
            "for ids in json.loads(sys.argv[2]):\n"
            "    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False,\n"
            "                         min_new_tokens=int(sys.argv[3]), max_new_tokens=int(sys.argv[3]), eos_token_id=None)\n"
            "    print(json.dumps(out[0, len(ids):].tolist()))\n")
    done = check.must([python, "-c", code, model, json.dumps(prompts), n_new])
    want = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    got = ids_of(check, check.options.device, model, "f32", prompts, n_new)
    same, total = agreement(got, want)
    check.say(f"{same} of {total} ids as transformers' in f32")
    if same < total:
        raise Wrong(f"ids differ from transformers' after {same} of {total}")


# --- leaks

def peak_bytes(pid):
    """The most host memory that the process ever held; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def gpu_bytes(check):
    try:
        done = subprocess.run([check.tool("nvidia-smi"), "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=10, check=True)
        return int(done.stdout.split()[0]) << 20
    except (Missing, OSError, ValueError, IndexError, subprocess.SubprocessError):
        return 0


def answer_of(check, model, n, context):
    """How many ids an answer of n had, and the most memory that it took of host and card."""
    command = [
        str(check.llmgen()), "--model", str(model), "--device", check.options.device, "--compute", "bf16", "--greedy",
        "--ignore-eos", "--max-new-tokens", str(n), "--max-context", str(context), "--prompt-ids", "1,2,3", "--json", "-q"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, **check.environment(command)})
    most = [0, 0]

    def watch(which, look, pause):
        while process.poll() is None:
            most[which] = max(most[which], look())
            time.sleep(pause)

    # They may wait for a driver that doesn't answer.
    watchers = [threading.Thread(target=watch, args=how, daemon=True)
                for how in ((0, lambda: peak_bytes(process.pid), 0.02), (1, lambda: gpu_bytes(check), 0.1))]
    for watcher in watchers:
        watcher.start()
    try:
        out, err = process.communicate(timeout=max(1.0, check.limit_at - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Wrong("the soak ran past its limit" + check.end(process)) from None
    finally:
        check.end(process)
        for watcher in watchers:
            watcher.join(1)
    if process.returncode != 0:
        raise Wrong(f"{how_it_ended(process.returncode)}: {err.strip()[-300:]}")
    return len(json.loads(out)["output"]["token_ids"]), most


def soak(check):
    """10,000 tokens in one answer take no more of the host's and the card's memory than 1,000 do: all that differs is how long
    they take, not what is allocated for them."""
    n = 60 if check.dry else 10000
    model = made.make(check.scratch, check.root, made.TINY[0], small=check.dry)
    before = gpu_bytes(check)
    short, short_peak = answer_of(check, model, n // 10, n + 64)
    between = gpu_bytes(check)
    n_out, peak = answer_of(check, model, n, n + 64)
    grown = [max(0, peak[i] - short_peak[i]) for i in (0, 1)]
    left = max(0, gpu_bytes(check) - max(before, between))
    check.facts["soak"] = {"tokens": n_out, "host_grown": grown[0], "gpu_grown": grown[1], "gpu_left": left}
    check.say(f"{n_out} tokens took more than {short}: host {grown[0] >> 20} MiB, GPU {grown[1] >> 20} MiB; left after the end "
              f"{left >> 20} MiB")
    if n_out != n or short != n // 10:
        raise Wrong(f"{short} and {n_out} tokens, {n // 10} and {n} were asked for")
    if not check.dry and (grown[0] > 64 << 20 or grown[1] > 32 << 20 or left > 64 << 20):
        raise Wrong("memory grows")
