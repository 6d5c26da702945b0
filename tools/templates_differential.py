#!/usr/bin/env python3
"""Chat templates from a small grammar of ours, through `llmgen render --jsonl` and through jinja2 as transformers sets it up.

usage: LLMGEN=path/to/llmgen tools/templates_differential.py [--seed N] [--count N] [--show N]
The reference needs transformers and jinja2; the product needs neither. Exit status 1 where any of the templates differs: in its text, or in whether it is an error."""
import argparse
import collections
import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

NAMES = ["a", "b", "n", "s", "xs", "d", "nothing", "messages", "tools", "flag", "f", "big", "mixed", "rows"]
KEYS = ["role", "content", "name", "k", "items", "x", "0", "type", "nope", "b"]
STRINGS = ["", "a", "abc", " a b ", "x,y,,z", "Hello World", "it's", 'say "hi"', "é🥾ß", "İΑΣ", "<b>&", "\\n", "a\\nb\\n", "\\t x", "12", "-3.5",
           "1_000", "0x1F", "nan", "%s", "%d", "%5.2f|", "{}", "{0}{1}", "{:>6}", "they're o'neil-x", "\\u00a0x\\u3000", "ab" * 6, "{{", "%}", "look-out--over -b", "--a-b- well-known"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('a')", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "split()", "split(',')",
           "split('a', 1)", "rsplit(' ', 1)", "splitlines()", "replace('a', 'XY')", "replace('', '-')", "startswith('a')", "endswith('z')", "find('a')",
           "index('a')", "count('a')", "partition(',')", "rpartition('a')", "isdigit()", "isalpha()", "isupper()", "islower()", "isspace()", "istitle()",
           "isalnum()", "isnumeric()", "zfill(6)", "center(9)", "ljust(5, '.')", "rjust(7)", "expandtabs(4)", "casefold()", "removeprefix('a')",
           "removesuffix('z')", "join(['p', 'q'])", "format(1, 'x')", "get('role')", "get('zz', 3)", "items()", "keys()", "values()", "copy()",
           "append(1)", "pop()", "index(1)", "bit_length()", "is_integer()", "nope()", "encode", "isidentifier()", "find('b', 1)", "count('')"]
FILTERS = ["trim", "length", "upper", "lower", "title", "capitalize", "string", "list", "first", "last", "int", "float", "abs", "round", "round(1)",
           "round(1, 'floor')", "round(-1)", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "join", "join(', ')",
           "join('-', attribute='role')", "default('D')", "default('D', true)", "d", "reverse", "sort", "sort(reverse=true)", "sort(attribute='role')",
           "sort(case_sensitive=true)", "unique", "min", "max", "sum", "items", "dictsort", "dictsort(by='value')", "safe", "e", "escape", "forceescape",
           "replace('a', 'b')", "indent(2)", "indent(3, true)", "indent(2, blank=true)", "wordcount", "truncate(6)", "truncate(5, true, '..')", "center(11)",
           "map('upper')", "map(attribute='role')", "map(attribute='x', default='?')", "map('int')", "select", "select('odd')", "select('string')",
           "reject('none')", "reject", "selectattr('role', 'equalto', 'user')", "selectattr('role')", "rejectattr('nope')", "batch(2)", "slice(2)",
           "batch(3, 'f')", "groupby('role')", "urlencode", "format(1)", "count", "attr('x')", "wordwrap(5)", "striptags", "filesizeformat", "xmlattr",
           "int(7)", "int(base=16)", "float(1.5)", "sum(start=3)", "map('trim')", "first", "nofilter"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence", "callable",
         "odd", "even", "divisibleby 2", "in [1, 'a']", "eq 1", "equalto('a')", "gt 1", "lower", "upper", "sameas none", "escaped", "notest", "ne 'a'",
         "in 'abc'", "lt 2"]
FORMATS = ["%s", "%r", "%d", "%5d", "%-6s|", "%05.1f", "%x", "%+d", "%e", "%g", "%c", "%%", "%.3s", "%i"]
SPECS = ["", ":>6", ":<6", ":^7", ":05d", ":.2f", ":,", ":x", ":#b", ":+", ":e", ":%", "!r", "!s", ":*^9", ":_", ":g", ":6.3", ":s", ":d"]


class Grammar:
    def __init__(self, rng):
        self.r = rng
        self.wildness = rng.choice([0, 0, 0.03, 0.3])

    def pick(self, xs):
        return self.r.choice(xs)

    def string(self):
        s = self.pick(STRINGS)
        return '"' + s.replace('"', '\\"') + '"' if "'" in s else "'" + s + "'"

    def number(self):
        return self.pick(["0", "1", "2", "3", "7", "-1", "-5", "10", "1.5", "0.1", "2.0", "1e3", "100", "2.675", "1e22", "12345678901234567890", "0.5"])

    def literal(self, depth):
        k = self.r.randrange(9)
        if k < 3:
            return self.string()
        if k < 6:
            return self.number()
        if k == 6:
            return self.pick(["true", "false", "none", "[]", "{}", "()"])
        if k == 7:
            return "[" + ", ".join(self.wild(depth - 1) for _ in range(self.r.randrange(4))) + "]"
        return "{" + ", ".join(self.pick(["'k'", "'x'", "1", "'b'", "none", "1.5", "true"]) + ": " + self.wild(depth - 1) for _ in range(self.r.randrange(4))) + "}"

    # Expressions of one type, which mostly have a value; `wild` ones are mostly faults.
    def str_(self, d):
        if d <= 0:
            return self.pick([self.string(), self.string(), "s", "s", "messages[0].role", "'é' ~ n"])
        x, i, l = lambda: self.str_(d - 1), lambda: self.int_(d - 1), lambda: self.list_(d - 1)
        w = lambda: self.wild(d - 1)
        k = self.r.randrange(24)
        simple = ["strip()", "lstrip()", "rstrip()", "strip('a')", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "replace('a', 'XY')", "replace('', '-')",
                  "zfill(6)", "center(9)", "ljust(5, '.')", "rjust(7)", "expandtabs(4)", "casefold()", "removeprefix('a')", "removesuffix('z')", "join(['p', 'q'])"]
        filters = ["trim", "upper", "lower", "title", "capitalize", "string", "safe", "e", "forceescape", "replace('a', 'b')", "indent(2)", "indent(3, true)", "indent(2, blank=true)",
                   "truncate(6)", "truncate(5, true, '..')", "center(11)", "urlencode", "wordwrap(5)", "striptags", "tojson", "tojson(ensure_ascii=true)", "reverse", "first", "last", "default('D')",
                   "wordwrap(7)", "wordwrap(3, false)", "wordwrap(4, break_on_hyphens=false)", "trim('x')", "replace('a', 'b', 1)", "default('D', true)", "join('-')", "list | join", "max", "min"]
        return [lambda: self.string(), lambda: f"{x()} + {x()}", lambda: f"({x()} ~ {self.any_(d - 1)})", lambda: f"({x()}).{self.pick(simple)}", lambda: f"({x()}) | {self.pick(filters)}",
                lambda: f"({x()})[{self.pick(['', '0', '1', '-3', '-1', 'n'])}:{self.pick(['', '1', '-1', '4', 'n'])}{self.pick(['', '', ':2', ':-1'])}]", lambda: f"({x()} if {self.bool_(d - 1)} else {x()})",
                lambda: f"({l()}) | join({self.pick(['', ', '.__repr__(), x()])})", lambda: f"({self.any_(d - 1)}) | string", lambda: f"({self.any_(d - 1)}) | tojson{self.pick(['', '(indent=2)', '(sort_keys=true)', '(separators=(chr, chr))'.replace('chr', self.string())])}",
                lambda: f"'%s|%5d|%-4s' % ({w()}, {i()}, {x()})", lambda: f"'%05.1f %x %r' % ({self.num_(d - 1)}, {self.pick(['0', '255', 'n'])}, {self.any_(d - 1)})",
                lambda: f"'{{}}-{{:>6}}-{{k!r}}'.format({self.any_(d - 1)}, {x()}, k={self.any_(d - 1)})", lambda: f"'{{:{self.pick(['5', '05', '+', ',', 'x', '.2f', 'e', '%', '^9', '_', '#b', 'g', '<4', '08.3f', '*>7', ',.1f'])}}}'.format({i()})",
                lambda: f"'{{:{self.pick(['5', '05', '+', ',', '.2f', 'e', '%', '^9', '_', 'g', '.3', '<4', '08.3f', '.0f', '.1', '*>7', ',.1f', 'G', '.10g'])}}}'.format({self.num_(d - 1)})",
                lambda: f"({x()}) * {self.pick(['0', '1', '2', 'n'])}", lambda: f"({x()}).split({self.pick(['', self.string(), repr(' ')])})[0]", lambda: f"({x()}) | default({x()}, true)",
                lambda: f"({x()}) | map('upper') | join('|')", lambda: f"({x()} or {x()})", lambda: f"({x()} and {x()})", lambda: f"({self.num_(d - 1)}) | filesizeformat{self.pick(['', '(true)'])}",
                lambda: f"({x()}) | format({self.any_(d - 1)})", lambda: f"strftime_now({self.string()} ~ '%d %b %j %U %p %-m')"][k]()

    def int_(self, d):
        if d <= 0:
            return self.pick(["0", "1", "2", "3", "7", "-1", "-5", "10", "n", "n", "12345678901234567890"])
        i = lambda: self.int_(d - 1)
        return self.pick([lambda: f"({i()} + {i()})", lambda: f"{i()} * {i()}", lambda: f"({i()} - {i()})", lambda: f"({i()}) // {self.pick(['2', '3', '-4', '7'])}", lambda: f"({i()}) % {self.pick(['2', '3', '-4', '7'])}",
                          lambda: f"({self.str_(d - 1)}) | length", lambda: f"({self.list_(d - 1)}) | length", lambda: f"({self.str_(d - 1)}) | int({i()})", lambda: f"({self.num_(d - 1)}) | int", lambda: f"-({i()})",
                          lambda: f"({i()}) | abs", lambda: f"({self.str_(d - 1)}).find({self.str_(0)})", lambda: f"({self.str_(d - 1)}).count({self.str_(0)})", lambda: f"({self.str_(d - 1)}) | wordcount",
                          lambda: f"({i()} if {self.bool_(d - 1)} else {i()})", lambda: f"({i()}) ** {self.pick(['0', '1', '2', '3'])}", lambda: f"({i()}) | round({self.pick(['-1', '0', '-2'])})"])()

    def num_(self, d):
        if d <= 0:
            return self.pick([self.number(), "f", "f", "0.5", "2.5", "-0.0", "1e16", "123456.789"])
        x = lambda: self.num_(d - 1)
        return self.pick([lambda: f"({x()} + {x()})", lambda: f"({x()} * {x()})", lambda: f"({x()} - {x()})", lambda: f"({x()}) / {self.pick(['2', '3', '-7.5', '1e3'])}", lambda: f"({x()}) // {self.pick(['2', '0.3', '-7.5'])}",
                          lambda: f"({x()}) % {self.pick(['2', '0.3', '-7.5'])}", lambda: f"({x()}) | round({self.pick(['', '1', '2', '-1', '3'])})", lambda: f"({x()}) | round(1, {self.pick([repr('floor'), repr('ceil')])})", lambda: f"({x()}) | abs",
                          lambda: self.int_(d - 1), lambda: f"({self.str_(d - 1)}) | float({x()})", lambda: f"({x()}) | float", lambda: f"{self.pick(['2', '0.5', '9'])} ** {self.pick(['0.5', '-1', '3', '-2.5'])}"])()

    def list_(self, d):
        if d <= 0:
            return self.pick(["xs", "[]", "[1, 2]", "['b', 'A']", "rows", "messages", "mixed", "(1, 'a')", "range(3) | list"])
        l, a = lambda: self.list_(d - 1), lambda: self.any_(d - 1)
        return self.pick([lambda: f"[{a()}, {a()}]", lambda: f"({l()})[{self.pick(['', '0', '1', '-2', '-1', 'n'])}:{self.pick(['', '1', '-1', '4', 'n'])}{self.pick(['', '', ':2', ':-1'])}]", lambda: f"({l()}) | list", lambda: f"({l()}) | reverse | list",
                          lambda: f"({self.str_(d - 1)}).split({self.pick(['', self.string(), repr(' ')])}{self.pick(['', ''])})", lambda: f"({self.str_(d - 1)}).rsplit({self.pick(['none', self.string(), repr(' ')])}, {self.pick(['0', '1', '2', '-1'])})",
                          lambda: f"({self.str_(d - 1)}).split({self.pick(['none', self.string(), repr(' ')])}, {self.pick(['0', '1', '2', '-1'])})",
                          lambda: f"({self.str_(d - 1)}).splitlines({self.pick(['', 'true'])})", lambda: f"({self.str_(d - 1)}) | list", lambda: f"({l()}) | map('string') | {self.pick(['sort', 'sort(case_sensitive=true)', 'sort(reverse=true)', 'unique | list', 'list'])}",
                          lambda: f"({l()}) | {self.pick(['select', 'reject'])}({self.pick(['', repr('string'), repr('none'), repr('number'), repr('mapping'), repr('iterable'), repr('eq') + ', 1', repr('in') + ', [1, 2]'])}) | list",
                          lambda: f"messages | {self.pick(['selectattr', 'rejectattr'])}('{self.pick(KEYS)}'{self.pick(['', ', ' + repr('defined'), ', ' + repr('equalto') + ', ' + repr('user'), ', ' + repr('string')])}) | list",
                          lambda: f"messages | map(attribute='{self.pick(KEYS)}'{self.pick(['', ', default=0'])}) | list", lambda: f"({l()}) | {self.pick(['batch', 'slice'])}({self.pick(['1', '2', '3'])}{self.pick(['', ', ' + repr('f')])}) | list",
                          lambda: f"messages | groupby('role')", lambda: f"d | dictsort{self.pick(['', '(reverse=true)', '(true)'])}", lambda: "d.items() | list", lambda: f"({l()}) + [{a()}]", lambda: f"({self.str_(d - 1)}).partition({self.pick([repr(','), repr('a')])}) | list",
                          lambda: f"[1, 2] * {self.pick(['0', '1', '2', 'n'])}", lambda: f"({l()} if {self.bool_(d - 1)} else {l()})", lambda: f"messages | sort(attribute='role') | map(attribute='role') | list"])()

    def bool_(self, d):
        if d <= 0:
            return self.pick(["true", "false", "flag", "n == 1", "s is string", "nothing is defined", "messages"])
        b, a = lambda: self.bool_(d - 1), lambda: self.any_(d - 1)
        return self.pick([lambda: f"({b()} and {b()})", lambda: f"({b()} or {a()})", lambda: f"not {b()}", lambda: f"({a()}) is {self.pick(['', 'not '])}{self.pick(TESTS[:14] + ['escaped', 'eq 1', 'sameas none'])}", lambda: f"({a()}) == {a()}",
                          lambda: f"({self.str_(d - 1)}) in {self.str_(d - 1)}", lambda: f"({a()}) in ({self.list_(d - 1)})", lambda: f"({self.num_(d - 1)}) {self.pick(['<', '<=', '>', '>=', '!='])} {self.num_(d - 1)}",
                          lambda: f"({self.str_(d - 1)}) {self.pick(['<', '<=', '>', '>=', '!='])} {self.str_(d - 1)}", lambda: f"({self.str_(d - 1)}).{self.pick(['isdigit()', 'isalpha()', 'isupper()', 'islower()', 'isspace()', 'istitle()', 'isalnum()', 'isnumeric()', 'isidentifier()'])}",
                          lambda: f"({self.str_(d - 1)}).{self.pick(['startswith', 'endswith'])}({self.str_(0)})", lambda: f"{self.num_(0)} < {self.num_(0)} <= {self.num_(0)}", lambda: f"({self.int_(d - 1)}) is {self.pick(['odd', 'even', 'divisibleby 3'])}"])()

    def any_(self, d):
        return self.pick([self.str_, self.str_, self.int_, self.num_, self.list_, self.bool_, self.dict_])(d)

    def dict_(self, d):
        if d <= 0:
            return self.pick(["d", "{}", "messages[0]", "none", "{'k': 1, 'b': 'x'}", "{1: 2, none: 'n', true: 1.5}"])
        return "{" + ", ".join(f"{self.pick(['1', repr('k'), repr('b'), self.string()])}: {self.any_(d - 1)}" for _ in range(self.r.randrange(3))) + "}"

    def expr(self, depth=3):
        return self.wild(depth) if self.r.random() < self.wildness else self.any_(min(depth, 3))

    def wild(self, depth=3):
        if depth <= 0:
            return self.pick([self.pick(NAMES), self.string(), self.number(), self.pick(NAMES)])
        k = self.r.randrange(26)
        e = lambda: self.wild(depth - 1)
        if k < 3:
            return self.literal(depth)
        if k < 6:
            return self.pick(NAMES)
        if k == 6:
            return f"{e()} {self.pick(['+', '-', '*', '/', '//', '%', '**', '~', '~', '+', '+'])} {e()}"
        if k == 7:
            return f"{e()} {self.pick(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {e()}"
        if k == 8:
            return f"({e()} {self.pick(['and', 'or'])} {e()})"
        if k == 9:
            return self.pick(["not ", "-", "+", "not "]) + e()
        if k in (10, 11, 12, 13):
            return f"{e()} | {self.pick(FILTERS)}"
        if k == 14:
            return f"{e()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if k in (15, 16):
            return f"{self.pick([self.pick(NAMES), self.string(), '(' + e() + ')'])}.{self.pick(METHODS)}"
        if k == 17:
            return f"{self.pick(NAMES)}.{self.pick(KEYS)}"
        if k == 18:
            return f"{self.pick(NAMES)}['{self.pick(KEYS)}']"
        if k == 19:
            return f"{self.pick(['xs', 's', 'messages', 'rows', '(' + e() + ')'])}[{self.pick(['0', '1', '-1', '5', 'n', e()])}]"
        if k == 20:
            part = lambda: self.pick(["", "0", "1", "2", "-1", "-2", "n", "none", "9"])
            return f"{self.pick(['xs', 's', 'messages', '(' + e() + ')'])}[{part()}:{part()}{self.pick(['', '', ':' + self.pick(['', '2', '-1', '1', '-2'])])}]"
        if k == 21:
            return f"({e()} if {e()}{self.pick(['', ' else ' + e()])})"
        if k == 22:
            return f"'{self.pick(FORMATS)}{self.pick(['', self.pick(FORMATS)])}' % {self.pick([e(), '(' + e() + ', ' + e() + ')'])}"
        if k == 23:
            return f"'[{{{self.pick(['', '0', 'k', '0[0]', '0.x'])}{self.pick(SPECS)}}}]'.format({e()}, k={e()})"
        if k == 24:
            return self.pick([f"range({self.pick(['3', '1, 4', '5, 0, -2', 'n'])})", f"dict(a={e()})", f"namespace(v={e()}).v", "loop.index", "loop.last",
                              "strftime_now('%d %b %Y')"])
        return f"({e()})"

    def text(self):
        return self.pick(["", " ", "\n", "\n\n", "  ", "t", "- ", "\n  ", " x ", "{ ", "}", "\t", "\u00a0\n", "é", "\r\n", "\n    y\n"])

    def tag(self, inside):
        return "{%" + self.pick(["", "", "-", "+"]) + " " + inside + " " + self.pick(["", "", "-", "+"]) + "%}"

    def out(self, inside):
        return "{{" + self.pick(["", "", "-"]) + " " + inside + " " + self.pick(["", "", "-"]) + "}}"

    def body(self, depth, loop=False):
        return "".join(self.text() + self.statement(depth - 1, loop) for _ in range(self.r.randrange(1, 4))) + self.text()

    def statement(self, depth, loop=False):
        k = self.r.randrange(22) if depth > 0 else self.r.randrange(7)
        if k < 5:
            return self.out(self.expr())
        if k == 5:
            return self.tag(f"set {self.pick(['a', 'b', 's', 'q', 'n', 'xs'])} = {self.expr()}")
        if k == 6:
            return self.pick(["{# c #}", "{#- c -#}", self.tag("set ns.v = " + self.expr(2)), self.out("ns.v"), "{% raw %}{{ x }}{% endraw %}", self.out("q")])
        if k in (7, 8, 9):
            other = self.pick(["", "", self.tag("else") + self.body(depth, loop), self.tag("elif " + self.expr(2)) + self.body(depth, loop)])
            return self.tag("if " + self.expr(2)) + self.body(depth, loop) + other + self.tag("endif")
        if k in (10, 11, 12, 13):
            target, source = self.pick([("x", "xs"), ("m", "messages"), ("k, v", "d.items()"), ("x", "range(3)"), ("c", "s"), ("x", self.expr(2)), ("a, b", "rows"),
                                        ("n", "[1, 2, 3]"), ("k", "d"), ("x", "messages | map(attribute='role')")])
            where = self.pick(["", "", "", " if " + self.expr(2), " if x"])
            control = self.pick(["", "", "", self.tag("if loop.index > 1") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")])
            inner = self.pick(["", self.out("loop.index ~ loop.last"), self.out("x"), self.out("m.role"), self.out("loop.previtem"), self.out("loop.length"), self.out("loop.revindex")])
            other = self.pick(["", "", self.tag("else") + self.body(depth - 1)])
            return self.tag(f"for {target} in {source}{where}") + inner + control + self.body(depth - 1, True) + other + self.tag("endfor")
        if k in (14, 15):
            name = self.pick(["mac", "f", "g"])
            sig = self.pick(["", "p", "p, q='Q'", "a=1", "p, b=p"])
            call = self.pick(["()", "(1)", "(1, 2)", "(p=3)", "('x', q=4)", f"({self.expr(2)})", "(*[1, 2])"])
            return self.tag(f"macro {name}({sig})") + self.body(depth - 1) + self.out(self.pick(["p", "q", "a", "varargs", "kwargs", "s", "caller()"])) + self.tag("endmacro") + self.out(name + call)
        if k == 16:
            return self.tag("set q") + self.body(depth - 1, loop) + self.tag("endset") + self.out("q")
        if k == 17:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)", "length", "replace('a', 'b') | title"])) + self.body(depth - 1, loop) + self.tag("endfilter")
        if k == 18:
            return self.tag(f"with a = {self.expr(2)}, z = a") + self.body(depth - 1, loop) + self.out("z") + self.tag("endwith")
        if k == 19:
            return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")
        if k == 20:
            return (self.tag("macro w(t)") + "<" + self.out("t") + self.out("caller()") + ">" + self.tag("endmacro") + self.tag(f"call w({self.expr(2)})") + self.body(depth - 1)
                    + self.tag("endcall"))
        if loop:
            return self.tag("if " + self.expr(2)) + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
        return self.pick([self.out("raise_exception('stop')"), self.out(self.expr(4)), self.out(self.expr(4)), self.tag("if n > 99") + self.out("1 | nofilter") + self.tag("endif")])

    def template(self):
        return "{% set ns = namespace(v=0) %}" + "".join(self.text() + self.statement(3) for _ in range(self.r.randrange(1, 6))) + self.text()


def case(rng):
    g = Grammar(rng)
    roles = ["system", "user", "assistant", "tool"]
    messages = [{"role": rng.choice(roles), "content": rng.choice(["Hi", "", " two\nlines ", "é🥾", "<x>&'", None])} for _ in range(rng.randrange(0, 4))]
    kwargs = {
        "a": rng.choice([1, "A", None, [1, 2], 2.5]), "b": rng.choice(["b", 0, {"x": 1}]), "n": rng.choice([0, 1, 2, 3]),
        "s": rng.choice(["abc", "a,b", "Ärger ß", "", "x y  z", "it's"]), "xs": rng.choice([[3, 1, 2], ["b", "A", "a"], [], [1, "x", None], [[1, 2], [3]]]),
        "d": rng.choice([{"k": 1, "x": "y"}, {}, {"items": 1, "b": [1]}, {"role": "r", "type": None}]), "flag": rng.choice([True, False]), "f": rng.choice([1.0, -0.5, 1e20, 3.14159]),
        "big": 2**70, "mixed": [1, "1", 1.0, None, True], "rows": [["p", 1], ["q", 2]],
    }
    out = {"template_text": g.template(), "messages": messages, "add_generation_prompt": rng.random() < 0.5, "kwargs": kwargs, "bos_token": "<s>", "eos_token": None}
    if rng.random() < 0.3:
        out["tools"] = [{"type": "function", "function": {"name": "t", "parameters": {}}}]
    return out


class TooLong(BaseException):
    """The reference has no budgets: a template may take it hours."""


def reference(cases):
    from transformers.utils import chat_template_utils as u

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 7, 4, 9, 5, 6)

    def too_long(*_):
        raise TooLong

    u.datetime = Clock
    signal.signal(signal.SIGALRM, too_long)
    for c in cases:
        try:
            signal.alarm(10)
            messages = u._normalize_chat_messages(c["messages"])
            extra = {**{k: c[k] for k in ("bos_token", "eos_token") if c[k] is not None}, **c["kwargs"]}
            rendered, _ = u.render_jinja_template([messages], tools=c.get("tools"), chat_template=c["template_text"], add_generation_prompt=c["add_generation_prompt"], **extra)
            rendered[0].encode()
            answer = {"text": rendered[0]}
        except TooLong:
            answer = {"too long": True}
        except (Exception, RecursionError) as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        signal.alarm(0)
        yield answer


def is_address(ours, reference):
    """Ours are 0x7f0000000000: where the texts differ, we have a nought. Else one shows, whatever stands between its characters."""
    other = [(a, b) for a, b in zip(ours, reference) if a != b]
    if len(ours) == len(reference) and len(other) >= 4 and all(a == "0" and b.lower() in "0123456789abcdef" for a, b in other):
        return True
    return bool(re.search("0x7[ef]", re.sub(r"[\W_]", "", reference).lower()))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--show", type=int, default=20)
    args = p.parse_args()
    rng = random.Random(args.seed)
    cases = [case(rng) for _ in range(args.count)]
    lines = "\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n"
    run = subprocess.run([os.environ["LLMGEN"], "render", "--jsonl"], input=lines, capture_output=True, text=True, env={**os.environ, "LLMGEN_NOW": "2026-07-04T09:05:06"})
    ours = [json.loads(x) for x in run.stdout.splitlines() if x.strip()]
    if len(ours) != len(cases):
        sys.exit(f"{len(ours)} answers to {len(cases)} templates; status {run.returncode} {run.stderr[-300:]}")
    counts = collections.Counter()
    shown = 0
    for c, o, r in zip(cases, ours, reference(cases)):
        if "too long" in r:
            counts["without an end in the reference, " + ("a budget's error here" if "ResourceError" in o.get("error", "") else "ended here")] += 1
            print(json.dumps(c["template_text"], ensure_ascii=False)[:300] + "\n  ours", json.dumps(o, ensure_ascii=False)[:300])
            continue
        # An object's address tells nothing.
        if "text" in r and is_address(o.get("text", ""), r["text"]):
            counts["addresses"] += 1
            continue
        # It folds constants, and writes one that is nan or inf into its Python code, where that is a name.
        if r.get("error") in ("NameError: name 'nan' is not defined", "NameError: name 'inf' is not defined"):
            counts["the reference's own fault"] += 1
            continue
        same = o.get("text") == r.get("text") and ("error" in o) == ("error" in r)
        counts["same text" if same and "text" in r else "same error" if same else "DIFFERENT"] += 1
        if same or shown >= args.show:
            continue
        shown += 1
        print(json.dumps(c["template_text"], ensure_ascii=False))
        print("  with", json.dumps({k: v for k, v in c["kwargs"].items() if k in c["template_text"]}, ensure_ascii=False), json.dumps(c["messages"], ensure_ascii=False))
        print("  ours     ", json.dumps(o, ensure_ascii=False)[:600])
        print("  reference", json.dumps(r, ensure_ascii=False)[:600])
    print(f"seed {args.seed}, {args.count} templates: {dict(counts)}")
    sys.exit(1 if counts["DIFFERENT"] else 0)


main()
