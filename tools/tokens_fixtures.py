#!/usr/bin/env python3
"""Makes the tokenizer fixtures in tests/data/text: small tokenizers trained on the sentences below, one for each component
of tokenizer.json and each kind of tokenizer.model, and what the reference makes of some texts with them.

usage: tokens_fixtures.py [--out tests/data/text]
writes: tokenizers/*.json, tokenizers/*.model, tokenize.jsonl, detokenize.jsonl (the form of the shared cases), regex.jsonl
needs: tokenizers, sentencepiece (the references)"""
import argparse
import base64
import copy
import io
import json
import os
import pathlib
import random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXT = """A tokenizer cuts the text into pieces, and the pieces into tokens; the tokens are what the model sees.
Where the cut falls matters: "don't" is not "do n't", and a space belongs to the word that follows it.
Numbers such as 12, 345 and 2026 are cut by their digits. Lines end in a newline, paragraphs in two.

The ship sailed on Thursday with 48 barrels, three cats and nobody who could cook. It didn't arrive until May.
for (int i = 0; i < n; ++i) { total += values[i] * 2; }  // the sum, doubled
def greet(name):\n    return f"Hello, {name}!"\n
Der Fluss führt Hochwasser, die Brücke ist gesperrt. Le café est fermé jusqu'à midi. El niño comió una piña.
Мы шли вдоль берега и говорили о погоде. 我们昨天去了图书馆。 今日はとても寒いです。 오늘은 날씨가 좋다.
""" * 3

TEXTS = ["", " ", "a", "Hello world", " hello  world ", "don't I'LL we've 'ſ x'S", "12345 3.14 x2 ²½ Ⅷ ٣٤", "line\n\nline\r\n\t tab \n",
         "naïve café e\u0301 A\u030a ﬁ Å", "Straße ΟΔΟΣ İ ẞ", "你好，世界。 カタカナー ひらがな", "안녕 각", "नमस्ते", "🤗 👩‍👩‍👧!", "a\u00a0b\u3000c\u2028d\u200be",
         "<s>hi</s> <mask> x", "x<mask>y <pad><pad>", "<0x41> ▁a▁ ▁▁b", "\u0000\u0001\u001c\u0085\ufffd", "foo_bar-baz.qux(1,2)[3]{4}", "aaaaaaaa bbbb",
         "The total is 48 barrels.\nIt didn't arrive!", "\U000323af\U0010fffd", "   leading \u0b95\u0bbe \u20e6\u0483 \u1734\u0c04", "trailing   ", "ABC abc AbC", "«q» “q” … — ¿?"]

PATTERNS = [r"\p{L}+", r"\p{N}{2,3}", r"[^\s\p{L}]+", r"(?i:'s|'t)|\w+", r"(?i)straße|ab", r"a|ab|abc", r"abc|ab|a", r"(?:ab)+?c", r"a++b", r"a?+a",
            r"x{2}?", r"x{1,2}+y", r"x{,2}y", r"{a}", r"a{,}b", r"[a-c&&[^b]]+", r"[^a-c&&b-z]+", r"[[:alpha:]&&[^a-z]]", r"[\w-]+", r"[a\-z]+", r"[]a]+",
            r"[^\]]+", r"\h+", r"\H+", r"(?<=a)b", r"(?<!a)b", r"(?<=a|bc)d", r"a(?=b)", r"a(?!b)", r"^a", r"a$", r"\Aa", r"b\z", r"b\Z", r"\bab\b",
            r"\Bb", r".", r"(?m:.)+", r".+", r"(?x: a b # c" + "\n" + r" d )", r"a(?i)b|c", r"a(?-i:b)", r"\x61\x{62}\u0063", r"\t|\n|\r|\f|\v|\e|\a",
            r"\101", r"\R", r"(?>a+)b", r"(a)(b)?", r"(?<name>ab)c", r"(?#comment)ab", r"\p{Han}+|\p{Hiragana}+", r"\p{^L}+", r"\P{L}+", r"\p{Lu}\p{Ll}*",
            r"\p{Script_Extensions}|a" if False else r"\p{Cyrillic}+", r"[[:punct:]]+", r"[[:^space:]]+", r"[\d\s]+", r"\W+", r"[^\W\d_]+", r"a*", r"a*?b",
            r"(?:a|b)*c", r"\s*\n", r"\s+(?!\S)|\s+", r"[一-龥]+", r"[\u4e00-\u9fff]", r"é|\x{65}\x{301}", r"(?i:é)", r"(?i:[à-þ])+", r"[^\n]*\n?",
            r"(?:(?=a)a|b)+", r"a{2,}", r"a{0}b", r"\.|\\|\/", r"\-", r"[\.\]\[]", r"(?i:k)", r"(?i)[^k]", r"\d(?=(?:\d{3})+\b)", r"\G\w", r"a||b"]
PATTERN_TEXTS = ["abc ab a abcab", "aab aaab xxy xy y {a}", "Straße STRASSE ſ K k \u212a", "a\nab\nb\n", "b d bcd ad abd", "12345 1234567 0xFf",
                 "foo-bar [x] ] a-z .\\/", "你好 ひらがな кот É é e\u0301 À þ", "  \n \r\n\t x", "²½ a_b ٣", "aaaa b a aa", ""]


def train(model, trainer, pre=None):
    t = Tokenizer(model)
    if pre is not None:
        t.pre_tokenizer = pre
    t.train_from_iterator(TEXT.split("\n"), trainer)
    return json.loads(t.to_str())


def added(content, **flags):
    return dict({"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}, **flags)


def template(*names, ids):
    return {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}} if n == "A" else {"SpecialToken": {"id": n, "type_id": 0}} for n in names],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in names if n != "A"}}


def with_added(base, tokens, **changes):
    j = copy.deepcopy(base)
    vocab = j["model"]["vocab"]
    known = {p: i for i, (p, _) in enumerate(vocab)} if isinstance(vocab, list) else dict(vocab)
    free = len(known)
    for t in tokens:
        if t["content"] in known:
            t["id"] = known[t["content"]]
        else:
            t["id"] = free
            free += 1
    j["added_tokens"] = tokens
    j["truncation"] = j["padding"] = None
    for key, value in changes.items():
        if key in j:
            j[key] = value
        else:
            j["model"][key] = value
    return j


def byte_level(**options):
    return dict({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, **options)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def train_sentencepiece(kind, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT.split("\n")), model_writer=out, model_type=kind, vocab_size=420,
                                             byte_fallback=True, character_coverage=0.98, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
    return out.getvalue()


def fields(message):
    """(number, value) of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            b = message[at]
            at += 1
            value |= (b & 127) << shift
            shift += 7
            if b < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            n = varint() if tag & 7 == 2 else 4 if tag & 7 == 5 else 8
            yield tag >> 3, message[at : at + n]
            at += n


def own_charsmap(folder):
    """A precompiled_charsmap of a few rules of our own."""
    rules = {"ﬁ": "fi", "é": "e", "e\u0301": "E", "…": "...", "\u3000": " ", "Ａ": "A", "２": "2", "\u200b": "", "a\u030a": "å", "\t": " ", "ß": "ss", "各": "每"}
    tsv = folder / "rules.tsv"
    tsv.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules.items()))
    model = train_sentencepiece("bpe", normalization_rule_tsv=str(tsv))
    tsv.unlink()
    spec = next(v for n, v in fields(model) if n == 3)
    return base64.b64encode(next(v for n, v in fields(spec) if n == 2)).decode()


def fixtures(folder):
    bl = train(models.BPE(), trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
               pre_tokenizers.ByteLevel(add_prefix_space=False))
    bl = with_added(bl, [], pre_tokenizer=byte_level(), decoder=byte_level())
    specials = [added("<s>"), added("</s>"), added("<pad>", special=False), added("<mask>", lstrip=True)]
    ids = {t["content"]: t["id"] for t in with_added(bl, copy.deepcopy(specials))["added_tokens"]}
    plain = lambda **c: with_added(bl, copy.deepcopy(specials), **c)
    llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    raw = byte_level(use_regex=False)
    pre = lambda *steps: sequence("pretokenizers", *steps)
    out = {
        "bl_gpt2": plain(),
        "bl_llama3": plain(pre_tokenizer=pre(split(llama), raw), ignore_merges=True, post_processor=template("<s>", "A", ids=ids)),
        "bl_qwen2": plain(normalizer={"type": "NFC"}, pre_tokenizer=pre(split(llama.replace("{1,3}", "")), raw)),
        "bl_digits": plain(pre_tokenizer=pre({"type": "Digits", "individual_digits": True}, byte_level())),
        "bl_prefix": plain(pre_tokenizer=byte_level(add_prefix_space=True), post_processor=sequence("processors", byte_level(), template("<s>", "A", "</s>", ids=ids))),
        "bl_bert_norm": plain(normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}),
        "bl_bert_keep": plain(normalizer={"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False}),
        "bl_nmt": plain(normalizer={"type": "Nmt"}),
        "bl_strip_left": plain(normalizer={"type": "Strip", "strip_left": True, "strip_right": False}),
        "bl_strip_right": plain(normalizer={"type": "Strip", "strip_left": False, "strip_right": True}),
        "bl_nfkd_accents": plain(normalizer=sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"})),
        "bl_nfd": plain(normalizer={"type": "NFD"}), "bl_nfkc": plain(normalizer={"type": "NFKC"}),
        "bl_replace_rx": plain(normalizer={"type": "Replace", "pattern": {"Regex": r"(?i)the|(?<=\d)\.|\s+$"}, "content": "<>"}),
        "bl_precompiled": plain(normalizer={"type": "Precompiled", "precompiled_charsmap": own_charsmap(folder)}),
        "bl_roberta": plain(post_processor={"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]], "trim_offsets": True, "add_prefix_space": False}),
        "bl_bertproc": plain(post_processor={"type": "BertProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]]}),
        "bl_bert_pre": plain(pre_tokenizer=pre({"type": "BertPreTokenizer"}, raw)),
        "bl_fixed": plain(pre_tokenizer=pre({"type": "FixedLength", "length": 3}, raw)),
        "bl_punct_next": plain(pre_tokenizer=pre({"type": "Punctuation", "behavior": "MergedWithNext"}, raw)),
        "bl_punct_prev": plain(pre_tokenizer=pre({"type": "Punctuation", "behavior": "MergedWithPrevious"}, raw)),
        "bl_delim": plain(pre_tokenizer=pre({"type": "CharDelimiterSplit", "delimiter": "o"}, raw)),
        "bl_scripts": plain(pre_tokenizer=pre({"type": "UnicodeScripts"}, raw)),
        "bl_whitespace": plain(pre_tokenizer=pre({"type": "Whitespace"}, raw)),
        "bl_nested": plain(pre_tokenizer=pre(pre(split(" ", "MergedWithNext", kind="String")), pre({"type": "Digits", "individual_digits": False}, raw))),
        "bl_split_rx": plain(pre_tokenizer=pre(split(r"[aeiou]+|\d", "Contiguous"), split(r"[A-Z]", "MergedWithPrevious", True), raw)),
        "bl_normalizer": plain(normalizer={"type": "ByteLevel"}, pre_tokenizer=None, decoder=byte_level()),
        "bl_mapped_twice": plain(pre_tokenizer=pre(byte_level(), {"type": "Digits", "individual_digits": True})),
        "bl_no_decoder": plain(decoder=None), "bl_wordpiece": plain(decoder={"type": "WordPiece", "prefix": "Ġ", "cleanup": True}),
        "bl_ctc": plain(decoder={"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "Ġ", "cleanup": True}),
        "bl_flags": with_added(bl, [added("<s>"), added("hello", single_word=True, special=False), added("</s>", rstrip=True), added("<mask>", lstrip=True, rstrip=True),
                                    added("Café", normalized=True, special=False), added("  ", special=False), added("<s>x", special=False)]),
        "bl_strings": plain(merges=[" ".join(m) for m in bl["model"]["merges"]]),
    }
    sp = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
               trainers.BpeTrainer(vocab_size=620, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=90,
                                   show_progress=False), pre_tokenizers.Metaspace(prepend_scheme="always"))
    sp_specials = [added("<unk>"), added("<s>"), added("</s>"), added("<mask>", lstrip=True), added("<pad>", normalized=True)]
    sp_ids = {"<s>": 1, "</s>": 2}
    llama_decoder = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                             {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    legacy = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    sps = lambda **c: with_added(sp, copy.deepcopy(sp_specials), **dict({"decoder": llama_decoder, "post_processor": template("<s>", "A", ids=sp_ids)}, **c))
    meta = lambda scheme, cut: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
    out |= {"sp_legacy": sps(normalizer=legacy, pre_tokenizer=None), "sp_no_fallback": sps(normalizer=legacy, pre_tokenizer=None, byte_fallback=False),
            "sp_no_fuse": sps(normalizer=legacy, pre_tokenizer=None, byte_fallback=False, fuse_unk=False), "sp_no_unk": sps(normalizer=legacy, pre_tokenizer=None, byte_fallback=False, unk_token=None),
            "sp_gemma": sps(normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
                            decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})),
            "sp_strip_norm_first": sps(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}, pre_tokenizer=meta("first", False), decoder=meta("first", False)),
            "sp_wssplit_first": sps(normalizer=None, pre_tokenizer=pre({"type": "WhitespaceSplit"}, meta("first", True)), decoder=meta("first", True))}
    for scheme in ("first", "always", "never"):
        for cut in (True, False):
            out[f"sp_meta_{scheme}_{'split' if cut else 'whole'}"] = sps(normalizer=None, pre_tokenizer=meta(scheme, cut), decoder=meta(scheme, cut))
    end = train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False),
                pre_tokenizers.Whitespace())
    out["bpe_end"] = with_added(end, [added("<unk>")], pre_tokenizer={"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    cont = train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False),
                 pre_tokenizers.Whitespace())
    out["bpe_continuing"] = with_added(cont, [added("<unk>")], pre_tokenizer={"type": "Whitespace"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": False})
    uni = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False),
                pre_tokenizers.Metaspace(prepend_scheme="always"))
    out["uni"] = with_added(uni, [added("<unk>"), added("<s>"), added("</s>")], pre_tokenizer=meta("always", True), decoder=meta("always", True),
                            post_processor=template("A", "</s>", ids=sp_ids))
    more = copy.deepcopy(uni)
    more["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    more["model"]["byte_fallback"] = True
    out["uni_bytes"] = with_added(more, [added("<unk>"), added("<s>"), added("</s>")], normalizer=legacy, pre_tokenizer=None, decoder=llama_decoder)
    return out


def tokenize_lines(name, tokenizer, rng):
    for text in TEXTS + [random_text(rng) for _ in range(6)]:
        for special in (True, False) if text in TEXTS[:3] + TEXTS[15:17] else (True,):
            try:
                ids = tokenizer.encode(text, add_special_tokens=special).ids
            except BaseException:
                continue
            yield {"tokenizer": name, "text": text, "add_special_tokens": special, "ids": ids}


def random_text(rng):
    words = [w for t in TEXTS for w in t.split(" ")]
    return "".join(rng.choice(words) + rng.choice(["", " ", "  ", "\n"]) for _ in range(rng.randint(2, 9)))


def detokenize_lines(name, decode, size, bytes_from, rng):
    for i in range(14):
        pool = range(bytes_from, bytes_from + 256) if i % 2 else range(size + 2)
        ids = [rng.choice(pool) for _ in range(rng.randint(0, 7))]
        for skip in (True, False):
            try:
                yield {"tokenizer": name, "ids": ids, "skip_special_tokens": skip, "text": decode(ids, skip)}
            except BaseException:
                continue


def main():
    parser = argparse.ArgumentParser()
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", default=root / "tests/data/text", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.out / "tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    tokenize, detokenize, regex = [], [], []
    for name, j in fixtures(folder).items():
        (folder / f"{name}.json").write_text(json.dumps(j, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        tokenizer = Tokenizer.from_str(json.dumps(j))
        tokenize += tokenize_lines(name, tokenizer, rng)
        size = tokenizer.get_vocab_size()
        odd = {t["id"] for t in j["added_tokens"] if t["normalized"]}
        keep = lambda ids: [i for i in ids if i not in odd]
        detokenize += detokenize_lines(name, lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip), size, 3 if name.startswith("sp") else 0, rng)
        detokenize = [d for d in detokenize if keep(d["ids"]) == d["ids"] or d["tokenizer"] != name]
    for name, options in {"spm_bpe": dict(model_type="bpe", split_digits=True), "spm_unigram": dict(model_type="unigram", remove_extra_whitespaces=False),
                          "spm_plain": dict(model_type="bpe", add_dummy_prefix=False, user_defined_symbols=["<mask>"])}.items():
        kind = options.pop("model_type")
        model = train_sentencepiece(kind, normalization_rule_name="identity", **options)
        (folder / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        for text in TEXTS:
            if "\u0000" in text:
                continue
            for special in (True, False):
                tokenize.append({"tokenizer": name, "text": text, "add_special_tokens": special, "ids": processor.encode(text, add_bos=special)})
        for d in detokenize_lines(name, lambda ids, skip: processor.decode(ids), processor.get_piece_size() - 2, 3, rng):
            if d["skip_special_tokens"]:
                detokenize.append(d)
    for pattern in PATTERNS:
        for text in PATTERN_TEXTS:
            pieces = lambda behavior: [s for s, _ in pre_tokenizers.Split(Regex(pattern), behavior).pre_tokenize_str(text)]
            regex.append({"pattern": pattern, "text": text, "isolated": pieces("isolated"), "removed": pieces("removed")})
    for file, lines in (("tokenize", tokenize), ("detokenize", detokenize), ("regex", regex)):
        (args.out / f"{file}.jsonl").write_text("".join(json.dumps(l, ensure_ascii=True, separators=(",", ":")) + "\n" for l in lines))
        print(f"{file}.jsonl: {len(lines)} lines")


if __name__ == "__main__":
    main()
