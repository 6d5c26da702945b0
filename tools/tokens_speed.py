#!/usr/bin/env python3
"""Speed of llmgen's tokenizers beside the Hugging Face `tokenizers` library: one thread each, in turn, in one run.

usage: tokens_speed.py [--llmgen PATH] [--rounds 3] [--seed 1] [--linear] TOKENIZER...
TOKENIZER is a tokenizer.json or a checkpoint directory that holds one. A line a tokenizer: CPU milliseconds for 1 MiB of
mixed text (the least of the rounds; llmgen's is the whole process less the same process on no text, so reading and
printing count against it), their ratio, and the milliseconds to load, CPU and wall, of the whole process. The ids are compared too.
--linear adds inputs that are hard on a tokenizer, whole and by halves, with a stack of 256 KiB: a ratio about 2 is linear.
Exit status 1 where ids differ, or a ratio is below 2.
needs: tokenizers (the reference)"""
import argparse
import os
import pathlib
import random
import resource
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer

from tokens_differential import SPACES, WORDS

MIB = 1 << 20
ENGLISH = """It is a truth that every reader of plain prose will grant: most words are short, some are considerably longer, and now and
then a number (1,984 or 3.14) or a name like O'Neil stands between them; nobody's surprised.""".split()
CODE = ["for (int i = 0; i < n; ++i) {\n    sum += values[i] * 0x1F;\n}\n", "def area(radius: float) -> float:\n    return 3.14159 * radius ** 2\n",
        "    if (!error) return std::nullopt;  // nothing to do\n", "SELECT name, COUNT(*) FROM users WHERE id >= 100 GROUP BY name;\n"]


def mixed_text(seed, size=MIB):
    """Half English, the rest code, numbers, other scripts, emoji and odd spaces."""
    rng, out, n = random.Random(seed), [], 0
    while n < size:
        kind = rng.random()
        piece = (rng.choice(ENGLISH) + " " if kind < 0.72 else rng.choice(WORDS) + " " if kind < 0.95
                 else rng.choice(CODE) if kind < 0.97 else str(rng.randrange(10 ** 6)) + ", " if kind < 0.99 else rng.choice(SPACES))
        out.append(piece)
        n += len(piece.encode())
    return "".join(out).encode()[:size].decode(errors="ignore")


HARD = [("1 MiB of one letter", "a" * MIB), ("512 KiB of x", "x" * (MIB // 2)), ("1 MiB of newlines", "\n" * MIB), ("1 MiB of spaces", " " * MIB),
        ("1 MiB of digits", "7" * MIB), ("1 MiB of !", "!" * MIB), ("1 MiB of CJK", "\u4e2d" * (MIB // 3)), ("1 MiB mixed", mixed_text(2))]


def small_stack():
    resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))


def run(llmgen, where, text, stack=None):
    """The ids, and CPU and wall seconds of the whole process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([llmgen, "tokenize", *where, "--no-special"], input=text.encode(), capture_output=True, preexec_fn=stack)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{llmgen} {where[1]}: status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [int(i) for i in done.stdout.split(b",") if i.strip()], cpu, wall


def reference(path, text):
    """The ids, and CPU seconds to load and to encode."""
    start = time.process_time()
    tokenizer = Tokenizer.from_file(str(path))
    loaded = time.process_time()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return ids, loaded - start, time.process_time() - loaded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llmgen", default="build/llmgen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("tokenizers", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    os.environ["GOMP_SPINCOUNT"] = "500"  # or llmgen would start itself once more
    text = mixed_text(args.seed)
    wrong = slow = 0
    print(f"{'tokenizer':<34}{'HF ms':>9}{'llmgen ms':>11}{'ratio':>8}   load: {'HF CPU':>8}{'llmgen CPU':>12}{'wall':>8}")
    for path in args.tokenizers:
        file = path / "tokenizer.json" if path.is_dir() else path
        where = ["--model" if path.is_dir() else "--tokenizer", str(path)]
        theirs_ms, ours_ms, their_load, our_load, our_wall = ([] for _ in range(5))
        same = True
        for _ in range(args.rounds):
            try:
                expected, load, encode = reference(file, text)
            except BaseException as error:  # the reference gives up, or panics
                print(f"{path.name:<34} no reference: {str(error)[:80]}")
                break
            _, cpu_empty, wall_empty = run(args.llmgen, where, "")
            ids, cpu, _ = run(args.llmgen, where, text)
            same = same and ids == expected
            theirs_ms.append(1000 * encode)
            ours_ms.append(1000 * (cpu - cpu_empty))
            their_load.append(1000 * load)
            our_load.append(1000 * cpu_empty)
            our_wall.append(1000 * wall_empty)
        else:
            ratio = min(theirs_ms) / max(min(ours_ms), 0.1)
            wrong += not same
            slow += ratio < 2
            print(f"{path.name:<34}{min(theirs_ms):9.0f}{min(ours_ms):11.1f}{ratio:8.1f}         {min(their_load):8.0f}{min(our_load):12.0f}{min(our_wall):8.0f}"
                  + ("" if same else "   IDS DIFFER"), flush=True)
        for name, hard in HARD if args.linear else []:
            base = min(run(args.llmgen, where, "", small_stack)[1] for _ in range(2))
            half = min(run(args.llmgen, where, hard[: len(hard) // 2], small_stack)[1] for _ in range(2)) - base
            whole = min(run(args.llmgen, where, hard, small_stack)[1] for _ in range(2)) - base
            print(f"    {name:<30}{1000 * half:9.1f} ms half {1000 * whole:9.1f} ms whole, ratio {whole / max(half, 1e-4):.2f}", flush=True)
    print(f"{len(args.tokenizers)} tokenizers, {len(text.encode())} bytes, seed {args.seed}, {args.rounds} rounds: {wrong} with other ids, {slow} below twice the reference's speed")
    sys.exit(bool(wrong or slow))


if __name__ == "__main__":
    main()
