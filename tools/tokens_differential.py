#!/usr/bin/env python3
"""Compares llmgen's tokenizers with the Hugging Face `tokenizers` library on seeded random strings.

usage: tokens_differential.py [--llmgen PATH] [--n 10000] [--seed 1] TOKENIZER...
TOKENIZER is a tokenizer.json, a checkpoint directory that holds one, or a sentencepiece model (*.model, compared with
the sentencepiece package). Each string is encoded with and without special
tokens; its ids, and as many lists of random ids, are decoded with and without them, whole and in chunks (whose
concatenation must be the whole). Prints one line a tokenizer and the first differences; exits 1 if there are any.
needs: tokenizers, sentencepiece (the references)"""
import argparse
import base64
import json
import os
import pathlib
import random
import subprocess
import sys
import types

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import Tokenizer

WORDS = """the of and don't I'LL we've they're it's 'S 'ſ x'ſ O'Neil rock'n'roll naïve café été straße ΟΔΟΣ İstanbul Việt
hello world HelloWorld camelCaseWord snake_case_word __init__ 12345 3.14159 1,000,000 0x7fff 1e-9 §5 №7 ½ ² x² Ⅷ ٣٤ १२ 你好
世界 これはテスト カタカナ ー 안녕하세요 नमस्ते مرحبا שלום привет мир ไทยภาษา 🤗 👩‍👩‍👧 🇩🇪 👍🏽 → ≠ … “q” «q» ... !!! ?! -- ## // <- |> <| <s> </s>
<unk> <0x41> <0x0A> ▁ ▁▁ a▁b Ġ Ċ <|endoftext|> <|eot_id|> <|im_start|> http://a.b/c?d=e#f user@host.tld #include <vector> {} [] ()
def f(x): return x+1; ﬁ ﬀ ß ẞ Å Å é e\u0301 a\u0323\u0302 \u0130 \u0345 각 각 ﷺ ㈎ ① Ａｂｃ １２""".split()
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u2009", "\u0085", "\u200b", "\u180e",
          "\u001c", "\x0b", "\u202f", " \n ", "\n \n", "     "]
BLOCKS = [(0x20, 0x7E), (0, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
          (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x20CF), (0x20D0, 0x218F), (0x2190, 0x2BFF), (0x3000, 0x30FF),
          (0x4E00, 0x4FFF), (0xA640, 0xA7FF), (0xAC00, 0xAD00), (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFF),
          (0x10000, 0x102FF), (0x10A00, 0x10AFF), (0x11000, 0x111FF), (0x16A00, 0x16FFF), (0x1D100, 0x1D7FF), (0x1E100, 0x1E4FF),
          (0x1F000, 0x1FAFF), (0x20000, 0x20010), (0x30000, 0x3134A), (0xE0000, 0xE01FF), (0x10FFF0, 0x10FFFF)]


def skip_reason(c):
    """Characters on which the reference's own parts disagree about the version of Unicode (see TOKENIZERS.md)."""
    return 0xD800 <= c < 0xE000


def random_char(rng):
    while True:
        c = rng.randint(*rng.choice(BLOCKS)) if rng.random() < 0.97 else rng.randrange(0x110000)
        if not skip_reason(c):
            return chr(c)


def random_text(rng, specials):
    out = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 20])):
        kind = rng.random()
        if kind < 0.35:
            out.append(rng.choice(WORDS))
        elif kind < 0.5:
            out.append(rng.choice(SPACES))
        elif kind < 0.62:
            out.append(" " + rng.choice(WORDS))
        elif kind < 0.72 and specials:
            token = rng.choice(specials)
            out.append(token if rng.random() < 0.8 else token[: rng.randint(1, len(token))])
        elif kind < 0.8:
            out.append(rng.choice("aeiounrst x'-_.,!?0123456789\n ") * rng.choice([1, 2, 3, 4, 7, 60]))
        elif kind < 0.86:
            out.append("".join(rng.choice("abcdefghijklmnop") for _ in range(rng.randint(1, 12))))
        else:
            out.append("".join(random_char(rng) for _ in range(rng.randint(1, 6))))
    return "".join(out)


def run(llmgen, args, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([llmgen, *args], input=text, capture_output=True, text=True, encoding="utf-8")
    out = [json.loads(line) for line in done.stdout.split("\n") if line]
    if len(out) != len(lines):
        sys.exit(f"{llmgen} {' '.join(args)}: {len(out)} lines for {len(lines)}: {done.stderr.strip()[-300:]}")
    return out


class Sentencepiece:
    """A sentencepiece model with the face of a Tokenizer."""

    normalizer = None

    def __init__(self, path):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(self, text, add_special_tokens):
        return types.SimpleNamespace(ids=self.processor.encode(text, add_bos=add_special_tokens))

    def decode(self, ids, skip_special_tokens):
        return self.processor.decode([i for i in ids if i < self.processor.get_piece_size()])

    def id_to_token(self, i):
        return self.processor.id_to_piece(i) if i < self.processor.get_piece_size() else None

    def get_vocab(self, with_added_tokens):
        return {"last": self.processor.get_piece_size() - 1}


def compare(llmgen, path, n, seed, shown):
    file = path / "tokenizer.json" if path.is_dir() else path
    where = ["--model" if path.is_dir() else "--tokenizer", str(path)]
    if path.suffix == ".model":
        reference, added = Sentencepiece(path), []
    else:
        reference = Tokenizer.from_file(str(file))
        reference.no_padding()
        reference.no_truncation()
        added = json.loads(file.read_text(encoding="utf-8"))["added_tokens"]
    specials = [t["content"] for t in added][:300]
    # The reference shows these in their normalized form (TOKENIZERS.md, known limits): their ids count, not their text.
    normalizer = reference.normalizer
    odd = {t["id"] for t in added if t["normalized"] and normalizer is not None
           and normalizer.normalize_str(t["content"]) != t["content"]}
    rng = random.Random(f"{seed} {file.name}")
    texts = [random_text(rng, specials) for _ in range(n)]
    size = max(reference.get_vocab(with_added_tokens=True).values()) + 1
    bad = checks = 0

    def differ(what, case, theirs, ours):
        nonlocal bad
        bad += 1
        if bad <= shown:
            print(f"  {what}: {case!r}\n    reference {theirs!r}\n    llmgen    {ours!r}")

    id_lists = []
    for special in (True, False):
        ours = run(llmgen, ["tokenize", *where, "--jsonl"] + ([] if special else ["--no-special"]),
                   [{"text_b64": base64.b64encode(t.encode()).decode()} for t in texts])
        for text, o in zip(texts, ours):
            try:
                ids = reference.encode(text, add_special_tokens=special).ids
            except BaseException:  # the reference gives up (or panics) on this text: nothing to compare with
                continue
            checks += 1
            if special:
                id_lists.append(ids)
            if o.get("ids") != ids:
                differ(f"tokenize special={special}", text, ids, o.get("ids", o))
    byte_like = [i for i in range(size) if len(reference.id_to_token(i) or "") in (1, 2, 6)][:600]
    for _ in range(n):
        k = rng.choice([0, 1, 2, 3, 5, 9])
        pool = byte_like if byte_like and rng.random() < 0.6 else range(size + 3)
        id_lists.append([rng.choice(pool) for _ in range(k)])
    id_lists = [ids for ids in id_lists if not odd.intersection(ids)]
    for skip in (True, False):
        args = ["detokenize", *where, "--jsonl"] + (["--skip-special"] if skip else [])
        whole = run(llmgen, args, [{"ids": ids} for ids in id_lists])
        chunks = run(llmgen, args + ["--chunks"], [{"ids": ids} for ids in id_lists])
        for ids, w, c in zip(id_lists, whole, chunks):
            try:
                text = reference.decode(ids, skip_special_tokens=skip)
            except BaseException:
                continue
            checks += 1
            if w.get("text") != text:
                differ(f"detokenize skip={skip}", ids, text, w)
            elif "".join(c["chunks"]) + c["flush"] != text:
                differ(f"chunks skip={skip}", ids, text, c)
    print(f"{path}: {checks} comparisons, {bad} differences", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llmgen", default="build/llmgen")
    parser.add_argument("--n", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shown", type=int, default=3, help="differences printed for each tokenizer")
    parser.add_argument("tokenizers", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    total = 0
    for path in args.tokenizers:
        total += compare(args.llmgen, path, args.n, args.seed, args.shown)
    print(f"{len(args.tokenizers)} tokenizers, {args.n} strings each, seed {args.seed}: {total} differences")
    sys.exit(total > 0)


if __name__ == "__main__":
    main()
