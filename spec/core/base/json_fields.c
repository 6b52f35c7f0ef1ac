/* base/json_fields: objects are reported field by field, and text that is no JSON is refused with
 * its position. */
#include "base/json_fields.h"
#include "check.h"

static char report[400];

static mr_status note(void *user, const char *key, mr_json_part value)
{
    (void)user;
    size_t n = strlen(report);
    snprintf(report + n, sizeof report - n, "%s=%.*s;", key, (int)(value.end - value.at), value.at);
    return MR_OK;
}

static mr_status stop(void *user, const char *key, mr_json_part value)
{
    (void)user, (void)value;
    return mr_fail(MR_E_DATA, "stopped at %s", key);
}

static mr_json_part part(const char *text)
{
    return (mr_json_part){"f", text, text, text + strlen(text), MR_JSON_DEPTH};
}

static mr_status walk(const char *text)
{
    // an exact copy of the text, so that the sanitizer detects a read past its end
    size_t n = strlen(text);
    char *exact = mr_alloc(n + !n);
    memcpy(exact, text, n);
    report[0] = 0;
    mr_status st =
        mr_json_fields((mr_json_part){"f", exact, exact, exact + n, MR_JSON_DEPTH}, note, NULL);
    mr_free(exact);
    return st;
}

static void good(void)
{
    CHECK_OK(walk("{}"));
    CHECK_STR(report, "");
    CHECK_OK(walk(" { \"a\" : 1 ,\n\"b\":[1, 2],\"c\":{\"d\":\"}\\\"\"}, \"\\u00e4\":\"x\" } "));
    CHECK_STR(report, "a=1;b=[1, 2];c={\"d\":\"}\\\"\"};\xc3\xa4=\"x\";");
    // duplicate names are left to the caller
    CHECK_OK(walk("{\"a\":1,\"a\":2}"));
    CHECK_STR(report, "a=1;a=2;");
    CHECK_OK(walk("{\"a\":[[[]]]}"));
    CHECK_FAILS(mr_json_fields(part("{\"x\":1}"), stop, NULL), MR_E_DATA, "stopped at x");
}

static void refused(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "byte 0: expected an object"},
        {"[1]", "byte 0: expected an object"},
        {"{", "byte 1: expected a name in quotes"},
        {"{a:1}", "byte 1: expected a name in quotes"},
        {"{\"a", "byte 3: expected the end of a text"},
        {"{\"a\\", "byte 4: expected the end of a text"},
        {"{\"a\"}", "byte 4: expected ':'"},
        {"{\"a\":}", "byte 5: expected a value"},
        {"{\"a\":", "byte 5: expected a value"},
        {"{\"a\":1", "byte 6: expected ',' or '}'"},
        {"{\"a\":1 2}", "byte 7: expected ',' or '}'"},
        {"{\"a\":1,}", "byte 7: expected a name in quotes"},
        {"{\"a\":[1", "byte 7: expected a closing bracket"},
        {"{\"a\":[\"x]", "byte 9: expected the end of a text"},
        {"{} {}", "byte 3: expected nothing more"},
        {"{\"a\":[[[[]]]]}", "nested deeper than 4 at byte 8"},
        {"{\"a\":{\"b\":{\"c\":{\"d\":{}}}}}", "nested deeper than 4"},
    };
    for (size_t i = 0; i < MR_COUNT(cases); i++)
        CHECK_FAILS(walk(cases[i].text), MR_E_FORMAT, cases[i].why);
}

static void values(void)
{
    json_t *v = NULL;
    CHECK_OK(mr_json_parse(part("[1, \"x\"]"), &v));
    CHECK_INT(json_array_size(v), 2);
    json_decref(v);
    CHECK_FAILS(mr_json_parse(part("[1, }"), &v), MR_E_FORMAT, "f: damaged JSON: byte 5");
    CHECK_FAILS(mr_json_parse(part("{\"a\":1,\"a\":2}"), &v), MR_E_FORMAT, "duplicate");
    // a text may be long, other values may not
    enum { LONG = 100000 };
    static char text[LONG + 1];
    memset(text, 'x', LONG);
    text[0] = text[LONG - 1] = '"';
    CHECK_OK(mr_json_parse(part(text), &v));
    CHECK_INT(json_string_length(v), LONG - 2);
    json_decref(v);
    memset(text, ' ', LONG);
    text[0] = '[', text[LONG - 1] = ']';
    CHECK_FAILS(mr_json_parse(part(text), &v), MR_E_FORMAT,
                "the value at byte 0 has 100000 bytes; at most 65536");
}

static void text_of_bytes(void)
{
    json_t *text = mr_json_text("caf\xc3\xa9");
    CHECK_STR(json_string_value(text), "caf\xc3\xa9");
    json_decref(text);
    text = mr_json_text("\xff/a\xc3\xa9\xc3.mp4");
    CHECK_STR(json_string_value(text), "\\xFF/a\xc3\xa9\\xC3.mp4");
    json_decref(text);
}

int main(void)
{
    good();
    refused();
    values();
    text_of_bytes();
    return check_done();
}
