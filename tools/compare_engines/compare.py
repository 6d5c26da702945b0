"""Runs the engines in turn, checks their ids, and reports. Started by tools/compare, which see.

How: one process an engine, all loaded; in each round every engine in turn does each load, and the order turns
by one from round to round, so that a machine that slows down slows all of them. The first round warms up and
isn't counted. llmgen is run as its users run it, a process a measurement (`llmgen bench`).

Ids: greedy ids of bf16 engines part where two logits nearly tie, so equality alone would blame rounding. The
reference (transformers in f32) is given each engine's own answer and tells how far each chosen token lies below
its best: a sound engine stays within the rounding of bf16, a wrong one (a permuted head, a wrong position)
does not.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time

import report

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("LLMGEN_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "llmgen")
# Largest gap below the best logit that rounding to bf16 explains: logits of about 25 have steps of 1/8, and
# errors of a few steps add up over the layers.
MARGIN = 1.0
WORDS = ("the old mill by the river was sold last spring to a man from the city who wanted to grind his own flour and "
         "did not know how much water it takes to turn a wheel when the summer has been dry and the neighbours need it "
         "for their gardens while the school asks for a visit and the council writes letters about the bridge").split()


class Load:
    """n prompts of one length, answered together; `what` is the figure that is taken from the times."""

    def __init__(self, key, label, what, prompts, length, new):
        self.key, self.label, self.what, self.prompts, self.length, self.new = key, label, what, prompts, length, new
        self.unit, self.better = ("ms", "less") if what == "p99" else ("tok/s", "more")

    def shape(self):
        return self.prompts, self.length, self.new

    def value(self, times):
        """`times`: seconds from the start until all prompts have their 1st, 2nd, … new token."""
        if self.what == "prefill":
            return self.prompts * self.length / times[0]
        if self.what == "decode":
            return self.prompts * (self.new - 1) / (times[-1] - times[0])
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        at = 0.99 * (len(gaps) - 1)
        low, high = gaps[int(at)], gaps[min(int(at) + 1, len(gaps) - 1)]
        return 1e3 * (low + (at - int(at)) * (high - low))

    def of_floor(self, point):
        """What part of the machine's limit `llmgen bench` reached in this run, by limits measured around it; None: it doesn't say."""
        return {"prefill": point["floor"]["of_matmul_peak"], "decode": point["floor"]["reached"]}.get(self.what)


LOADS = [
    Load("prefill_512", "prefill, 512 tokens", "prefill", 1, 512, 128),
    Load("decode_512", "decode after 512 tokens", "decode", 1, 512, 128),
    Load("p99_512", "99th percentile between tokens, after 512", "p99", 1, 512, 128),
    Load("prefill_1500", "prefill, 1,500 tokens", "prefill", 1, 1500, 64),
    Load("decode_1500", "decode after 1,500 tokens", "decode", 1, 1500, 64),
    Load("prefill_32", "prefill, 32 × 64 tokens", "prefill", 32, 64, 32),
    Load("decode_32", "decode, 32 sequences at once", "decode", 32, 64, 32),
    Load("p99_32", "99th percentile between tokens, 32 at once", "p99", 32, 64, 32),
]
WHOLE_RUN = [("run_s", "whole run of 8 tokens", "s"), ("run_mb", "its peak memory", "MB")]


def peer_command(*arguments):
    return [sys.executable, "-W", "ignore", str(HERE / "peers.py"), *arguments]


class Peer:
    """An engine in a process of its own that answers JSON lines (peers.py)."""

    def __init__(self, name, *arguments):
        self.name = name
        # Their warnings go to a file: a pipe that nobody reads would stop them once it is full.
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(peer_command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self.errors.read()[-2000:]}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def generate(self, prompts, new):
        return self.ask(op="generate", prompts=prompts, new=new)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Llmgen:
    """`llmgen bench` on given prompts, with a warm-up of its own in each process."""

    def __init__(self, binary, model, threads, device):
        self.name, self.binary, self.model, self.threads, self.device = "llmgen", binary, model, threads, device
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self.about = {"version": version}

    def generate(self, prompts, new):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(ids) + "\n" for ids in prompts)
            file.flush()
            command = [self.binary, "bench", "-q", "--model", self.model, "--device", self.device, "--compute", "bf16", "--threads",
                       str(self.threads), "--prompts", file.name, "--new-tokens", str(new), "--concurrency", str(len(prompts)),
                       "--repetitions", "1", "--warmup", "1", "--format", "json", "--ids"]
            run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"llmgen bench: {run.stderr.strip()}")
        report = json.loads(run.stdout)
        self.about["weight_bytes"] = report["model"]["weight_bytes"]
        self.about["features"] = report["device"]["description"]
        point = report["points"][0]
        for key in ("read_bytes_per_s", "matmul_flop_per_s"):
            limit = point["floor"]["limit_" + key]
            if limit:
                self.about.setdefault(key, []).append(limit)
        requests = point["repetitions"][0]["requests"]
        # As the peers count: a token's time is when the last of all prompts has it.
        times = [max(r["arrival_s"] + r["token_times_s"][i] for r in requests) for i in range(new)]
        return {"ids": [r["token_ids"] for r in requests], "times": times, "point": point}


def prompts_of(model, load, seed):
    """Ordinary text of exactly load.length tokens, another for each seed."""
    from tokenizers import Tokenizer

    tokenizer, rng, out = Tokenizer.from_file(str(model / "tokenizer.json")), random.Random(f"{load.shape()} {seed}"), []
    for _ in range(load.prompts):
        text = " ".join(rng.choice(WORDS) for _ in range(load.length * 2))
        out.append(tokenizer.encode(text, add_special_tokens=False).ids[: load.length])
        assert len(out[-1]) == load.length
    return out


def measure(engines, model, rounds, loads):
    """{load key: {engine: [value a round]}}, {load key: [part of llmgen's floor a round]}, and every answer: (engine, prompt, ids)."""
    values = {load.key: {e.name: [] for e in engines} for load in loads}
    parts, answers = {load.key: [] for load in loads}, []
    shapes = {load.shape(): [x for x in loads if x.shape() == load.shape()] for load in loads}
    for turn in range(rounds + 1):
        for same in shapes.values():
            prompts = prompts_of(model, same[0], turn)
            order = engines[turn % len(engines) :] + engines[: turn % len(engines)]
            for engine in order:
                print(f"\rround {turn} of {rounds}: {same[0].prompts} × {same[0].length}, {engine.name}          ", end="", file=sys.stderr, flush=True)
                answer = engine.generate(prompts, same[0].new)
                if turn == 0:
                    answers += [(engine.name, p, ids) for p, ids in list(zip(prompts, answer["ids"]))[:2]]
                    continue
                for load in same:
                    values[load.key][engine.name].append(load.value(answer["times"]))
                    part = load.of_floor(answer["point"]) if "point" in answer else None
                    if part:
                        parts[load.key].append(part)
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    return values, parts, answers


def check_ids(answers, reference):
    """For each engine: how many ids equal the reference's, and the largest gap below its best."""
    out, greedy = {}, {}
    for name, prompt, ids in answers:
        key = tuple(prompt)
        if key not in greedy:
            greedy[key] = reference.generate([prompt], len(ids))["ids"][0]
        same = next((i for i, (a, b) in enumerate(zip(ids, greedy[key])) if a != b), len(ids))
        margin = max(reference.ask(op="margins", prompt=prompt, ids=ids)["margins"])
        entry = out.setdefault(name, {"answers": 0, "tokens": 0, "equal_leading_tokens": 0, "largest_margin": 0.0})
        entry["answers"] += 1
        entry["tokens"] += len(ids)
        entry["equal_leading_tokens"] += same
        entry["largest_margin"] = max(entry["largest_margin"], margin)
    for entry in out.values():
        entry["sound"] = entry["largest_margin"] <= MARGIN
    return out


def whole_runs(commands, rounds):
    """A fresh process that answers 8 tokens: {key: {engine: [value a round]}}."""
    out = {key: {name: [] for name in commands} for key, _, _ in WHOLE_RUN}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            begin = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if status:
                raise SystemExit(f"{name}: {command} failed")
            if turn:
                out["run_s"][name].append(time.perf_counter() - begin)
                out["run_mb"][name].append(usage.ru_maxrss * 1024 / 1e6)
    return out


class Others:
    """What part of the CPUs other programs (and the host of a virtual machine) take while we measure."""

    def __init__(self):
        self.begin, self.busy = time.perf_counter(), self.busy_seconds()

    @staticmethod
    def busy_seconds():
        try:
            fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        except OSError:
            return None
        user, nice, system, _, _, irq, softirq, steal = fields
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def part(self):
        """Once all that we started has ended; None where the system doesn't tell."""
        if self.busy is None:
            return None
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(u.ru_utime + u.ru_stime for u in usages)
        return max(0.0, (self.busy_seconds() - self.busy - own) / (time.perf_counter() - self.begin) / os.cpu_count())


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def arguments():
    parser = argparse.ArgumentParser(prog="tools/compare")
    parser.add_argument("--model", type=pathlib.Path, help="checkpoint directory (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--llmgen", type=pathlib.Path, default=ROOT / "build" / "quickstart" / "src" / "app" / "llmgen", help="the binary (default: what tools/quickstart builds)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one shape of load, two rounds, no whole runs")
    parser.add_argument("--markdown", action="store_true", help="print what the README shows, to be pasted as it is")
    parser.add_argument("--without-llmgen", action="store_true", help="the peers alone")
    parser.add_argument("--out", type=pathlib.Path, default=CACHE / "compare")
    return parser.parse_args()


def shown_command(options):
    """The options that a reader can repeat; paths of this machine mean nothing to him."""
    words = ["tools/compare"]
    if options.device != "cpu":
        words += ["--device", options.device]
    if options.quick:
        words.append("--quick")
    else:
        words += ["--rounds", str(options.rounds)]
    return " ".join([*words, "--threads", str(options.threads)])


def installed(module):
    return importlib.util.find_spec(module) is not None


def main():
    options, others = arguments(), Others()
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.model or pathlib.Path(subprocess.run([HERE.parent / "fetch_model", "smollm2"], check=True, text=True,
                                                         stdout=subprocess.PIPE).stdout.strip())
    if not options.without_llmgen and not options.llmgen.exists():
        raise SystemExit(f"compare: {options.llmgen} isn't there; run tools/quickstart, or give --llmgen BINARY")
    gguf = CACHE / "compare" / f"{model.name}-bf16.gguf"
    gguf.parent.mkdir(parents=True, exist_ok=True)
    if not gguf.exists():
        subprocess.run([sys.executable, HERE / "gguf_bf16.py", model, gguf], check=True)
    common = ["--threads", str(options.threads), "--device", options.device]
    commands = {"llama.cpp": ["llama.cpp", str(gguf), *common], "transformers": ["transformers", str(model), *common]}
    if options.device == "cuda" and installed("vllm"):
        commands["vllm"] = ["vllm", str(model), *common]
    peers = []
    for name, command in commands.items():
        try:
            peers.append(Peer(name, *command))
        except SystemExit as problem:
            if options.device == "cpu":
                raise
            print(f"going on without {problem}", file=sys.stderr)
    commands = {peer.name: commands[peer.name] for peer in peers}
    engines = peers if options.without_llmgen else [Llmgen(str(options.llmgen), str(model), options.threads, options.device), *peers]
    rounds, loads = (2, LOADS[:3]) if options.quick else (options.rounds, LOADS)

    values, parts, answers = measure(engines, model, rounds, loads)
    for peer in peers:
        peer.end()
    reference = Peer("reference", "transformers", str(model), "--threads", str(options.threads), "--dtype", "f32")
    ids = check_ids(answers, reference)
    reference.end()
    rows = [(load.key, load.label, load.unit, load.better) for load in loads]
    if not options.quick:
        once = {name: peer_command(*command, "--once") for name, command in commands.items() if name != "vllm"}
        if not options.without_llmgen:
            once["llmgen"] = [str(options.llmgen), "-q", "--model", str(model), "--threads", str(options.threads), "--device", options.device,
                              "--prompt", "What is the capital of France?", "--max-new-tokens", "8", "--ignore-eos"]
        values |= whole_runs(once, rounds)
        rows += [(*row, "less") for row in WHOLE_RUN]
    out = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": cpu_name(), "device": options.device, "threads": options.threads, "dtype": "bf16", "model": model.name, "rounds": rounds,
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "GOMP_", "DNNL_", "ONEDNN_"))},
        "command": shown_command(options),
        "others_part_of_cpu": others.part(),
        "engines": {e.name: e.about for e in engines},
        "figures": report.figures(rows, values, parts),
        "ids": ids,
    }
    (options.out / "compare.json").write_text(json.dumps(out, indent=1) + "\n")
    (options.out / "compare.svg").write_text(report.plot(out))
    (options.out / "compare.md").write_text(report.markdown(out))
    print(report.markdown(out) if options.markdown else report.text(out), end="")
    print(f"wrote compare.json, compare.md and compare.svg into {options.out}", file=sys.stderr)
    return 0 if all(entry["sound"] for entry in ids.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
