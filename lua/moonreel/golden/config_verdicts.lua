--- What moonreel makes of each of the reference's cases where it differs. `{value = ...}`: the
-- right value, with the reason beside it; text: an error whose message holds it. Cases that are not
-- listed give the reference's value.
-- @module moonreel.golden.config_verdicts
local verdicts = {}

local function value(v) return { value = v } end

-- ---- text to value ----

-- what is no literal stays text; numbers that are none are no settings
local stays_text = { "1e400", "-1e400", "nan", "NaN", "inf", "-inf", "Infinity",
  "1,2", "1, 2", "1,", '"a" "b"', "1+2j", "2j",
  'b"xy"', "...", "- 5", "+ 5", "r'x\\n'", 'u"x"', "5 #c", "5#c", "[1] # c", "\u{663}" }

verdicts.convert = {
  ["{1,2}"] = value { 1, 2 },
  ["[None, True, false]"] = value { nil, true, false },
  -- parentheses hold a list
  ["(1)"] = value { 1 }, ["((1))"] = value { { 1 } }, ["(1.5)"] = value { 1.5 },
    ['("a")'] = value { "a" },
}
for _, text in ipairs(stays_text) do
  verdicts.convert[text] = value(text)
end

-- ---- command line: what changes ----

verdicts.merge = {
  -- an integer field takes integral numbers in any form
  ["--warmup_steps 1e3"] = value { warmup_steps = 1000 },
  ["--warmup-steps 1.5"] = "warmup_steps: expected integer, or none, got number 1.5",
  -- a field that is none takes a value
  ["--ema-decay 0.99"] = value { ema_decay = 0.99 },
  -- booleans stay booleans
  ["--grad-checkpoint 0"] = value { grad_checkpoint = false },
  ["--use-x maybe"] = "'maybe' is no option",
  -- lists are read as lists
  ["--axes [1,2]"] = value { axes = { 1, 2 } },
  ["--axes 12"] = "axes: expected a list, each integer, or none, got number 12",
  ["--ckpt (4, 50)"] = value { ckpt = { 4, 50 } },
  ["--frac 1/2"] = "frac: expected number, or none, got '1/2'",
  ["--model.opt.b.c 5"] = value { model = { type = "flux", depth = 19, axes_dim = { 16, 56, 56 },
    opt = { a = 1, b = { c = 5 } } } },
  ["--model.nope.c 5"] = "model.nope is not a field",
  ["--nokey.a 5"] = "nokey is not a field",
  -- the registry knows all fields; a new name is a slip
  ["--dataset.data-path d/x.csv"] = "dataset.data-path is not a field",
  ["--dataset.memory_efficient True"] = "dataset.memory_efficient is not a field",
  ["--newkey 5"] = "newkey is not a field", ["--newkey 256px"] = "newkey is not a field",
    ["--newkey 1,2"] = "newkey is not a field",
  ["--new-key-two x"] = "new-key-two is not a field", ["--async-io True"] = "async-io is not a "
    .. "field",
  ["--wandb 1"] = "wandb is not a field", ["--start-step 0 --start-epoch 0"] = "start-step is not "
    .. "a field",
  ["--prompt raining, sea"] = "prompt is not a field", ["--prompt 1, 2"] = "prompt is not a field",
  ['--prompt "quoted"'] = "prompt is not a field", ["--aspect_ratio 16:9"] = "aspect_ratio is not "
    .. "a field",
  ["--num_frames 1"] = "num_frames is not a field",
  -- a missing value is an error
  ["--lr"] = "--lr: expected VALUE, got nothing", ["--lr 1 --save-dir"] = "--save-dir: expected "
    .. "VALUE, got nothing",
  ["lr 1"] = "'lr' is no option", ["-lr 1"] = "-lr: no such option",
  -- the first = splits
  ["--lr=1 x"] = "'x' is no option",
  ["---lr 3"] = "-lr is not a field, did you mean 'lr'?",
  -- an empty table merges nothing
  ["--bucket_config {}"] = value {},
  ["--model x"] = "model: expected a table of fields", ["--model none"] = "model: expected a table "
    .. "of fields, got none",
  ["--bucket-config.256px.1 5"] = "bucket_config.256px.1: expected {keep, batch}",
}

-- ---- arguments
-- -----------------------------------------------------------------------------------

verdicts.argv = {
  -- options may stand before the recipe
  ["--lr 1e-5 cfg.py"] = value { config = "cfg.py", rest = { "--lr", "1e-5" } },
  ["cfg.py --a"] = "--a: expected VALUE, got nothing",
  ["cfg.py x y"] = "expected one recipe, got 3",
  ["cfg.py --lr=3 --b 4"] = value { config = "cfg.py", rest = { "--lr", "3", "--b", "4" } },
  [""] = "expected one recipe, got 0",
  -- what follows -- is no option
  ["cfg.py -- --a 1"] = "expected one recipe, got 3",
  ["cfg.py -x 1"] = "-x: no such option",
}

-- ---- inheritance: Lua twins in the reference's order
-- ------------------------------------------------

verdicts.base = [[
return recipe {
  lr = 1e-3, n = 4, name = "base", flag = true, nothing = recipe.none,
  items = { 1, 2, 3 }, pair = { 8, 100 },
  m = { kind = "flux", depth = 19, sub = { a = 1, b = 2 }, dims = { 16, 56, 56 } },
  buckets = { ["256px"] = { [1] = { 1.0, 50 } }, ["768px"] = { [1] = { 0.5, 11 } } },
}]]

local function row(path, kind)
  return { path, kind, none = true, help = "of the reference file", reader = "golden" }
end

verdicts.rows = {
  row("lr", "number"), row("n", "integer"), row("name", "text"), row("flag", "boolean"),
    row("nothing", "free"),
  row("items", { list = "integer" }), row("pair", { list = "integer" }),
  row("m.kind", "text"), row("m.depth", "integer"), row("m.dims", { list = "integer" }),
    row("m.inner.q", "integer"),
  row("m.sub.a", "integer"), row("m.sub.b", "integer"), row("m.sub.c", "integer"),
    row("m.sub.z", "integer"),
  row("buckets", { map = { map = "bucket", key = "integer" } }), row("plugin", "text"),
    row("plugin_config.tp", "integer"),
  row("plugin_config.sp", "integer"), row("fresh.kind", "text"), row("n2", "integer"),
    row("lr2", "number"),
  row("mm.a", "integer"), row("mm.b", "integer"), row("tag", "text"), row("opt.lr", "number"),
    row("type", "text"),
}

-- the base's values with some changed
local function based(changes)
  local out = {
    lr = 1e-3, n = 4, name = "base", flag = true, items = { 1, 2, 3 }, pair = { 8, 100 },
    m = { kind = "flux", depth = 19, sub = { a = 1, b = 2 }, dims = { 16, 56, 56 } },
    buckets = { ["256px"] = { { 1.0, 50 } }, ["768px"] = { { 0.5, 11 } } },
  }
  for key, changed in pairs(changes) do
    out[key] = changed
  end
  return out
end

-- one child of the base
local function child(body, more)
  local twin = more or {}
  twin.files = { ["base.lua"] = "base", ["c.lua"] = 'return recipe.extend("./base") ' .. body }
  twin.entry = "c"
  return twin
end

verdicts.inheritance = {
  { files = { ["base.lua"] = "base" }, entry = "base" },
  child "{ lr = 2e-3, m = { depth = 2 } }",
  child "{ m = { sub = { b = 7, c = 8 } }, items = { 9 }, pair = { 1 } }",
  child '{ m = recipe.replace { kind = "dc" } }',
  child "{ m = { sub = recipe.replace { z = 1 } } }",
  child '{ m = { kind = "dc" } }',
  -- the reference leaves its mark behind where there is nothing to delete
  child('{ fresh = recipe.replace { kind = "dc" } }',
    { value = based { fresh = { kind = "dc" } } }),
  child('{ m = recipe.replace { kind = "dc", inner = recipe.replace { q = 1 } } }',
    { value = based { m = { kind = "dc", inner = { q = 1 } } } }),
  child '{ buckets = recipe.replace { ["512px"] = { [1] = { 1.0, 3 }, [33] = { 0.5, 1 } } } }',
  child '{ buckets = { ["256px"] = { [33] = { 1.0, 2 } } } }',
  child '{ buckets = { ["256px"] = { [1] = { 0.1, 2 } } } }',
  -- a record always has its fields
  child("{ m = recipe.none }", { error = "m: expected a table of fields, got none" }),
  child("{ lr = { a = 1 } }", { error = "lr: expected number, or none, got { a = 1 }" }),
  child("{ lr = recipe.replace { a = 1 } }",
    { error = "lr: expected number, or none, got { a = 1 }" }),
  -- free data takes any shape
  child("{ nothing = { a = 1 } }", { value = based { nothing = { a = 1 } } }),
  { files = { ["base.lua"] = "base", ["c.lua"] = 'return recipe.extend("./base") { m = { depth = 2 '
    .. '} }',
      ["d.lua"] = 'return recipe.extend("./c") { lr = 5, m = { dims = { 1 } } }' }, entry = "d" },
  { files = { ["base.lua"] = "base", ["p/tp.lua"] = 'return recipe { plugin = "hybrid", '
    .. 'plugin_config = { tp = 8 } }',
      ["c.lua"] = 'return recipe.extend("./base", "./p/tp") { plugin_config = { sp = 2 } }' },
        entry = "c" },
  -- two parents may share a key: the later one wins
  { files = { ["base.lua"] = "base", ["o.lua"] = "return recipe { lr = 3 }",
    ["c.lua"] = 'return recipe.extend("./base", "./o") {}' },
    entry = "c", value = based { lr = 3 } },
  { files = { ["base.lua"] = "base", ["s/c.lua"] = 'return recipe.extend("../base") { n = 5 }' },
    entry = "s/c" },
  { files = { ["c.lua"] = 'return recipe.extend("./missing") {}' }, entry = "c",
    error = "missing.lua; './' and '../' count from the recipe itself" },
  { files = { ["base.lua"] = "local c = {} for i = 1, 3 do c[i] = 3 end " ..
      "return recipe { a = 1, b = 3, c = c, _d = 5, g = 1024, h = { x = 3 } }" }, entry = "base",
    rows = { row("a", "integer"), row("b", "integer"), row("c", { list = "integer" }),
      row("_d", "integer"), row("g", "integer"),
      row("h.x", "integer") } },
  child("{ n2 = function(r) return r.n * 2 end, "
    .. "m = { depth = function(r, inherited) return inherited + 1 end } }"),
  child("{ lr2 = function(r) return r.lr end, "
    .. "mm = function(r) return { a = r.m.sub.a, b = r.m.sub.b } end }"),
  child '{ tag = "c" }',
  -- a derived value follows what it derives from
  { files = { ["base.lua"] = "base", ["c.lua"] = 'return recipe.extend("./base") { lr = 4, opt = { '
    .. 'lr = function(r) return r.lr end } }',
      ["d.lua"] = 'return recipe.extend("./c") { lr = 6 }' }, entry = "d",
        value = based { lr = 6, opt = { lr = 6 } } },
  { files = { ["base.lua"] = 'return recipe { type = "x", filename = 1 }' },
    entry = "base", error = "filename is not a field" },
  { files = { ["base.lua"] = 'return recipe { text = "x" }' }, entry = "base",
    error = "text is not a field" },
  { files = { ["base.lua"] = "return recipe { a = 1, m = { x = { 1, 2 } } }",
      ["c.lua"] = 'return recipe.extend("./base") { m = { y = 2 } }' },
    entry = "c", rows = { row("a", "integer"), row("m.x", { list = "integer" }),
      row("m.y", "integer") } },
}

return verdicts
