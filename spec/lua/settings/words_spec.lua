--- Words of a command line: options, fields and positional words.
local words_of = require "moonreel.settings.words"

local command = { name = "try", overrides = true,
  options = { { "--json", "" }, { "--out FILE", "" },
  { "--tag WORD", "", many = true, empty = true },
  { "--size A B", "", takes = function(word) return word:find("^%d+$") end },
  { "--text WORD", "", many = true, takes = function(word, parsed)
    return #parsed.positional > 0 and not word:find("^%-")
  end },
  { "-n, --nproc_per_node N", "" }, { "--keep N", "", least = 1 }, { "RECIPE", "only help" } } }

local function parse(...) return words_of.parse({ ... }, command) end

local function fails(...)
  local ok, problem = pcall(parse, ...)
  assert.is_false(ok)
  assert.equal(2, problem.exit)
  return problem.message
end

describe("words.parse", function()
  it("splits options, fields and positional words, in any order", function()
    local p = parse("--json", "--out", "f", "recipe.lua", "lr=1", "--epochs",
      "3", "--optim.eps=4", "other")
    assert.same({ json = true, out = "f" }, p.options)
    assert.same({ "recipe.lua", "other" }, p.positional)
    assert.same({ { key = "lr", text = "1", argument = "lr=1" },
      { key = "epochs", text = "3", argument = "--epochs 3" },
      { key = "optim.eps", text = "4", argument = "--optim.eps=4" } }, p.overrides)
  end)

  it("splits at the first =, and accepts negative numbers as values", function()
    local p = parse("name=a=b", "--lr", "-1", "--outputs=x=y")
    assert.same({ "a=b", "-1", "x=y" }, { p.overrides[1].text, p.overrides[2].text,
      p.overrides[3].text })
  end)

  it("gives a bare flag the next word only when it is a boolean", function()
    local p = parse("--grad_checkpoint", "recipe", "--start-from-scratch",
      "false", "--no-grad_checkpoint", "--json", "false")
    assert.same({ "recipe" }, p.positional)
    assert.is_nil(p.overrides[1].text)
    assert.equal("false", p.overrides[2].text)
    assert.equal("no-grad_checkpoint", p.overrides[3].key)
    assert.is_false(p.options.json)
    assert.is_false(parse("--no-json").options.json)
  end)

  it("treats - and _ in names alike, and accepts short and repeated options", function()
    local p = parse("--nproc-per-node", "4", "--tag", "a", "--tag=b")
    assert.equal("4", p.options.nproc_per_node)
    assert.same({ "a", "b" }, p.options.tag)
    assert.equal("8", parse("-n", "8").options.nproc_per_node)
    assert.equal("8", parse("-n8").options.nproc_per_node)
  end)

  it("takes the further words that belong to an option", function()
    local p = parse("--text", "a", "recipe", "--size", "3", "4", "other", "--text", "b", "c d",
      "--json")
    assert.same({ "a", "b", "c d" }, p.options.text)
    assert.same({ "3 4", true }, { p.options.size, p.options.json })
    assert.same({ "recipe", "other" }, p.positional)
    assert.equal("3", parse("--size=3").options.size)
  end)

  it("accepts whole numbers for options that need one", function()
    assert.equal(3, parse("--keep", "3").options.keep)
    for _, word in ipairs { "--keep=0", "--keep=2.5", "--keep=all" } do
      assert.matches("try: %-%-keep: expected a whole number of at least 1, got", fails(word))
    end
    assert.matches("try: %-n: expected N, got nothing; try: %-n N", fails("-n"))
  end)

  it("restores a pattern that the shell has expanded", function()
    local dir = require("spec.support.folder").new()
    local a, b = dir:write("epoch0-global_step100/x", ""), dir:write("epoch1-global_step200/x", "")
    a, b = a:gsub("/x$", ""), b:gsub("/x$", "")
    local recipe = dir:write("mine.lua", "return recipe {}")
    local p = parse("--ckpt-path", a, b, recipe, "lr=1")
    assert.equal("{" .. a .. "," .. b .. "}", p.overrides[1].text)
    assert.same({ recipe }, p.positional)
    -- one file, or a name that is no file, is unchanged
    assert.equal(a, parse("--load", a, "tiny/demo").overrides[1].text)
    assert.same({ "tiny/demo" }, parse("--load", a, "tiny/demo").positional)
    -- only existing names come from a pattern
    for _, two in ipairs { { "no-such", "spec" }, { "spec", "no-such" } } do
      local q = parse("--load", two[1], two[2])
      assert.same({ two[1], { two[2] } }, { q.overrides[1].text, q.positional })
    end
    dir:remove()
  end)

  it("gives a flag the next word when that is like a value, even one that is refused",
    function()
    for _, word in ipairs { "true", "0", "none", "yes", "off", "recipe.remove" } do
      local p = parse("--grad-checkpoint", word, "tiny/demo")
      assert.same({ "tiny/demo" }, p.positional)
      assert.equal(word, p.overrides[1].text)
      assert.equal("--grad-checkpoint " .. word, p.overrides[1].argument)
    end
    assert.same({ "tiny/demo" }, parse("--grad-checkpoint", "tiny/demo").positional)
    local folder = require "spec.support.folder"
    local _, err, code = folder.moonreel("show --grad-checkpoint yes tiny/demo")
    assert.equal(2, code)
    assert.equal("moonreel: --grad-checkpoint yes: grad_checkpoint: expected true or false, got "
      .. "'yes'; try: true\n", err)
    _, err, code = folder.moonreel("show --grad-checkpoint none tiny/demo")
    assert.equal(2, code)
    assert.equal("moonreel: --grad-checkpoint none: grad_checkpoint: expected true or false, got "
      .. "'none'\n", err)
  end)

  it("ends options at --", function()
    local p = parse("--json", "--", "--out", "lr=1")
    assert.same({ "--out", "lr=1" }, p.positional)
  end)

  it("refuses more words than a command accepts", function()
    local none = { name = "none", usage = "none [--json]", most = 0,
      options = { { "--json", "" } } }
    local one = { name = "one", usage = "one [RECIPE]", most = 1 }
    assert.same({ json = true }, words_of.parse({ "--json" }, none).options)
    assert.same({ "r" }, words_of.parse({ "r" }, one).positional)
    for _, case in ipairs { { none, { "--json", "outputs" },
      "none: 'outputs': expected no word; usage: moonreel none [--json]" },
      { one, { "r", "s", "t" },
        "one: 's': expected at most 1 word; usage: moonreel one [RECIPE]" } } do
      local ok, problem = pcall(words_of.parse, case[2], case[1])
      assert.is_false(ok)
      assert.same({ 2, case[3] }, { problem.exit, problem.message })
    end
  end)

  it("refuses options that do not belong to the chosen question", function()
    local ask = { name = "ask", questions = { { "all", "" }, { "fit", "gpus json-lines" } },
      options = { { "--all", "" }, { "--fit", "" }, { "--fit-more", "" }, { "--gpus N", "" },
        { "-n, --nodes N", "" }, { "--json-lines", "" }, { "--json", "" },
        { "FIT", "only help" } } }
    local function refused(...)
      local ok, problem = pcall(words_of.parse, { ... }, ask)
      assert.is_false(ok)
      assert.equal(2, problem.exit)
      return problem.message
    end
    assert.same({ fit = true, gpus = "8", json_lines = true },
      words_of.parse({ "--fit", "--gpus=8", "--json-lines" }, ask).options)
    -- without a question all options may be combined
    assert.same({ fit_more = true, nodes = "2", json = true },
      words_of.parse({ "--fit-more", "-n2", "--json" }, ask).options)
    local takes = " cannot be combined with --fit, which allows --gpus, --json-lines; try: one "
      .. "command after the other"
    for words, name in pairs { ["--fit-more"] = "fit-more", ["--json"] = "json",
      ["-n2"] = "nodes" } do
      assert.equal("ask: --" .. name .. takes, refused("--fit", words))
    end
    -- the error names the first of the chosen questions
    assert.equal("ask: --fit cannot be combined with --all, which allows no other; try: one "
      .. "command after the other", refused("--fit", "--all"))
  end)

  it("names words that are missing or unknown", function()
    assert.equal("try: --lr: expected VALUE, got nothing; try: --lr=VALUE", fails("--lr"))
    assert.equal("try: --lr: expected VALUE, got nothing; try: --lr=VALUE",
      fails("--lr", "--epochs", "3"))
    assert.equal("try: --out: expected FILE, got nothing; try: --out=FILE", fails("--out"))
    assert.equal("try: --out: expected FILE, got nothing", fails("--out", ""))
    assert.equal("try: --out: expected FILE, got nothing", fails("--out="))
    assert.equal("try: -n: expected N, got nothing", fails("-n", ""))
    assert.same({ "", "a" }, parse("--tag", "", "--tag=a").options.tag)
    assert.equal("try: --jsno: no such option, did you mean '--json'?", fails("--jsno"))
    assert.equal("try: --lrr: lrr is not a field, did you mean 'lr'?", fails("--lrr", "3"))
    assert.equal("try: --json: expected true or false, got 'maybe'", fails("--json=maybe"))
    assert.equal("try: -x: no such option; try: moonreel try --help", fails("-x"))
    -- abbreviations are unknown
    assert.matches("epoch is not a field, did you mean 'epochs'", fails("--epoch", "3"))
  end)

  it("refuses fields for commands without a recipe", function()
    local ok, problem = pcall(words_of.parse, { "--lr", "3" }, { name = "ls", options = {} })
    assert.is_false(ok)
    assert.equal("ls: --lr: no such option; try: moonreel ls --help", problem.message)
    assert.same({ "lr=3" }, words_of.parse({ "lr=3" }, { name = "ls" }).positional)
  end)
end)

describe("options and fields", function()
  -- a rendering has a seed and steps of its own, which the short names mean there
  local renderings = { prompt = true, seed = true, ["num-frames"] = true, steps = true, fps = true,
    ["batch-size"] = true, ["reference-path"] = true, ["mask-strategy"] = true, neg = true,
    threads = true, device = true }

  it("have different names", function()
    local override = require "moonreel.recipe.override"
    for _, one in ipairs(require("moonreel.cli.commands").all()) do
      if one.overrides then
        for _, row in ipairs(words_of.rows(one.options)) do
          local listed = (one.name == "sample" or one.name == "watch")
            and renderings[row.name]
          assert.is_true(listed or override.target(row.name) == nil,
            one.name .. " --" .. row.name .. " is a field as well")
        end
      end
    end
  end)
end)
