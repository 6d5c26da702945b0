#!/usr/bin/env python3
"""Writes src/text/unicode_data.inc: the reference's view of Unicode as compact tables.

The reference (the `tokenizers` package: its Oniguruma, Rust's std and the regex crate) mixes several Unicode
versions, so each table is read off the reference itself, by asking it about every code point; no file of anybody
is copied. `--check FILE` compares the tables with a unicode_classes.json instead of writing.

usage: unicode_tables.py [--out src/text/unicode_data.inc] [--check unicode_classes.json]
needs: tokenizers 0.23.3"""
import argparse
import json
import pathlib
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Cn Cc Cf Cs Co Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting
Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet
Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()
BINARY = ["Emoji", "Emoji_Presentation", "Extended_Pictographic", "Ideographic"]


def members(pattern):
    """The code points that the regex engine puts in a class."""
    kept = set(normalizers.Replace(Regex(pattern), "").normalize_str(TEXT))
    return {c for c in CODE_POINTS if chr(c) not in kept}


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def removed_by(pre_tokenizer):
    """What a splitting pre-tokenizer with behaviour "removed" takes away."""
    kept = set("".join(s for s, _ in pre_tokenizer.pre_tokenize_str(TEXT)))
    return {c for c in CODE_POINTS if chr(c) not in kept}


def isolated_by_digits():
    """Code points that Digits(individual) puts alone: letters on both sides show it."""
    out = set()
    pre = pre_tokenizers.Digits(individual_digits=True)
    for lo in range(0, len(CODE_POINTS), 4096):
        chunk = CODE_POINTS[lo : lo + 4096]
        text = "".join("a" + chr(c) for c in chunk) + "a"
        for s, _ in pre.pre_tokenize_str(text):
            if len(s) == 1 and s != "a":
                out.add(ord(s))
    return out


def case_orbits(candidates):
    """Sets of characters that (?i:) takes for one another."""
    parent = {}

    def find(c):
        while parent.setdefault(c, c) != c:
            c = parent[c]
        return c

    text = "\n".join(map(chr, candidates))  # apart, or U+FB05 would take "st" for itself
    for c in candidates:
        left = normalizers.Replace(Regex("(?i:\\x{%X})" % c), "").normalize_str(text)
        if len(left) == len(text) - 1:
            continue
        for d in set(text) - set(left):
            parent[find(ord(d))] = find(c)
    groups = {}
    for c in list(parent):
        groups.setdefault(find(c), set()).add(c)
    return sorted(sorted(g) for g in groups.values() if len(g) > 1)


def script_classes():
    """UnicodeScripts' classes: 0 = joins anything, equal numbers stay in one piece. Read off its splits."""
    pre = pre_tokenizers.UnicodeScripts()

    def joins(letter):
        """Code points that no border separates from `letter`."""
        pieces = pre.pre_tokenize_str("".join(letter + chr(c) for c in CODE_POINTS) + letter)
        inside = set()
        for s, _ in pieces:
            inside |= {ord(c) for c in s[1:-1] if c != letter}
        return inside

    anything = joins("a") & joins("\u4e00")  # joins anything, and is lost where it stands first
    reps, of = [], {c: 0 for c in anything}
    for run, _ in pre.pre_tokenize_str("".join(chr(c) for c in CODE_POINTS if c not in anything)):
        for i, rep in enumerate(reps):
            if len(pre.pre_tokenize_str(rep + run[0])) == 1:
                break
        else:
            i = len(reps)
            reps.append(run[0])
        of |= {ord(c): i + 1 for c in run}
    return of


def emit(out, name, kind, values, comment):
    out.append(f"// {comment}\ninline constexpr {kind} {name}[] = {{")
    line = "   "
    for v in values:
        item = f" {v},"
        if len(line) + len(item) > 108:
            out.append(line)
            line = "   "
        line += item
    out.append(line)
    out.append("};\n")


def emit_ranges(out, name, points, comment):
    flat = []
    for a, b in ranges(points):
        flat += [f"0x{a:X}", f"0x{b:X}"]
    emit(out, name, "std::uint32_t", flat or ["1", "0"], comment + " (first, last)")


def emit_bert_accents(out, nonspacing):
    """What strip_accents of BertNormalizer takes away: not the characters of StripAccents."""
    kept = set(normalizers.BertNormalizer(False, False, True, False).normalize_str(TEXT))
    gone = {c for c in CODE_POINTS if chr(c) not in kept} - {c for c in CODE_POINTS if normalizers.NFD().normalize_str(chr(c)) != chr(c)}
    emit_ranges(out, "kBertAccentsMore", gone - nonspacing, "BertNormalizer's accents beyond Mn")
    emit_ranges(out, "kBertAccentsLess", nonspacing - gone, "Mn that BertNormalizer leaves")


def runs(of, default):
    previous, out = None, []
    for c in range(0x110000):
        v = of.get(c, default)
        if v != previous:
            out.append((c, v))
            previous = v
    return out


def main():
    parser = argparse.ArgumentParser()
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", default=root / "src/text/unicode_data.inc", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    args = parser.parse_args()

    category = {c: "Cn" for c in CODE_POINTS}
    for name in CATEGORIES[1:]:
        if name != "Cs":
            for c in members(rf"\p{{{name}}}"):
                category[c] = name
    category |= {c: "Cs" for c in range(0xD800, 0xE000)}
    of_category = lambda *names: {c for c in CODE_POINTS if category[c] in names or category[c][0] in names}

    if args.check:
        theirs, bad = json.loads(args.check.read_text()), 0
        for name, spec in theirs.items():
            if name.startswith("\\p{"):
                ours = of_category(name[3:-1])
            elif name == "Digits pre-tokenizer":
                ours = isolated_by_digits()
            elif name == "Punctuation pre-tokenizer":
                ours = removed_by(pre_tokenizers.Punctuation("removed"))
            elif name == "StripAccents normalizer":
                kept = set(normalizers.StripAccents().normalize_str(TEXT))
                ours = {c for c in CODE_POINTS if chr(c) not in kept}
            elif name.startswith("\\"):
                ours = members(name)
            else:
                ours = removed_by(pre_tokenizers.WhitespaceSplit())
            same = ranges(ours) == spec["ranges"]
            bad += not same
            print(f"{name}: {len(ours)} code points, {'equal' if same else 'DIFFERENT'}")
        sys.exit(bad > 0)

    script_of, script_names = {}, []
    for name in SCRIPTS:
        try:
            found = members(rf"\p{{{name}}}")
        except Exception:
            continue
        script_names.append(name)
        script_of |= {c: len(script_names) for c in found}

    alphabetic, upper, lower = members(r"\p{Alphabetic}"), members(r"\p{Uppercase}"), members(r"\p{Lowercase}")
    word = members(r"\w")
    posix_word = alphabetic | of_category("M", "Nd", "Pc")
    assert members(r"[[:word:]]") == posix_word and posix_word <= word
    assert members(r"[[:punct:]]") == of_category("P", "S") and members(r"[[:digit:]]") == of_category("Nd")
    assert members(r"[[:alnum:]]") == alphabetic | of_category("Nd") and members(r"[[:upper:]]") == upper
    space = members(r"\s")
    assert space == members(r"[[:space:]]")
    assert members(r"[[:cntrl:]]") == of_category("Cc"), "cntrl"
    assert members(r"[[:graph:]]") == {c for c in CODE_POINTS if category[c] not in ("Cc", "Cn", "Cs")} - space, "graph"
    blank = members(r"[[:blank:]]")
    assert blank == of_category("Zs") | {9}, "blank"
    assert members(r"[[:print:]]") == (members(r"[[:graph:]]") | of_category("Zs")), "print"
    rust_word = {c for c in CODE_POINTS if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c) + "a")) == 1}

    digits = isolated_by_digits()
    punctuation = removed_by(pre_tokenizers.Punctuation("removed"))
    kept = set(normalizers.StripAccents().normalize_str(TEXT))
    accents = {c for c in CODE_POINTS if chr(c) not in kept}
    lowercase = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in CODE_POINTS}
    lowercase = {c: s for c, s in lowercase.items() if s != chr(c)}
    candidates = sorted(of_category("Lu", "Ll", "Lt", "Nl") | set(lowercase) | {ord(s[0]) for s in lowercase.values()}
                        | {0x345} | set(range(0x24B6, 0x24EA)))
    orbits = case_orbits(candidates)

    canonical = {c for c in CODE_POINTS if normalizers.NFD().normalize_str(chr(c)) != chr(c)}
    compatible = {c for c in CODE_POINTS if normalizers.NFKD().normalize_str(chr(c)) != chr(c)} - canonical
    for c in canonical:
        assert normalizers.NFD().normalize_str(chr(c)) == unicodedata.normalize("NFD", chr(c)), hex(c)
    for c in compatible:
        assert normalizers.NFKD().normalize_str(chr(c)) == unicodedata.normalize("NFKD", chr(c)), hex(c)
    hangul = set(range(0xAC00, 0xD7A4))
    marks = set()  # characters with a combining class: a neighbour of another class changes places with them
    nfd = normalizers.NFD().normalize_str
    for c in CODE_POINTS:
        k = unicodedata.combining(chr(c))
        if k:
            low, high = ("\u0334", "\u0345")  # classes 1 and 240
            s = "a" + chr(c) + low if k > 1 else "a" + high + chr(c)
            if nfd(s) != s:
                marks.add(c)
    composed = {c for c in canonical - hangul if len(nfd(chr(c))) > 1
                and normalizers.NFC().normalize_str(chr(c)) == chr(c)}
    excluded = {c for c in canonical - hangul if len(nfd(chr(c))) > 1} - composed
    bert_han = {c for c in CODE_POINTS if c > 0xFF
                and normalizers.BertNormalizer(False, True, False, False).normalize_str(chr(c)) == f" {chr(c)} "}
    bert_gone = {c for c in CODE_POINTS
                 if normalizers.BertNormalizer(True, False, False, False).normalize_str(chr(c)) == ""}
    bert_space = {c for c in CODE_POINTS if c != 32
                  and normalizers.BertNormalizer(True, False, False, False).normalize_str(chr(c)) == " "}
    nmt = {c: normalizers.Nmt().normalize_str(chr(c)) for c in CODE_POINTS}
    nmt_gone = {c for c, s in nmt.items() if s == ""}
    nmt_space = {c for c, s in nmt.items() if s == " " and c != 32}
    classes = script_classes()

    out = ["// Made by tools/unicode_tables.py from the reference's own answers; not to be edited.",
           "// Packed runs: a value holds from its code point up to the next entry.\n"]
    names = ", ".join(f'"{n}"' for n in CATEGORIES)
    out.append(f"inline constexpr const char* kCategoryNames[] = {{{names}}};\n")
    emit(out, "kCategoryRuns", "std::uint32_t",
         [f"0x{c << 5 | CATEGORIES.index(v):X}" for c, v in runs(category, "Cn")], "first << 5 | category")
    out.append("inline constexpr const char* kScriptNames[] = {")
    out += [f'    "{n}",' for n in ["Unknown"] + script_names] + ["};\n"]
    emit(out, "kScriptRuns", "std::uint32_t", [f"0x{c << 8 | v:X}" for c, v in runs(script_of, 0)], "first << 8 | script")
    emit_ranges(out, "kOtherAlphabetic", alphabetic - of_category("L", "Nl"), "Alphabetic beyond L and Nl")
    assert of_category("L", "Nl") <= alphabetic and of_category("Lu") <= upper and of_category("Ll") <= lower
    emit_ranges(out, "kOtherUppercase", upper - of_category("Lu"), "Uppercase beyond Lu")
    emit_ranges(out, "kOtherLowercase", lower - of_category("Ll"), "Lowercase beyond Ll")
    emit_ranges(out, "kSpace", space, "\\s of every engine involved")
    for name in BINARY:
        emit_ranges(out, "k" + name.replace("_", ""), members(rf"\p{{{name}}}"), f"\\p{{{name}}}")
    emit_ranges(out, "kWordMore", word - posix_word, "\\\\w beyond [[:word:]], which is Alphabetic, M, Nd and Pc")
    emit_ranges(out, "kRustWordMore", rust_word - posix_word, "\\w of single_word and Whitespace beyond [[:word:]]")
    assert posix_word <= rust_word, "the regex crate knows fewer word characters"
    emit_ranges(out, "kNumericMore", digits - of_category("N"), "Digits beyond N")
    assert of_category("N") <= digits
    emit_ranges(out, "kPunctuation", punctuation, "Punctuation")
    emit_ranges(out, "kAccentsMore", accents - of_category("Mn"), "StripAccents beyond Mn")
    emit_ranges(out, "kAccentsLess", of_category("Mn") - accents, "Mn that StripAccents leaves")
    flat = []
    for c, s in sorted(lowercase.items()):
        if len(s) == 1:
            flat += [f"0x{c:X}", f"0x{ord(s):X}"]
        else:
            print("lowercase of", hex(c), [hex(ord(x)) for x in s])
    emit(out, "kLowercase", "std::uint32_t", flat, "from, to; U+0130 (two characters) stands in the code")
    flat = []
    for orbit in orbits:
        flat += [f"0x{c:X}" for c in orbit] + ["0"]
    emit(out, "kCaseOrbits", "std::uint32_t", flat, "characters that (?i) takes for one another, 0 between the groups")
    emit_ranges(out, "kCanonical", canonical - hangul, "changed by NFD, without Hangul syllables")
    emit_ranges(out, "kCompatible", compatible, "changed by NFKD only")
    emit_ranges(out, "kCombining", marks, "combining class other than 0")
    emit_ranges(out, "kNotComposed", excluded, "pairs that NFC does not put together")
    emit_ranges(out, "kBertIdeograph", bert_han, "BertNormalizer puts spaces around")
    emit_ranges(out, "kBertRemoved", bert_gone, "BertNormalizer removes")
    emit_ranges(out, "kBertSpace", bert_space, "BertNormalizer makes a space")
    emit_ranges(out, "kNmtRemoved", nmt_gone, "Nmt removes")
    emit_ranges(out, "kNmtSpace", nmt_space, "Nmt makes a space")
    emit(out, "kScriptClassRuns", "std::uint32_t",
         [f"0x{c << 8 | v:X}" for c, v in runs(classes, 0)], "first << 8 | class of UnicodeScripts, 0 joins anything")
    emit_bert_accents(out, of_category("Mn"))
    args.out.write_text("\n".join(out).rstrip() + "\n")
    print(f"{args.out}: {args.out.stat().st_size} bytes, {len(script_names)} scripts, {len(orbits)} case orbits, "
          f"{max(classes.values())} script classes")


if __name__ == "__main__":
    main()
