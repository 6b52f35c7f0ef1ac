/* layout/report: the tensors alive at the peak, and the proposals. */
#include "layoutcase.h"

/* The lines of the list: largest first, together what is alive at the peak. */
static void listed(const char *text, size_t bound)
{
    double before = 1e9, sum = 0, mib = 0;
    int lines = 0;
    for (const char *at = strchr(text, '\n'); at && sscanf(at, "\n  %lf MiB", &mib) == 1;
         at = strchr(at + 1, '\n')) {
        bool rest = strncmp(strstr(at, "MiB"), "MiB  in ", 8) == 0;
        CHECK(mib <= before || rest);
        before = mib, sum += mib, lines++;
    }
    CHECK(lines > 3);
    CHECK_NEAR(sum, (double)bound / (1 << 20), 0.0006 * lines);
}

/* The same as entries: together they are the bound, each with its purpose. */
static void entries(const mr_layout *l)
{
    static const char *const names[] = {"kept", "gradient", "workspace", "forward"};
    const mr_layout_entry **live = mr_calloc((size_t)mr_layout_entries(l), sizeof *live);
    int n = mr_layout_live(l, live), seen[4] = {0};
    size_t sum = 0, before = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        const char *purpose = mr_layout_purpose(l, live[i]);
        for (int k = 0; k < 4; k++)
            seen[k] += strcmp(purpose, names[k]) == 0;
        CHECK(live[i]->bytes <= before);
        CHECK((strcmp(purpose, "workspace") == 0) == (live[i]->storage < 0));
        before = live[i]->bytes, sum += live[i]->bytes;
    }
    CHECK_INT(sum, mr_layout_bound(l));
    CHECK(seen[0] > 0 && seen[2] <= 1);
    CHECK_INT(seen[0] + seen[1] + seen[2] + seen[3], n);
    mr_free(live);
    size_t parts[3] = {0}, one = 0, each = 0;
    OK(mr_layout_profile(l, &one, 1));
    OK(mr_layout_profile(l, parts, 3));
    CHECK_INT(one, mr_layout_bound(l));
    for (int i = 0; i < 3; i++)
        each = MR_MAX(each, parts[i]);
    CHECK_INT(each, one);
    CHECK(parts[0] < one && parts[0] > 0 && parts[2] > 0);
    mr_alloc_fail_at(1);
    CHECK_FAILS(mr_layout_profile(l, parts, 3), MR_E_MEMORY, "");
    mr_alloc_fail_at(0);
}

static void report(void)
{
    mr_graph *g = stack(false);
    mr_layout *l = NULL;
    char *text = NULL;
    int nodes = mr_graph_nodes(g);
    size_t *workspace = mr_calloc((size_t)nodes, sizeof *workspace);
    for (int i = 0; i < nodes; i++)
        workspace[i] = (size_t)(i % 5) * 20000;
    OK(mr_layout_new(g, &(mr_layout_options){.workspace = workspace}, &l));
    mr_free(workspace);
    OK(mr_layout_report(l, &text));
    CHECK(strstr(text, "MiB") && strstr(text, "most lives at node"));
    CHECK(strstr(text, "layer.0"));
    listed(text, mr_layout_bound(l));
    entries(l);
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
