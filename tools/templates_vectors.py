#!/usr/bin/env python3
"""Writes tests/data/templates/cases.jsonl: chat templates of our own with what transformers and jinja2 make of them.

usage: tools/templates_vectors.py > tests/data/templates/cases.jsonl
Needs transformers and jinja2 (the tests that read the file need neither). First hand-written ones, then some of the grammar of templates_differential.py."""
import json
import pathlib
import random

here = pathlib.Path(__file__).resolve().parent
source = (here / "templates_differential.py").read_text()
grammar = {"__name__": "grammar"}
exec(compile(source.replace("\nmain()\n", "\n"), "templates_differential.py", "exec"), grammar)

TALK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Two birds?"}, {"role": "assistant", "content": "Three."}, {"role": "user", "content": "Why?"}]
CALLS = [{"role": "user", "content": "weather"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "sky", "arguments": {"at": "Zürich", "days": 2}}}]},
         {"role": "tool", "content": "rain", "tool_call_id": "c1"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "left"}, {"type": "image"}, {"type": "text", "text": "right"}]}]
TOOLS = [{"type": "function", "function": {"name": "sky", "description": "Looks up", "parameters": {"type": "object", "properties": {"at": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}}, "required": ["at"]}}}]

WRITTEN = [
    # shapes of common templates
    ("chatml", "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}", TALK),
    ("header", "{% set loop_messages = messages %}{% for m in loop_messages %}{% set c = '<|h|>' + m['role'] + '<|/h|>\\n\\n'+ m['content'] | trim + '<|eot|>' %}{% if loop.index0 == 0 %}{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}{{ '<|h|>assistant<|/h|>\\n\\n' }}", TALK),
    ("turns", "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}", TALK),
    ("alternate", "{% for m in messages[1:] %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ '[INST] ' ~ m.content ~ ' [/INST]' if m.role == 'user' else ' ' ~ m.content ~ eos_token }}{% endfor %}", TALK),
    ("calls", "{%- for m in messages %}\n{%- if m.tool_calls %}\n{%- for c in m.tool_calls %}\n<call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</call>\n{%- endfor %}\n{%- else %}\n{{ m.role }}: {{ m.content }}\n{%- endif %}\n{%- endfor %}", CALLS),
    ("tools", "{% if tools %}{% for t in tools %}{{ t | tojson(indent=4) }}\n{% for k, v in t.function.parameters.properties.items() %}- {{ k }} ({{ v.type }}{% if k in t.function.parameters.required %}, required{% endif %}{{ ', one of ' ~ v.enum | join('/') if v.enum }})\n{% endfor %}{% endfor %}{% endif %}", TALK),
    ("parts", "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}", PARTS),
    ("namespace", "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.n = ns.n + loop.index %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.n }}", TALK),
    ("recursive macro", "{% macro show(v, depth=0) %}{% if v is mapping %}{% for k, x in v | dictsort %}{{ '  ' * depth }}{{ k }}:\n{{ show(x, depth + 1) }}{% endfor %}{% elif v is iterable and v is not string %}{% for x in v %}{{ show(x, depth + 1) }}{% endfor %}{% else %}{{ '  ' * depth }}{{ v }}\n{% endif %}{% endmacro %}{{ show(messages) }}", CALLS),
    # scopes
    ("late set", "{% for i in [1] %}{{ add_generation_prompt }}{% endfor %}{% set add_generation_prompt = 'late' %}{{ add_generation_prompt }}", TALK),
    ("late set in branch", "{{ bos_token }}{% if true %}{% set bos_token = 'x' %}{% endif %}{{ bos_token }}", TALK),
    ("set only in branch", "{% if false %}{% set bos_token = 'x' %}{% endif %}{{ bos_token }}", TALK),
    ("branches in loops", "{% set x = 0 %}{% for i in range(3) %}{% if i == 1 %}{% set x = i %}{% elif i == 2 %}{{ x }}{% else %}{{ x }}{% endif %}[{{ x }}]{% endfor %}{{ x }}", TALK),
    ("closure", "{% set a = 1 %}{% macro f() %}{{ a }}{{ b }}{% endmacro %}{% set a = 2 %}{{ f() }}{% set b = 3 %}{{ f() }}", TALK),
    ("with", "{% with x = 1, y = x %}{{ x }}{{ y is defined }}{% endwith %}{{ x is defined }}", TALK),
    ("blocks", "{% set v = 1 %}{% block one %}<{{ v }}{{ bos_token }}>{% endblock %}{{ self.one() }}", TALK),
    ("nested loops", "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{{ i }}{{ j }},{% endfor %}{{ loop.last }};{% endfor %}", TALK),
    ("loop tools", "{% for m in messages %}{{ loop.cycle('odd', 'even') }}{{ loop.changed(m.role) }}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if loop.nextitem is defined }};{% endfor %}", TALK),
    ("tree", "{% for x in [[1, [2, [3]]], 4] recursive %}{{ '(' ~ loop(x) ~ ')' if x is sequence else x }}@{{ loop.depth }} {% endfor %}", TALK),
    ("filtered pairs", "{% for k, v in [['a', 1], ['b', 2]] if v > 0 %}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", TALK),
    # texts
    ("cases", "{{ 'ΌΣΟΣ ΑΣ.Σ'.lower() }}|{{ 'ŉ ﬃ ǆ ß'.upper() }}|{{ 'ŉ ﬃ ǆ ß'.title() }}|{{ 'ǅ'.swapcase() }}|{{ 'ﬃ ß İ'.casefold() }}|{{ \"l'été d'où\" | title }}", TALK),
    ("repr", "{{ ['\\u00ad\\u0378', '\\U0001f97e', '\\x7f', \"'\", '\"', '\\'\"', '\\\\', 1.0, 1e16, 1e-5, none, (1,), {}, {'a': []}] }}", TALK),
    ("numbers", "{{ 1e15 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 0.1 + 0.2 }} {{ 5 / 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 70 }} {{ 2 ** 70 // 3 ** 5 }} {{ -(2 ** 70) % 1000 }} {{ 7.5 // -2 }} {{ -7.5 % 2 }} {{ 1e308 * 10 }} {{ 2 ** -2 }} {{ (2 ** 70) / 3 }} {{ 10 ** 25 == 1e25 }}", TALK),
    ("rounds", "{{ 0.5 | round }} {{ 1.5 | round }} {{ 2.5 | round }} {{ 2.675 | round(2) }} {{ -0.4 | round(0, 'ceil') }} {{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ 1e300 | round(2) }} {{ 0.15 | round(1) }} {{ 1234.5678 | round(-2) }} {{ 1e40 | round(-1) }} {{ 1e40 | round(-30) }} {{ -25.0 | round(-1) }} {{ 25.000001 | round(-1) }} {{ 35.0 | round(-1) }} {{ 1.5e308 | round(-307) }} {{ 4e307 | round(-308) }} {{ 6e307 | round(-308) }} {{ 7.0 | round(-400) }} {{ -15 | round(-1) }} {{ 8.5e22 | round(-22) }}", TALK),
    ("percent", "{{ '%5.1f|%-5d|%05d|%+d|% d|%x|%#X|%o|%e|%g|%s|%r|%c|%%|%5s|%.2s' % (3.14159, 42, -42, 5, 5, 255, 255, 8, 12345.678, 1e-10, 'é', 'é', 'c', 'ab', 'xyz') }}|{{ '%(a)s-%(b)03d' % {'a': 1, 'b': 2} }}", TALK),
    ("formats", "{{ '{:>8}|{:*^9}|{:<4}|{:+}|{:,}|{:_}|{:.3f}|{:e}|{:g}|{:%}|{:x}|{:#b}|{:08.2f}|{:,.2f}|{!r:>6}|{:c}'.format('é', 'mid', 'l', 5, 1234567, 1234567, 2.0005, 12345.678, 1e20, 0.256, 255, 5, -3.14159, 1234567.891, 'q', 65) }}{{ '{0[k]}{1.role}{a}'.format({'k': 1}, messages[0], a=2) }}", TALK),
    ("splits", "{{ ' a  b c '.split() }}{{ ' a  b c '.split(none, 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\\r\\nb\\x1cc\\u2028d\\n'.splitlines() }}{{ 'abc'.partition('b') }}{{ 'a-b-c'.rpartition('-') }}", TALK),
    ("strips", "{{ '\\u2003\\x1f x \\u00a0' | trim }}|{{ 'xxhixx'.strip('x') }}|{{ 'éàhié'.lstrip('àé') }}|{{ '  a'.rstrip() }}|{{ 'prefix'.removeprefix('pre') }}|{{ 'aaa'.replace('a', 'bb', 2) }}|{{ 'ab'.replace('', '.') }}", TALK),
    ("json", "{{ {'é': [1, 2.5, none, true, {'x': '\\n\\t\\u2028\"'}], 1: 2, none: 3, 2.5: 4} | tojson }}{{ [1, [], {}, [2]] | tojson(indent=1) }}{{ 'é🥾\\x7f' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", TALK),
    ("white space", "a\n   {%- if true %}\n   b\n   {% endif -%}   \n\n  c\n\t{# comment #}\nd {{- ' e ' -}} f\n{% raw %} {{ raw }} {% endraw %}\n  {%+ if true +%}\n x{% endif %}\n\n", TALK),
    ("crlf", "a\r\n{% if true %}\r\nb\rc{% endif %}\r\n", TALK),
    ("dates", "{{ strftime_now('%a %A %b %B %c %d %D %e %F %G %H %I %j %k %l %m %M %n %p %P %r %R %S %t %T %u %U %V %w %W %x %X %y %Y %Z %% %-d %-H %_d %^a %5d %Q') }}", TALK),
    ("markup", "{{ ('<a>' | safe) + '<b>' }}{{ '<b>' ~ ('<a>' | safe) }}{{ ('<' | e) ~ ('<' | e | e) }}{{ ('x' | safe).join(['<', '>']) }}{{ '<a href=\"q\">' | striptags }}{{ {'a': 1, 'b': none} | xmlattr }}", TALK),
    ("sequences", "{{ [3, 1, 2] | sort(reverse=true) }}{{ ['b', 'A', 'c'] | sort }}{{ ['a', 'A', 'b'] | unique | list }}{{ [1, 2, 3, 4, 5] | batch(2, 0) | list }}{{ [1, 2, 3, 4, 5] | slice(3) | list }}{{ messages | groupby('role') | map('first') | list }}{{ messages | map(attribute='content') | map('length') | sum }}{{ messages | selectattr('role', 'in', ['user']) | map(attribute='content') | join('+') }}", TALK),
    ("words", "{{ 'the quick brown fox jumps' | wordwrap(10) }}|{{ 'the quick brown fox' | truncate(12) }}|{{ 'the quick brown fox' | truncate(12, true, '…') }}|{{ 'a b-c d' | wordcount }}|{{ 'a\\nb' | indent(3, first=true) }}|{{ 123456789 | filesizeformat }}|{{ 'a b/ü' | urlencode }}", TALK),
    ("wraps", "{% for s in ['a,b-TrueHello World', 'look-out -- over', 'well--known x---y ---', 'a-b-c-d-e 1-2-3', 'ab-cd-é', '-- ab -b', 'ab \\u00a0 cd\\u2003', 'abc  defghijkl', '--------', '', ' \\n a', '-a-longword-x'] %}{% for w in [1, 3, 5, 9] %}{{ [s | wordwrap(w), s | wordwrap(w, false), s | wordwrap(w, true, '|', false), s | wordwrap(w, break_on_hyphens=1)] }}{% endfor %}{% endfor %}", TALK),
    ("tests", "{{ 1 is odd }}{{ 4 is divisibleby 2 }}{{ 'a' is in 'abc' }}{{ 'A' is upper }}{{ none is none }}{{ x is undefined }}{{ [] is sequence }}{{ {} is mapping }}{{ 1 is number }}{{ true is integer }}{{ 1.5 is float }}{{ messages is iterable }}{{ range is callable }}{{ 1 is sameas 1 }}{{ 2 is ge 2 }}{{ 'upper' is filter }}{{ 'odd' is test }}", TALK),
    # faults
    ("undefined attribute", "{{ messages[0].nope.x }}", TALK), ("formats nothing of an undefined", "[{{ '%%' % messages[9] }}{{ 'x' % nope }}{{ 'x' % [1] }}]", TALK), ("slices a number in a choice", "{% set b = [(-1)[1:] if 'a', not messages] %}", TALK),
    ("tests slices of numbers", "{% set a = [1[1:] is string, messages] %}{{ a[0] }}{% if 2.5[1:] is not defined %}y{% endif %}{{ ('x' is string)[:1] }}", TALK),
    ("prints functions", "{% macro f() %}{% endmacro %}{% for v in [messages[0].items, 'a'.upper, 'a'.format, ('a' | safe).upper, (1, 2).count, [1].index, (7).bit_length, 1.5.hex, true.bit_length, range, namespace, dict, cycler, joiner, raise_exception, strftime_now, lipsum, f] %}{{ (v | string).split(' at 0x')[0] }};{% endfor %}{% for x in [1] %}{{ loop.cycle }}{{ loop.changed }}{% endfor %}{{ 'nan' | float | filesizeformat }}{{ 'nan' | float | filesizeformat(true) }}", TALK),
    ("prints slices of numbers", "[{{ (-1)[1:] if 'a' }}{{ [1[1:]] }}{{ 1[1:] | default('D') }}{{ (1[1:] or 'e') ~ 'f' }}]", TALK),
    ("formats an undefined", "{{ '%d' % messages[0].days }}", TALK), ("formats an undefined attribute", "{{ '%5.1f' % nope }}", TALK), ("formats an undefined in hex", "{{ '%x' % nope }}", TALK),
    ("round overflows", "{{ 1.7e308 | round(-308) }}", TALK), ("undefined call", "{{ nope() }}", TALK), ("unknown filter", "a\nb {{ 1 | nope }}", TALK), ("unknown tag", "a\n{% nope %}", TALK),
    ("open block", "{% for m in messages %}\n{{ m }}\n", TALK), ("string plus int", "{{ 'a' + 1 }}", TALK), ("append", "{% set l = [] %}{{ l.append(1) }}", TALK), ("private", "{{ messages.__class__.__base__ }}", TALK),
    ("big range", "{{ range(100001) | length }}", TALK), ("break outside", "{% if true %}{% break %}{% endif %}", TALK), ("duplicate block", "{% block a %}{% endblock %}{% block a %}{% endblock %}", TALK),
    ("unbalanced", "{{ (1, [2) }}", TALK), ("macro arguments", "{% macro f(a) %}{% endmacro %}{{ f(1, 2, 3) }}", TALK), ("none loop", "{% for d in documents %}{% endfor %}", TALK), ("no loader", "{% include 'x' %}", TALK),
]


def main():
    cases = [{"id": name, "template_text": text, "messages": messages, "add_generation_prompt": True, "kwargs": {}, "bos_token": "<s>", "eos_token": "</s>", **({"tools": TOOLS} if name == "tools" else {})}
             for name, text, messages in WRITTEN]
    rng = random.Random(2026)
    generated = 0
    while generated < 240:
        c = grammar["case"](rng)
        if len(c["template_text"]) > 700:
            continue
        cases.append({"id": f"grammar {generated}", **c})
        generated += 1
    for c, r in zip(cases, grammar["reference"](cases)):
        if "0x7f" in r.get("text", "").lower():
            continue
        if "error" in r:
            kind, words = r["error"].split(": ", 1)
            c["error_class"] = kind
            c["error"] = words if kind == "TemplateError" else kind
        else:
            c["expected"] = r["text"]
        print(json.dumps(c, ensure_ascii=False))


main()
