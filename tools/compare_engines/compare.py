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
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

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
    """n prompts of one length, answered together."""

    def __init__(self, name, prompts, length, new, what):
        self.name, self.prompts, self.length, self.new, self.what = name, prompts, length, new, what


LOADS = [
    Load("prefill 512", 1, 512, 128, "prefill"),
    Load("decode after 512", 1, 512, 128, "decode"),
    Load("prefill 1500", 1, 1500, 32, "prefill"),
    Load("decode after 1500", 1, 1500, 32, "decode"),
    Load("batch of 32, decode", 32, 64, 32, "decode"),
    Load("batch of 32, prefill", 32, 64, 32, "prefill"),
]


class Peer:
    """An engine in a process of its own that answers JSON lines (peers.py)."""

    def __init__(self, name, *arguments):
        self.name = name
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", HERE / "peers.py", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended:\n{self.process.stderr.read()[-2000:]}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def generate(self, prompts, new):
        return self.ask(op="generate", prompts=prompts, new=new)


class Llmgen:
    """`llmgen bench` on given prompts, with a warm-up of its own in each process."""

    def __init__(self, binary, model, threads):
        self.name, self.binary, self.model, self.threads = "llmgen", binary, model, threads
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self.about = {"version": version}

    def measure_limits(self):
        """The read bandwidth beside which a decode pace stands; the best of three, as the machine may be busy."""
        for _ in range(3):
            run = subprocess.run([self.binary, "devices", "--json", "--threads", str(self.threads)], capture_output=True, text=True, check=True)
            cpu = next(d for d in json.loads(run.stdout)["devices"] if d["name"] == "cpu")
            self.about["features"] = cpu.get("description", "")
            for key in ("read_bandwidth_bytes_per_s", "matmul_bf16_flop_per_s"):
                self.about[key] = max(self.about.get(key, 0), cpu.get(key, 0))

    def generate(self, prompts, new):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(ids) + "\n" for ids in prompts)
            file.flush()
            command = [self.binary, "bench", "-q", "--model", self.model, "--device", "cpu", "--compute", "bf16", "--threads",
                       str(self.threads), "--prompts", file.name, "--new-tokens", str(new), "--concurrency", str(len(prompts)),
                       "--repetitions", "1", "--warmup", "1", "--no-floor", "--format", "json", "--ids"]
            run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"llmgen bench: {run.stderr.strip()}")
        report = json.loads(run.stdout)
        self.about["weight_bytes"] = report["model"]["weight_bytes"]
        requests = report["points"][0]["repetitions"][0]["requests"]
        # As the peers count: a token's time is when the last of all prompts has it.
        times = [max(r["arrival_s"] + r["token_times_s"][i] for r in requests) for i in range(new)]
        return {"ids": [r["token_ids"] for r in requests], "times": times}


def prompts_of(model, load, seed):
    """Ordinary text of exactly load.length tokens, another for each seed."""
    from tokenizers import Tokenizer

    tokenizer, rng, out = Tokenizer.from_file(str(model / "tokenizer.json")), random.Random(f"{load.name.split(',')[0]} {seed}"), []
    for _ in range(load.prompts):
        text = " ".join(rng.choice(WORDS) for _ in range(load.length * 2))
        out.append(tokenizer.encode(text, add_special_tokens=False).ids[: load.length])
        assert len(out[-1]) == load.length
    return out


def rate(load, times):
    """Tokens a second of the whole load; None where it has no decode."""
    if load.what == "prefill":
        return load.prompts * load.length / times[0]
    return load.prompts * (load.new - 1) / (times[-1] - times[0])


def measure(engines, model, rounds, loads):
    """{engine: {load: [rate a round]}}, and every answer: (engine, prompt, ids)."""
    rates = {e.name: {load.name: [] for load in loads} for e in engines}
    answers = []
    shapes = {(load.prompts, load.length, load.new): [x for x in loads if (x.prompts, x.length, x.new) == (load.prompts, load.length, load.new)]
              for load in loads}
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
                    rates[engine.name][load.name].append(rate(load, answer["times"]))
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    return rates, answers


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
    """A fresh process that answers 8 tokens: seconds and peak bytes, medians."""
    out = {name: {"seconds": [], "peak_bytes": []} for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            begin = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
            if status:
                raise SystemExit(f"{name}: {command} failed")
            if turn:
                out[name]["seconds"].append(time.perf_counter() - begin)
                out[name]["peak_bytes"].append(usage.ru_maxrss * 1024)
    return out


def summary(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1], "n": len(ordered), "values": values}


def ratios(rates, name):
    """llmgen over a peer, round by round, so that the machine's drift cancels."""
    return {load: summary([a / b for a, b in zip(mine, rates[name][load])]) for load, mine in rates["llmgen"].items()}


def table(report):
    names = list(report["engines"])
    peers = [n for n in names if n != "llmgen"]
    head = ["", *names, *(f"llmgen ÷ {p}" for p in peers if "llmgen" in names)]
    rows = []
    for load in report["rates"][names[0]]:
        row = [load + ", tok/s"]
        row += [f"{s['median']:.1f} ({s['min']:.1f} to {s['max']:.1f})" for s in (report["rates"][n][load] for n in names)]
        row += [f"{s['median']:.2f} ({s['min']:.2f} to {s['max']:.2f})" for s in (report["ratios"][p][load] for p in peers if p in report["ratios"])]
        rows.append(row)
    for key, label, scale in (("seconds", "whole run of 8 tokens, s", 1), ("peak_bytes", "its peak memory, MB", 1e-6)):
        row = [label]
        for n in names:
            s = report["whole_run"].get(n, {}).get(key)
            row.append(f"{s['median'] * scale:.2f} ({s['min'] * scale:.2f} to {s['max'] * scale:.2f})" if s else "–")
        if "llmgen" in names:
            for p in peers:
                a, b = report["whole_run"].get("llmgen"), report["whole_run"].get(p)
                row.append(f"{a[key]['median'] / b[key]['median']:.2f}" if a and b else "–")
        rows.append(row)
    lines = ["| " + " | ".join(r) + " |" for r in [head] + rows]
    lines.insert(1, "|---|" + "---:|" * (len(head) - 1))
    return "\n".join(lines)


def plot(report):
    """Bars of tokens a second, each load on a scale of its own; plain SVG that reads on white and on black."""
    names, loads = list(report["engines"]), list(report["rates"][next(iter(report["rates"]))])
    colours = {"llmgen": "#2166c2", "llama.cpp": "#d9730d", "transformers": "#8d8a84"}
    width, bar, gap = 640, 18, 16
    height = 30 + len(loads) * (len(names) * bar + gap + 18)
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='system-ui, sans-serif' font-size='13'>",
           f"<rect width='{width}' height='{height}' fill='#fbfaf8'/>"]
    y = 24
    for load in loads:
        most = max(report["rates"][n][load]["max"] for n in names)
        out.append(f"<text x='12' y='{y}' font-weight='600' fill='#1b1b1a'>{load}, tokens per second</text>")
        y += 8
        for n in names:
            s = report["rates"][n][load]
            scale = (width - 250) / most
            out.append(f"<text x='100' y='{y + 13}' text-anchor='end' fill='#62605c'>{n}</text>"
                       f"<rect x='108' y='{y}' width='{s['median'] * scale:.1f}' height='{bar - 4}' fill='{colours.get(n, '#10825a')}'/>"
                       f"<line x1='{108 + s['min'] * scale:.1f}' x2='{108 + s['max'] * scale:.1f}' y1='{y + 7}' y2='{y + 7}' stroke='#1b1b1a'/>"
                       f"<text x='{116 + s['max'] * scale:.1f}' y='{y + 12}' fill='#1b1b1a'>{s['median']:.0f}</text>")
            y += bar
        y += gap + 10
    return "\n".join(out) + "\n</svg>\n"


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
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one load, two rounds, no whole runs")
    parser.add_argument("--without-llmgen", action="store_true", help="the peers alone")
    parser.add_argument("--out", type=pathlib.Path, default=CACHE / "compare")
    return parser.parse_args()


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.model or pathlib.Path(subprocess.run([HERE.parent / "fetch_model", "smollm2"], check=True, text=True,
                                                         stdout=subprocess.PIPE).stdout.strip())
    gguf = CACHE / "compare" / f"{model.name}-bf16.gguf"
    gguf.parent.mkdir(parents=True, exist_ok=True)
    if not gguf.exists():
        subprocess.run([sys.executable, HERE / "gguf_bf16.py", model, gguf], check=True)
    threads = str(options.threads)
    peers = [Peer("llama.cpp", "llama.cpp", str(gguf), threads), Peer("transformers", "transformers", str(model), threads)]
    engines = peers if options.without_llmgen else [Llmgen(str(options.llmgen), str(model), options.threads), *peers]
    rounds, loads = (2, LOADS[:2]) if options.quick else (options.rounds, LOADS)

    rates, answers = measure(engines, model, rounds, loads)
    for engine in engines:
        if isinstance(engine, Llmgen):
            engine.measure_limits()
    for peer in peers:
        peer.process.stdin.close()
        peer.process.wait()
    ids = check_ids(answers, Peer("reference", "transformers", str(model), threads, "f32"))
    once = [sys.executable, "-W", "ignore", str(HERE / "peers.py")]
    commands = {} if options.quick else {
        "llama.cpp": [*once, "llama.cpp", str(gguf), threads, "once"],
        "transformers": [*once, "transformers", str(model), threads, "bf16", "once"],
    }
    if commands and not options.without_llmgen:
        commands["llmgen"] = [str(options.llmgen), "-q", "--model", str(model), "--threads", threads, "--device", "cpu", "--prompt",
                              "What is the capital of France?", "--max-new-tokens", "8", "--ignore-eos"]
    runs = whole_runs(commands, rounds)
    report = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": cpu_name(), "threads": options.threads, "dtype": "bf16", "model": model.name, "rounds": rounds,
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "GOMP_", "DNNL_", "ONEDNN_"))},
        "command": "tools/compare " + " ".join(sys.argv[1:]),
        "engines": {e.name: e.about for e in engines},
        "rates": {n: {load: summary(v) for load, v in by_load.items()} for n, by_load in rates.items()},
        "ratios": {} if options.without_llmgen else {p.name: ratios(rates, p.name) for p in peers},
        "whole_run": {n: {k: summary(v) for k, v in by_key.items()} for n, by_key in runs.items()},
        "ids": ids,
    }
    (options.out / "compare.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "compare.svg").write_text(plot(report))
    print(f"{report['date']}, {report['cpu']}, {threads} threads, {model.name} in bf16, {rounds} rounds in turn; median (minimum to maximum)\n")
    print(table(report) + "\n")
    about = report["engines"].get("llmgen", {})
    if about.get("read_bandwidth_bytes_per_s"):
        floor = about["weight_bytes"] / about["read_bandwidth_bytes_per_s"]
        print(f"floor of decoding: {about['weight_bytes'] / 1e6:.0f} MB of weights at {about['read_bandwidth_bytes_per_s'] / 1e9:.1f} GB/s, measured: "
              f"{1 / floor:.0f} tok/s; matmul peak {about['matmul_bf16_flop_per_s'] / 1e12:.2f} TFLOP/s\n")
    for name, entry in ids.items():
        print(f"{name}: {entry['equal_leading_tokens']} of {entry['tokens']} greedy ids equal to f32 up to the first near-tie; chosen tokens lie "
              f"at most {entry['largest_margin']:.3f} below the best logit: {'sound' if entry['sound'] else 'WRONG'}")
    print(f"\nwrote {options.out / 'compare.json'} and compare.svg", file=sys.stderr)
    return 0 if all(entry["sound"] for entry in ids.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
