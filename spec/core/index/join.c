/* index/join: captions of a table are assigned to the clips that they name. */
#include "clips.h"
#include "index/builder.h"
#include "inputs.h"

static const char *const clips[] = {"a/1.mp4", "a/2.mp4",    "b/1.mp4",
                                    "b/3.mp4", "c/lost.mp4", "plain.mp4"};
static const char table[] = "path,text\n"
                            "1.mp4,by name\n"
                            "b/1.mp4,by path\n"
                            "b/1.mp4,said again\n"
                            "nobody.mp4,unheard\n"
                            "plain.mp4,no folder\n"
                            "a/2.mp4,by path again\n"
                            "2.mp4,by name only\n"
                            "3.mp4,\n";
static const char *const texts[] = {"by name", "by path again", "by path", "", NULL, "no folder"};

static mr_status join(index_source *s)
{
    index_sorter *sorter;
    index_pack p = {0};
    MR_TRY(index_source_init(s, clips_path("new.mrx"), "main"));
    strcpy(s->root, "/root");
    MR_TRY(index_sorter_new(s->near, &sorter));
    mr_status st = MR_OK;
    for (uint64_t i = MR_COUNT(clips); st == MR_OK && i-- > 0;) {
        index_input_pack(&p, &(index_input){.path = clips[i], .line = i});
        st = p.failed ? MR_E_MEMORY : index_sorter_add(sorter, p.bytes, p.n);
    }
    if (st == MR_OK)
        st = index_sorter_sort(sorter);
    if (st == MR_OK)
        st = index_join_captions(s, sorter, clips_path("list.csv"));
    if (st == MR_OK)
        st = index_source_end(s);
    index_sorter_free(sorter);
    mr_free(p.bytes);
    return st;
}

int main(void)
{
    index_source s;
    CHECK_OK(mr_file_replace(clips_path("list.csv"), table, sizeof table - 1));
    for (int small = 0; small < 2; small++) {
        index_run_bytes = small ? 100 : 64 << 20;
        if (CHECK_OK(join(&s))) {
            CHECK_INT(s.n, MR_COUNT(clips));
            inputs_take(&s);
            for (size_t i = 0; i < MR_COUNT(clips); i++) {
                CHECK_STR(inputs[i].path, clips[i]);
                CHECK_INT(inputs[i].line, i);
                CHECK(!inputs[i].text == !texts[i]);
                if (inputs[i].text && texts[i])
                    CHECK_STR(inputs[i].text, texts[i]);
            }
        }
        index_source_fini(&s);
    }
    int failures = 0;
    for (int n = 1; n < 400; n++) {
        mr_alloc_fail_at(n);
        mr_status st = join(&s);
        mr_alloc_fail_at(0);
        index_source_fini(&s);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 10 && failures < 390);
    inputs_free();
    return check_done();
}
