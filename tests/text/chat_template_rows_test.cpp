// Rows A of the cases that are a template and its text, by the row's number. The texts and the errors are
// those of jinja2 3.1.6 as transformers sets it up. Rows A1 and A2 need a tokenizer besides; A10, A13, A15 to
// A17 and the rest of A8 stand in chat_template_test.cpp, A12 in engine_test.cpp and cli_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "llmgen/chat_template.h"
#include "llmgen/error.h"
#include "tokenizer_toys.h"

namespace llmgen::test {
namespace {

struct Row {
    const char* name;
    const char* text;
    const char* expected;
    bool is_error;
};

const Row kRows[] = {
    {"A4", "one\n  {% if true %}\n  two\n  {% endif %}\nthree\n", "one\n  two\nthree", false},
    {"A4", "{{ 1 }}\n{{ 2 }}\n", "1\n2", false},
    {"A4", "end\n\n", "end\n", false},
    {"A4", "{{ 1 }} {% if true %}2{% endif %}", "1 2", false},
    {"A4", "one\n{# note #}\ntwo", "one\ntwo", false},
    {"A4", "  {%+ if true %}kept{% endif +%}\nnext", "  kept\nnext", false},
    {"A4", "\t{%- if true -%} \n x \n{%- endif -%}\n y", "xy", false},
    {"A5", "{{ {'안녕': '🥾', 'q': '<a href=\"x\">&\\''} | tojson }}",
     "{\"안녕\": \"🥾\", \"q\": \"<a href=\\\"x\\\">&'\"}", false},
    {"A5", R"({{ {'f': 2.0, 'e': 1e21, 'n': none, 't': true, 'l': []} | tojson }})",
     "{\"f\": 2.0, \"e\": 1e+21, \"n\": null, \"t\": true, \"l\": []}", false},
    {"A5", "{{ {'a': [1, {}], 'b': {}} | tojson(indent=2) }}",
     "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {}\n}", false},
    {"A5", R"({{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }})",
     "{\"a\":\"\\u00e9\",\"b\":1}", false},
    {"A6",
     R"({{ 'U' if nope is undefined else 'D' }}{{ messages is iterable }}{{ messages is not none }}{{ messages[0] is mapping }}{{ messages[0].role is string }})",
     "UTrueTrueTrueTrue", false},
    {"A6", R"([{{ messages[0].tool_calls }}]{% if messages[0].tool_calls %}T{% else %}F{% endif %})", "[]F",
     false},
    {"A6", "{{ messages[0].tool_calls.name }}", "UndefinedError: 'dict object' has no attribute 'tool_calls'",
     true},
    {"A7",
     R"({% for i in range(6) %}{% if i is odd %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %})",
     "02", false},
    {"A8", "{{ strftime_now('%d %b %Y') }}", "04 Jul 2026", false},
    {"A9", R"({% if messages[0].role == 'system' %}{{ raise_exception('roles must alternate') }}{% endif %})",
     "roles must alternate", true},
    {"A15", "{{ ''.__class__.__mro__ }}",
     R"(SecurityError: access to attribute '__class__' of 'str' object is unsafe.)", true},
    {"A15", "{{ lipsum.__globals__ }}", "", false},
    {"A15", "{% set l = [] %}{{ l.append(1) }}",
     R"(SecurityError: access to attribute 'append' of 'list' object is unsafe.)", true},
    {"A16", "{% for i in range(10**9) %}{% endfor %}",
     R"(OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).)", true},
    {"A19",
     R"({% set ns = namespace(n=0) %}{% set leak = false %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set leak = true %}{% endfor %}{{ ns.n }}{{ leak }})",
     "4False", false},
    {"A19",
     R"({{ messages[1:] | length }}{{ messages[::-1][0].content }}{{ messages[-2].content }}{{ 'abcdef'[1:-1:2] }})",
     "3U2A1bd", false},
    {"A19",
     R"({% for m in messages %}{{ loop.index0 }}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem.content if loop.previtem else '-' }}{{ loop.nextitem.content if loop.nextitem else '-' }};{% endfor %})",
     R"(01TrueFalse4-U1;12FalseFalse4SA1;23FalseFalse4U1U2;34FalseTrue4A1-;)", false},
    {"A19",
     R"({% macro turn(m, end='.') %}<{{ m.role }}{{ end }}>{% endmacro %}{{ turn(messages[0]) }}{{ turn(messages[1], end='!') }})",
     "<system.><user!>", false},
    {"A19",
     R"({% filter upper %}quiet {{ messages[1].role }}{% endfilter %}{% generation %} kept{% endgeneration %})",
     "QUIET USER kept", false},
    {"A21",
     "{{ ' x '.strip() }}|{{ 'mIxEd'.lower().title() }}|{{ 'a,b'.split(',') }}|{{ 'prefix'.startswith('pre') "
     "}}|{{ 'tail\n'.rstrip() }}|{{ 'aXa'.replace('X', '-') }}",
     "x|Mixed|['a', 'b']|True|tail|a-a", false},
    {"A21",
     R"({{ messages | map(attribute='role') | join(',') }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ none | default('d') }}|{{ none | default('d', true) }}|{{ {'b': 1, 'a': 2} | dictsort }}|{{ {'b': 1}.items() | list }}|{{ {'k': 1}.get('x', 5) }}|{{ ' t ' | trim }})",
     R"(system,user,assistant,user|2|None|d|[('a', 2), ('b', 1)]|[('b', 1)]|5|t)", false},
};

class TemplateRow : public ::testing::TestWithParam<const char*> {};

TEST_P(TemplateRow, IsAsTheReference) {
    setenv("LLMGEN_NOW", "2026-07-04T09:05:06", 1);
    RenderInput in;
    in.messages_json = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U1"},
                           {"role": "assistant", "content": "A1"}, {"role": "user", "content": "U2"}])";
    int n = 0;
    for (const Row& row : kRows) {
        if (std::string_view(row.name) != GetParam()) continue;
        ++n;
        try {
            const std::string text = ChatTemplate::parse(row.text, "<s>", "</s>").render(in).text;
            EXPECT_FALSE(row.is_error) << row.text;
            EXPECT_EQ(text, row.expected) << row.text;
        } catch (const Error& error) {
            EXPECT_TRUE(row.is_error) << row.text << ": " << error.what();
            EXPECT_THAT(error.what(), ::testing::HasSubstr(row.expected));
        }
    }
    EXPECT_GT(n, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         TemplateRow,
                         ::testing::Values("A4", "A5", "A6", "A7", "A8", "A9", "A15", "A16", "A19", "A21"),
                         [](const auto& row) { return std::string(row.param); });

// A1, A2: a rendered prompt is encoded without the post-processor, and nothing is taken off its front.
TEST(TemplateRow, BosIsTheTemplatesOwn) {
    const Tokenizer t =
        load_json(with_bos(byte_toy({}, {added_token("<s>"), added_token("<sop>")}), "<s>", 256));
    RenderInput in;
    in.messages_json = R"([{"role": "user", "content": "a"}])";
    const auto ids = [&](std::string_view text) {
        const RenderedPrompt p = ChatTemplate::parse(text, "<s>", std::nullopt).render(in);
        EncodeOptions options;
        options.add_special_tokens = false;
        options.plain_ranges = p.user_ranges;
        return t.encode(p.text, options);
    };
    EXPECT_EQ(ids("{{ bos_token }}{{ messages[0].content }}"), (std::vector<int>{256, 'a'}));
    EXPECT_EQ(ids("{{ bos_token }}<sop>{{ messages[0].content }}"), (std::vector<int>{256, 257, 'a'}));
    EXPECT_EQ(ids("{{ messages[0].content }}"), (std::vector<int>{'a'}));
    EXPECT_EQ(t.encode("a"), (std::vector<int>{256, 'a'}));  // a raw prompt has the post-processor's
}

}  // namespace
}  // namespace llmgen::test
