--- Files of a room form layers: no file uses a file that uses it, directly or through others. C
-- files use functions and variables that another file defines; Lua modules require each other.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local sources = require "spec.support.sources"

-- the only exception: a scan decodes a clip to check its key frames, and reading a clip whose time
-- differs from the index scans it again
local KNOWN = { ["core/media"] = { "read.c scan.c" } }

-- cycles as a list of texts; `closing` names the symbols that close them
local function circles_of(arrows)
  local list, lines = {}, {}
  for _, circle in ipairs(sources.circles(arrows)) do
    list[#list + 1] = table.concat(circle, " ")
    lines[#lines + 1] = list[#list]
    for _, from in ipairs(circle) do
      for _, to in ipairs(circle) do
        local names = {}
        for name in pairs(arrows[from][to] or {}) do
          names[#names + 1] = name
        end
        if #names > 0 then
          table.sort(names)
          lines[#lines + 1] = ("  %s -> %s: %s"):format(from, to, table.concat(names, " "))
        end
      end
    end
  end
  return list, table.concat(lines, "\n")
end

local function listed(set)
  local out = {}
  for name in pairs(set) do
    out[#out + 1] = name
  end
  table.sort(out)
  return table.concat(out, " ")
end

describe("a C source", function()
  local names = sources.names [[
    #include "room.h"
    #define TWICE(x) \
        other_twice(x)
    /* comment_one(); */ // comment_two()
    static int own(int a) { return "text_one()"[a] + '"'; }
    extern int declared;
    int declared_too(const char *s, ...) MR_PRINTF(1, 2);
    typedef int (*type)(int);
    struct row { int first; };
    const char *(*pointed)(const char *path) = other_one;
    int list[] = {1'000, number_one};
    int work_on(struct row *r, int a) { return own(a) + r->member_one(a) + r[0].member_two(a); }
    MR_ROWS(some) = {.first = other_two};
  ]]

  it("defines, declares and keeps names private", function()
    assert.equal("MR_ROWS list pointed work_on", listed(names.defines))
    assert.equal("declared declared_too", listed(names.declares))
    assert.equal("TWICE own", listed(names.own))
  end)
  it("uses names, except members and words in strings and comments", function()
    for _, name in ipairs { "other_one", "other_two", "other_twice", "own", "number_one" } do
      assert.is_true(names.uses[name], name)
    end
    for _, name in ipairs { "member_one", "member_two", "text_one", "comment_one",
      "comment_two" } do
      assert.is_nil(names.uses[name], name)
    end
  end)
end)

describe("a cycle of files", function()
  it("is found, also when a function or macro of a header closes it", function()
    local dir <close> = folder.new()
    local function arrows(header)
      dir:write("room.h", "int a(void); int b(void); int c(void);\n" .. header)
      dir:write("a.c", "int a(void) { return b(); }")
      dir:write("b.c", "int b(void) { return inner(); }")
      dir:write("c.c", "int c(void) { return a(); }")
      return sources.arrows(dir.path, {})
    end
    local list, text = circles_of(arrows "static inline int inner(void) { return c(); }")
    assert.same({ "a.c b.c c.c" }, list)
    assert.equal("a.c b.c c.c\n  a.c -> b.c: b\n  b.c -> c.c: c\n  c.c -> a.c: a", text)
    assert.same({ "a.c b.c c.c" }, (circles_of(arrows "#define inner() \\\n c()")))
    assert.same({}, (circles_of(arrows "int inner(void);")))
    dir:write("b.c", "int b(void) { return c(); }\nstatic int c(void) { return 1; }")
    assert.same({}, (circles_of(sources.arrows(dir.path, {}))))
  end)
end)

describe("files form layers:", function()
  local public = sources.files("core/include", "%.h$")
  for _, above in ipairs { "core", "cuda" } do
    for _, name in ipairs(base.list_dir(above)) do
      local room = above .. "/" .. name
      if base.exists(room .. "/.") then
        it(room, function()
          local list, text = circles_of(sources.arrows(room, public))
          assert.same(KNOWN[room] or {}, list, text)
        end)
      end
    end
  end

  it("lua/moonreel", function()
    local arrows = {}
    for _, path in ipairs(sources.files("lua/moonreel", "%.lua$")) do
      local module, needs = path:match("^lua/moonreel/(.*)%.lua$"):gsub("/init$", ""), {}
      -- words in comments and in Lua text for another process do not count
      local text = base.read_file(path):gsub("%-%-[^\n]*", ""):gsub("'[^'\n]*'", "")
      for other in text:gmatch 'require%s*%(?%s*"moonreel%.([%w_.]+)"' do
        needs[other:gsub("%.", "/")] = { require = true }
      end
      arrows[module] = needs
    end
    local list, text = circles_of(arrows)
    assert.same({}, list, text)
  end)
end)
