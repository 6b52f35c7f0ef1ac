/* index/literal: lists as Python and JSON write them, and text that is no list. */
#include "check.h"
#include "index/table.h"

#include <stdlib.h>
#include <string.h>

// a text as JSON; "none"
static void is(const char *text, const char *want)
{
    json_t *list;
    if (!CHECK_OK(index_literal(text, &list)))
        return;
    char *is = list ? json_dumps(list, JSON_COMPACT) : NULL;
    if (strcmp(is ? is : "none", want))
        printf("of %s\n", text);
    CHECK_STR(is ? is : "none", want);
    free(is);
    json_decref(list);
}

static void lists(void)
{
    is("[]", "[]");
    is(" ( ) ", "[]");
    is("[1]", "[1]");
    is("['a man', \"a dog's\"]", "[\"a man\",\"a dog's\"]");
    is("[\"a\",\n \"b\",]", "[\"a\",\"b\"]");
    is("('0:00:01', None)", "[\"0:00:01\",null]");
    is("(1,)", "[1]");
    is("[[0.5, 1.5], (2, -3e2)]", "[[0.5,1.5],[2,-300.0]]");
    is("[True, False, None, nan, true, false, null, NaN]",
       "[true,false,null,null,true,false,null,null]");
    is("[{'start': 1, \"end\": [2]}, {}]", "[{\"start\":1,\"end\":[2]},{}]");
    is("[9223372036854775807, 9223372036854775808, -0, 1., .5]",
       "[9223372036854775807,\"9223372036854775808\",0,1.0,0.5]");
    is("[[[[[[[[]]]]]]]]", "[[[[[[[[]]]]]]]]");
}

static void texts(void)
{
    is("['it\\'s', \"\\\"\", '\\\\', '\\/', '\\n\\t']",
       "[\"it's\",\"\\\"\",\"\\\\\",\"/\",\"\\n\\t\"]");
    is("['\\xe9', '\\u00e9', '\\U0001F600', '\\ud83d\\ude00']",
       "[\"\xc3\xa9\",\"\xc3\xa9\","
       "\"\xf0\x9f\x98\x80\",\"\xf0\x9f\x98\x80\"]");
    is("['\\q \\8']", "[\"\\\\q \\\\8\"]");
    is("['\\u07ff\\u0800\\uffff']", "[\"\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\"]");
    is("['', \"\"]", "[\"\",\"\"]");
    is("['a, b', ']']", "[\"a, b\",\"]\"]");
}

static void no_lists(void)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "a",
                                      "1",
                                      "{}",
                                      "[",
                                      "[1",
                                      "[1,",
                                      "[1 2]",
                                      "[,]",
                                      "[1,,2]",
                                      "['a' 'b']",
                                      "['a",
                                      "['a\\",
                                      "['a\\x4",
                                      "['\\xg0']",
                                      "['\\x00']",
                                      "['\\u0000']",
                                      "['\\ud800']",
                                      "['\\ud800\\u0041']",
                                      "['\\U00110000']",
                                      "['\\x\x10\x10']",
                                      "[music] a man",
                                      "[1] [2]",
                                      "[1))",
                                      "(1)",
                                      "('a, b')",
                                      "(see [1])",
                                      "[a]",
                                      "[1_0]",
                                      "[1e999]",
                                      "[+-1]",
                                      "[{1: 2}]",
                                      "[{'a' 1}]",
                                      "[{'a': }]",
                                      "[{'a'",
                                      "['\xff']",
                                      "[np.float64(0.5)]",
                                      "[[[[[[[[[]]]]]]]]]",
                                      "[-",
                                      "[-]"};
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        is(bad[i], "none");
}

static void no_memory(void)
{
    json_t *list;
    mr_alloc_fail_at(1);
    CHECK_INT(index_literal("['a']", &list), MR_E_MEMORY);
    CHECK(!list);
    mr_alloc_fail_at(0);
}

int main(void)
{
    lists();
    texts();
    no_lists();
    no_memory();
    return check_done();
}
