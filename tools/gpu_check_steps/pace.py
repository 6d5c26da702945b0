"""How fast? The card's own limits, every kernel beside them, Llama-3.1-8B with dummy weights, transformers beside it."""
import json

from gpu_check_steps import models as made
from gpu_check_steps.run import Missing, Wrong


def card(check):
    """Read bandwidth, cuBLASLt's peak, and each kernel's share of the one or the other."""
    program = check.binary("hardware_bench", "emulated_bench")
    fault = None
    try:
        check.must([program] + (["--tiny"] if check.dry else []))
    except Wrong as wrong:  # what was measured before stands
        fault = wrong
    rows = [json.loads(line) for line in check.output.splitlines() if line.startswith("{") and line.endswith("}")]
    if sum(row["name"] in ("read", "cublas_peak") for row in rows) < 2:
        raise fault or Wrong("neither the read bandwidth nor cuBLASLt's peak was measured")
    read = next(row for row in rows if row["name"] == "read")
    peak = next(row for row in rows if row["name"] == "cublas_peak")
    bandwidth, flops = read["bytes"] / read["seconds"], peak["flops"] / peak["seconds"]
    check.facts["card"] = {"read_bytes_per_s": bandwidth, "cublas_flop_per_s": flops, **rows[0]}
    check.say(f"measured: {bandwidth / 1e9:.4g} GB/s read, {flops / 1e12:.4g} TFLOP/s by cuBLASLt")
    if "overlaps" in rows[0]:
        check.say(f"dependent launches overlap: {'yes' if rows[0]['overlaps'] else 'NO'}")
    kernels = []
    for row in rows[1:]:
        by_bytes = row["bytes"] / row["seconds"] / bandwidth if row["bytes"] else 0
        by_flops = row["flops"] / row["seconds"] / flops if row["flops"] else 0
        kernels.append({**row, "bytes_per_s": row["bytes"] / row["seconds"], "flop_per_s": row["flops"] / row["seconds"],
                        "share": max(by_bytes, by_flops), "of": "read" if by_bytes >= by_flops else "cuBLAS peak"})
    check.facts["kernels"] = kernels
    if fault:
        raise fault
    worst = min((row for row in kernels if row["name"] not in ("read", "cublas_peak")), key=lambda row: row["share"])
    check.say(f"{len(kernels)} measurements; the lowest share: {worst['name']} {worst['shape']}, {100 * worst['share']:.0f} % of "
              f"{worst['of']}")


def big(check):
    """The directory of Llama-3.1-8B's config, or dry of a tiny one."""
    folder = check.scratch / "llama-3.1-8b"
    folder.mkdir(exist_ok=True)
    config = made.LLAMA_8B if not check.dry else {
        **made.LLAMA_8B, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 256, "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, config


def sizes(config):
    """Bytes of a step's weights, bytes of keys and values a token, multiply-adds a prompt token."""
    hidden, ffn, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    dim = hidden // config["num_attention_heads"]
    kv = config["num_key_value_heads"] * dim
    layer = hidden * hidden * 2 + 2 * hidden * kv + 3 * hidden * ffn
    head = config["vocab_size"] * hidden
    return 2 * (layers * layer + head), 4 * layers * kv, layers * layer


def bench(check, prompt_tokens, new_tokens, concurrency, repetitions, *more):
    folder, config = big(check)
    done = check.must([check.llmgen(), "bench", "--model", folder, "--dummy-weights", "--device", check.options.device, "--compute",
                       "bf16", "--prompt-tokens", prompt_tokens, "--new-tokens", new_tokens, "--concurrency", concurrency,
                       "--repetitions", repetitions, "--warmup", 1 if not check.dry else 0, "--no-floor", "--format", "json", "-q",
                       *more])
    report = json.loads(done.stdout)
    check.facts["load"] = report.get("load", {})
    return report["points"], config


def rows_of(check, points, config):
    weights, kv, macs = sizes(config)
    card = check.facts.get("card", {})
    rows = []
    for point in points:
        metrics, n, batch = point["metrics"], point["prompt_tokens"], point["concurrency"]
        ttft, tpot = metrics["ttft_s"]["median"], metrics["tpot_s"]["median"]
        row = {"prompt_tokens": n, "batch": batch, "ttft_s": ttft, "tpot_s": tpot,
               "output_tokens_per_s": metrics["output_tokens_per_s"]}
        if card:
            step_bytes = weights + batch * kv * (n + point["new_tokens"] / 2)
            row["tpot_floor_s"] = step_bytes / card["read_bytes_per_s"]
            row["tpot_share"] = row["tpot_floor_s"] / tpot if tpot else 0
            layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
            flops = 2 * macs * n + 2 * layers * n * n * config["hidden_size"] * (1 if heads else 0)
            row["prefill_flop_per_s"] = flops / ttft if batch == 1 else 0
            row["prefill_share"] = row["prefill_flop_per_s"] / card["cublas_flop_per_s"]
        rows.append(row)
    return rows


def say_rows(check, rows):
    for row in rows:
        check.say(f"prompt {row['prompt_tokens']}, batch {row['batch']}: TTFT {1e3 * row['ttft_s']:.4g} ms"
                  f"{share(row, 'prefill_share', 'of cuBLAS')}, TPOT {1e3 * row['tpot_s']:.4g} ms"
                  f"{share(row, 'tpot_share', 'of the floor')}, {row['output_tokens_per_s']:.4g} tok/s")


def share(row, name, of):
    return f" ({100 * row[name]:.0f} % {of})" if row.get(name) else ""


def latency(check):
    """One request at a time: TTFT by prompt, TPOT by context. One token of prompt stands for an empty context."""
    points, config = bench(check, "8,16" if check.dry else "1,32,512,2048", 4 if check.dry else 32, 1, 1 if check.dry else 3)
    rows = check.facts["latency"] = rows_of(check, points, config)
    say_rows(check, rows)


def long_prompts(check):
    """The same for contexts that take longest, on their own: what they cost or break doesn't touch the others."""
    points, config = bench(check, 24 if check.dry else "8192,32768", 3 if check.dry else 32, 1, 1 if check.dry else 2)
    rows = check.facts["long_prompts"] = rows_of(check, points, config)
    say_rows(check, rows)
    # The same prompts by larger products: what the chunk that suits a CPU costs a card.
    points, config = bench(check, 24 if check.dry else "2048,8192", 3 if check.dry else 8, 1, 1 if check.dry else 2,
                           "--prefill-chunk", 16 if check.dry else 2048)
    check.facts["large_chunks"] = rows_of(check, points, config)
    check.say("in chunks of 2048 tokens:")
    say_rows(check, check.facts["large_chunks"])


def batches(check):
    points, config = bench(check, 8 if check.dry else 512, 3 if check.dry else 64, "1,2" if check.dry else "1,8,32,128", 1)
    rows = check.facts["batches"] = rows_of(check, points, config)
    say_rows(check, rows)


TORCH = """
import json, sys, time, torch, transformers as tf
config = tf.LlamaConfig(**{k: v for k, v in json.load(open(sys.argv[1])).items() if k not in ("architectures", "torch_dtype")})
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = tf.LlamaForCausalLM(config).eval()
def measure(n, new, compiled):
    ids = torch.randint(1, 1000, (1, n), device="cuda")
    how = dict(do_sample=False, eos_token_id=None, pad_token_id=0)
    if compiled: how["cache_implementation"] = "static"
    def run(k):
        torch.cuda.synchronize(); begin = time.perf_counter()
        model.generate(ids, max_new_tokens=k, min_new_tokens=k, **how)
        torch.cuda.synchronize(); return time.perf_counter() - begin
    run(2); run(new)
    first, whole = min(run(1) for _ in range(2)), min(run(new) for _ in range(2))
    print(json.dumps({"prompt_tokens": n, "compiled": compiled, "ttft_s": first, "tpot_s": (whole - first) / (new - 1)}), flush=True)
with torch.inference_mode():
    for n in (32, 512, 2048, 8192): measure(n, 17, False)
    for n in (32, 2048): measure(n, 17, True)
"""


def transformers(check):
    """Eager, and with a static cache (which transformers compiles), on the same shapes."""
    python = check.python()
    if check.run([python, "-c", "import torch, transformers; assert torch.cuda.is_available()"], seconds=30).returncode != 0:
        raise Missing("no transformers with a torch that sees the GPU for this python")
    if check.dry:
        raise Missing("nothing to compare the emulated device with")
    folder, _ = big(check)
    script = check.scratch / "transformers_pace.py"
    script.write_text(TORCH)
    why = "no output"
    try:
        why = (check.run([python, script, folder / "config.json"]).stderr.strip().splitlines() or [why])[-1][:300]
    except Wrong as late:  # it compiles for a minute or more; what was measured before stands
        why = str(late)
    rows = [json.loads(line) for line in check.output.splitlines() if line.startswith("{")]
    check.facts["transformers"] = rows
    for row in rows:
        check.say(f"transformers {'compiled' if row['compiled'] else 'eager'}, prompt {row['prompt_tokens']}: TTFT "
                  f"{1e3 * row['ttft_s']:.4g} ms, TPOT {1e3 * row['tpot_s']:.4g} ms")
    if not rows:
        raise Missing(f"transformers did not run: {why}")
    if len(rows) < 6:
        check.say(f"the others are missing: {why}")
