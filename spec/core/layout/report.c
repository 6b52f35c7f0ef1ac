/* layout/report: who lives at the peak, and the advice. */
#include "layoutcase.h"

static void report(void)
{
    mr_graph *g = stack(false);
    mr_layout *l = NULL;
    char *text = NULL;
    OK(mr_layout_new(g, NULL, &l));
    OK(mr_layout_report(l, &text));
    CHECK(strstr(text, "MiB") && strstr(text, "most lives at node"));
    CHECK(strstr(text, "layer.0"));
    CHECK(strstr(text, "silu"));
    CHECK(strstr(text, "kept for the backward pass are the largest part; try: recompute"));
    mr_free(text);
    for (int64_t n = 1; n < 20; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_layout_report(l, &text);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            CHECK(n > 2);
            mr_free(text);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
    }
    mr_layout_free(l);
    mr_graph_free(g);
}

int main(void)
{
    report();
    return check_done();
}
