--- show, why, help and what all commands share, run as by a user.
-- Covers: lua/moonreel/cli/help.lua lua/moonreel/cli/show.lua lua/moonreel/cli/why.lua
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local moonreel = folder.moonreel

describe("moonreel", function()
  it("lists its commands, without arguments and with --help", function()
    for _, words in ipairs { "", "--help", "-h", "help" } do
      local out, err, code = moonreel(words)
      assert.equal(0, code)
      assert.equal("", err)
      assert.matches("usage: moonreel COMMAND", out)
      assert.matches("\n  show     print a resolved recipe", out)
    end
  end)

  it("has a help page for each command", function()
    for _, command in ipairs(require("moonreel.cli.commands").all()) do
      local out, err, code = moonreel(command.name .. " --help")
      assert.equal(0, code, command.name .. err)
      assert.matches("^usage: moonreel " .. command.name, out)
      assert.equal(out, (moonreel("help " .. command.name)))
    end
  end)

  it("refuses words that a command does not use", function()
    for words, message in pairs {
      ["clock outputs"] = "clock: 'outputs': expected no word",
      ["health x"] = "health: 'x': expected no word", ["nodes x"] = "nodes: 'x': expected no word",
      ["node x"] = "node: 'x': expected no word",
      ["doctor recipes/tiny/demo x"] = "doctor: 'x': expected at most 1 word",
      ["golden spec/golden x"] = "golden: 'x': expected at most 1 word",
      ["data --json"] = "data: --json: expected a subcommand before its options" } do
      local out, err, code = moonreel(words)
      assert.same({ "", 2 }, { out, code }, words)
      assert.equal("moonreel: " .. message, err:sub(1, #message + 10))
    end
  end)

  it("answers an unknown command with the nearest one and exit 2", function()
    local out, err, code = moonreel("shwo x")
    assert.equal("", out)
    assert.equal("moonreel: 'shwo' is no command, did you mean 'show'?; try: moonreel help\n", err)
    assert.equal(2, code)
    -- internal modules are no commands
    assert.equal(2, select(3, moonreel("dispatch")))
    assert.equal(2, select(3, moonreel("../cli/show")))
  end)

  it("reports which kinds of things an argument could name", function()
    for words, message in pairs {
      ["plan outputs/none"] = "no recipe or run 'outputs/none'; tried: "
        .. "outputs/none/settings.json, outputs/none.lua, ",
      ["order outputs/none"] = "no recipe or run 'outputs/none'; tried: outputs/none/settings.json",
      ["order ./none"] = "there is no file ./none.lua or ./none/settings.json, for a recipe or "
        .. "run; ",
      ["sample outputs/none --prompt x"] = "no recipe, run or checkpoint 'outputs/none'; tried: "
        .. "outputs/none, outputs/none.lua, ",
      ["sample ./none --prompt x"] = "there is no file ./none.lua or ./none, for a recipe, run or "
        .. "checkpoint; " } do
      local out, err, code = moonreel(words)
      assert.same({ "", 3 }, { out, code }, words)
      assert.equal("moonreel: " .. message, err:sub(1, #message + 10))
    end
  end)

  it("starts within 20 ms of processor time", function()
    if require("moonreel.core.process").program():find("/asan/", 1, true) then
      return pending("sanitizers start slower")
    end
    local process = require "moonreel.core.process"
    local best = math.huge
    for _ = 1, 10 do
      local done = process.run { process.program(), "--version" }
      best = math.min(best, done.cpu_s)
      -- a tree that is no checkout of its own has no commit
      assert.matches("^moonreel %d+%.%d+%.%d+[ (%x)%-dirty]*\n$", done.output)
    end
    assert.is_true(best < 0.020, ("best of 10: %.1f ms"):format(best * 1e3))
  end)
end)

describe("moonreel why", function()
  it("explains values of stages, and notes when a recipe applies to all of them", function()
    local dir = folder.new()
    dir:write("one.lua", "return recipe { lr = 2 }")
    local path = dir:write("all.lua", "return recipe { stages = {\n { name = 'a', recipe = './one' "
      .. "},\n { name = 'b', lr = 3 } } }")
    local out, err, code = moonreel("why " .. path .. " stages.a.lr")
    assert.equal(0, code, err)
    assert.equal("", err)
    assert.matches("\n +2%.0 +[^\n]*one%.lua:1", out)
    assert.matches("\n +3%.0 +[^\n]*all%.lua:3", (moonreel("why " .. path .. " stages.b.optim.lr")))
    out, err = moonreel("why " .. path .. " lr")
    assert.matches("default", out)
    assert.matches("note: .*try: moonreel why .*all%.lua stages%.a%.lr\n$", err)
    out, err, code = moonreel("why --stage b " .. path .. " stages.a.lr")
    assert.equal(2, code, out .. err)
    out, err, code = moonreel("why " .. path .. " stages.c.lr")
    assert.equal(2, code, out)
    assert.matches("no stage 'c'", err)
    dir:remove()
  end)
end)

describe("moonreel show", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("a.lua", 'return recipe {\n  lr = 1e-3,\n  optim = { eps = 0.5 },\n  name = '
      .. '"esc\\27[31m" }')
    dir:write("b.lua", 'return recipe.extend("./a") { seed = 3 }')
  end)
  teardown(function() dir:remove() end)

  it("prints each field with the line that set it", function()
    local out, err, code = moonreel("show " .. dir.path .. "/b epochs=3")
    assert.equal(0, code, err)
    assert.matches("\noptim%.lr +0%.001 +/.-/a%.lua:2\n", out)
    assert.matches("\nseed +3 +/.-/b%.lua:1\n", out)
    assert.matches("\nepochs +3 +epochs=3\n", out)
    assert.matches("\nlog_every +1 +default\n", out)
    assert.matches("\nhash %x+\n$", out)
    -- fields that were set come first
    local set, defaults = out:match("^(.-)\nat their defaults:\n(.*)$")
    assert.is_nil(set:find(" default\n", 1, true))
    assert.is_nil(defaults:find("a.lua", 1, true))
    assert.matches("\nepochs +3 ", set)
    -- control characters never reach the terminal
    assert.is_nil(out:find("\27"))
  end)

  it("prints equal entries once, in the table and for a record", function()
    dir:write("buckets.lua", [[local of = {}
for frames = 5, 33, 4 do of[frames] = { 1.0, frames < 20 and 8 or 4 } end
of[34] = { 1.0, 4 }
return recipe { bucket_config = { a = of, b = { [1] = { 1.0, 8 }, [2] = { 1.0, 8 } } } }]])
    local out = moonreel("show --changed " .. dir.path .. "/buckets")
    assert.matches("\nbucket_config%.a%.5, 9 %.%. 17 +{ 1%.0, 8 } ", out)
    assert.matches("\nbucket_config%.a%.21, 25 %.%. 33 +{ 1%.0, 4 } ", out)
    assert.matches("\nbucket_config%.a%.34 +{ 1%.0, 4 } ", out)
    assert.matches("\nbucket_config%.b%.1, 2 +{ 1%.0, 8 } ", out)
    local tree = moonreel("show --tree --changed " .. dir.path .. "/buckets")
    assert.matches("^bucket_config\n  a\n    5, 9 %.%. 17 = { 1%.0, 8 } +%-%- "
      .. "[^\n]+buckets%.lua:1.-\n  b\n    1, 2 = { 1%.0, 8 } ", tree)
  end)

  it("prints the names of a reference system", function()
    local out, err, code = moonreel("show --as opensora-2.0 opensora-2.0/train/stage2_i2v")
    assert.equal(0, code)
    for _, line in ipairs { "optim%.cls +\"HybridAdam\"", "ae%.type +\"hunyuan_vae\"",
        "t5%.from_pretrained", "grad_clip +1%.0" } do
      assert.matches("\n" .. line, out)
    end
    assert.matches('note: compat = "opensora%-2%.0" has no name in opensora%-2%.0', err)
    assert.equal(2, select(3, moonreel("show --as opensora-3 opensora-2.0/train/stage1")))
  end)

  it("prints JSON that settings can read, and Lua that bakes to the same hash", function()
    local out = moonreel("show --json " .. dir.path .. "/b")
    local decoded = json.decode(out)
    assert.equal(0.001, decoded.settings.optim.lr)
    assert.matches("a%.lua:2$", decoded.origin["optim.lr"][2].at)
    assert.equal(json.null, decoded.settings.warmup_steps)
    dir:write("flat.lua", (moonreel("show --lua " .. dir.path .. "/b")))
    assert.equal(decoded.hash,
      json.decode((moonreel("show --json " .. dir.path .. "/flat.lua"))).hash)
  end)

  it("prints only fields that were set or that differ, and exits with 1 on differences", function()
    local out = moonreel("show --changed " .. dir.path .. "/b")
    assert.matches("optim%.eps +0%.5", out)
    assert.is_nil(out:find("log_every"))
    local differing, _, code = moonreel(("show %s/b --diff %s/a"):format(dir.path, dir.path))
    assert.equal(1, code)
    assert.matches("seed +3 +1024 +refuse\n$", differing)
    assert.equal(0, select(3, moonreel(("show %s/b --diff %s/b"):format(dir.path, dir.path))))
  end)

  it("refuses options that another option would ignore", function()
    for words, message in pairs { ["--json --lua"] = "--json cannot be combined with --lua, which "
      .. "allows --stage; try: one command after the other",
        ["--changed --json"] = "--changed cannot be combined with --json, which "
        .. "allows --stage; try: one command after the other",
        ["--tree --diff " .. dir.path .. "/a"] = "--tree cannot be combined with --diff, which "
          .. "allows --stage, --json; try: one command after the other" } do
      assert.same({ "", "moonreel: show: " .. message .. "\n", 2 },
        { moonreel("show " .. dir.path .. "/b " .. words) })
    end
  end)

  it("shortens long values around their difference", function()
    local alike = ("\u{e4}"):rep(300)
    for name, text in pairs { c = "x" .. alike, d = "y" .. alike, e = "x" .. alike .. "end" } do
      dir:write(name .. ".lua", ("return recipe { sampling = { prompts = { %q } } }"):format(text))
    end
    local function differing(a, b, ...)
      return (moonreel(("show %s/%s --diff %s/%s "):format(dir.path, a, dir.path, b)
        .. table.concat({ ... }, " ")))
    end
    local out = differing("c", "d")
    assert.matches('\nsampling%.prompts +{ "x[\u{e4}]+%.%.%. +{ "y[\u{e4}]+%.%.%. ', out)
    for line in out:gmatch "[^\n]+" do
      assert.is_true(utf8.len(line) < 200, line)
    end
    local last = ("\u{e4}"):rep(20)
    assert.matches("\nsampling%.prompts +%.%.%." .. last .. '" } +%.%.%.' .. last .. 'end" } ',
      differing("c", "e"))
    assert.equal(('{ "x%s" }'):format(alike), json.decode(differing("c", "e", "--json"))[1].now)
  end)

  it("exits with 2 for errors of the command line, 3 for those of the recipe", function()
    local _, err, code = moonreel("show " .. dir.path .. "/b lrr=3")
    assert.equal(2, code)
    assert.equal("moonreel: lrr=3: lrr is not a field, did you mean 'lr'?\n", err)
    dir:write("bad.lua", "return recipe {\n  lr = 'x' }")
    _, err, code = moonreel("show " .. dir.path .. "/bad")
    assert.equal(3, code)
    assert.matches("bad%.lua:2: optim%.lr: expected number of at least 0, got text \"x\"", err)
    _, err, code = moonreel("show")
    assert.equal(2, code)
    assert.matches("expected one recipe, got 0", err)
    _, err, code = moonreel("resume outputs/001-x")
    assert.equal(2, code)
    assert.equal("moonreel: 'resume' is no command; try: moonreel train RUN\n", err)
    _, err, code = moonreel("show tiny/demoo")
    assert.equal(3, code)
    assert.matches("no recipe 'tiny/demoo', did you mean 'tiny/demo'", err)
    -- a run has its recipe in its settings
    dir:write("001-run/recipe.lua", "return recipe { seed = 3 }")
    _, err, code = moonreel("show " .. dir.path .. "/001-run/")
    assert.equal(3, code)
    assert.matches("try: " .. dir.path:gsub("%p", "%%%0") .. "/001%-run/recipe\n$", err)
    _, err, code = moonreel("show configs/stage1.py")
    assert.equal(2, code)
    assert.matches("is a recipe of the reference; moonreel's are Lua", err)
  end)
end)

describe("moonreel why", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("a.lua", "return recipe {\n  lr = 1e-3, epochs = 2,\n  warmup_steps = function(r) "
      .. "return r.epochs * 80 end }")
    dir:write("b.lua", 'return recipe.extend("./a") {\n  lr = 2e-3 }')
  end)
  teardown(function() dir:remove() end)

  it("prints the chain, oldest first, with replaced and dependent values", function()
    local out, err, code = moonreel("why " .. dir.path .. "/b lr --lr 3e-3")
    assert.equal(0, code, err)
    local lines = {}
    for line in out:gmatch("[^\n]+") do
      lines[#lines + 1] = line
    end
    assert.equal(5, #lines)
    assert.matches("^optim%.lr +0%.0001 +default", lines[2])
    assert.matches("a%.lua:2 +0%.0001", lines[3])
    assert.matches("b%.lua:2 +0%.001", lines[4])
    assert.matches("0%.003 +%-%-lr 3e%-3 +0%.002", lines[5])
    assert.matches("\n +2 +/.-/a%.lua:2 +1000 +%- +warmup_steps\n$",
      (moonreel("why " .. dir.path .. "/b epochs")))
    assert.matches("160 +/.-/a%.lua:3 +none +epochs",
      (moonreel("why " .. dir.path .. "/b warmup-steps")))
  end)

  it("does not list dependent values that have been replaced since", function()
    local out = moonreel("why opensora-1.2/lambda/stage6 lr")
    -- bump.lua sets min_lr itself, in place of the mixin's function
    assert.matches("8e%-05 +recipes/opensora%-1%.2/lambda/stage6%.lua:2 +0%.00016 +%- +max_lr\n$",
      out)
  end)

  it("has a JSON form and refuses unknown keys", function()
    local rows = json.decode((moonreel("why --json " .. dir.path .. "/b lr")))
    assert.equal(3, #rows)
    assert.equal("0.002", rows[3].value)
    local _, err, code = moonreel("why " .. dir.path .. "/b lrr")
    assert.equal(2, code)
    assert.matches("lrr is not a field, did you mean 'lr'", err)
  end)
end)

describe("moonreel train", function()
  it("refuses arguments that only a rendering reads", function()
    for words, path in pairs { ["resolution=240p"] = "resolution", ["num_frames=3"] = "frames",
        ["--sampling.seeds=[1]"] = "seeds", ["sampling.height=32"] = "height" } do
      local _, err, code = moonreel("train tiny/demo data_path=none.mrx " .. words)
      assert.equal(2, code, err)
      local message = ("%s: sampling.%s is read by `moonreel sample`"):format(words, path)
      assert.is_truthy(err:find(message, 1, true), err)
    end
    for _, command in ipairs { "train", "plan" } do
      local _, err, code = moonreel(command .. " tiny/demo sampling.on=device sampling.every=0")
      assert.equal(2, code, err)
      assert.is_truthy(err:find("sampling.on=device: sampling.on is read by runs that render while "
        .. "they train, and this run does not; try: set sampling.every=N, too", 1, true), err)
      _, err, code = moonreel(command .. " tiny/demo scheduler.cfg_scale=3")
      assert.equal(2, code, err)
      assert.is_truthy(err:find("scheduler.cfg_scale is read by `moonreel sample`, but "
        .. command .. " would not read it", 1, true), err)
    end
    -- arguments that the model does not read
    local _, unread, two = moonreel("train tiny/demo sigma_min=0.1")
    assert.equal(2, two)
    assert.is_truthy(unread:find("sigma_min is read only when model.type is \"flux\", and it is "
      .. "\"STDiT3\"", 1, true), unread)
    local _, err, code = moonreel("train tiny/demo batch_size=4 data_path=none.mrx")
    assert.equal(2, code)
    assert.is_truthy(err:find("bucket_config has the sizes and lengths to train on", 1, true), err)
  end)
end)

describe("moonreel help", function()
  it("lists all fields, also as JSON", function()
    local out = moonreel("help fields")
    assert.matches("\noptim%.lr +number +0%.0001 +learning rate", out)
    local rows = json.decode((moonreel("help fields --json")))
    assert.is_true(#rows > 80)
    for _, row in ipairs(rows) do
      assert.is_true(type(row.help) == "string" and #row.help > 5, row.field)
    end
  end)

  it("refuses words after the last that a page of help reads", function()
    assert.equal(moonreel "help ckpt", moonreel "help ckpt diff")
    for words, most in pairs { ["fields clip"] = 1, ["ckpt lr"] = 1, ["train lr"] = 1,
      ["lr model"] = 1,
      ["optim adamw lr"] = 2, ["stubs /none lr"] = 2, ["ckpt ls lr"] = 2 } do
      local list = {}
      for word in words:gmatch "%S+" do
        list[#list + 1] = word
      end
      local out, err, code = moonreel("help " .. words)
      assert.same({ "", 2 }, { out, code })
      assert.equal(("moonreel: help: expected nothing after '%s', got '%s'; try: moonreel help "
        .. "%s\n"):format(list[most], list[most + 1], table.concat(list, " ", 1, most)), err)
    end
  end)

  it("prints a page of all fields", function()
    local out = moonreel("help fields --markdown")
    assert.matches("\n## optim, also `optimizer`\n\n| field | values", out)
    assert.matches("\n| `optim%.lr` | number of at least 0 | `0%.0001` | lr, learning_rate, lrate "
      .. "| warn | learning rate", out)
    assert.matches("\n## vae, also `ae`, `autoencoder`\n", out)
    assert.matches("\n| `load_master_weights` | true or false | `true` |  | free | .-; no meaning "
      .. "here: masters are always loaded", out)
    -- docs/fields.md is this page
    assert.is_true(out == require("moonreel.core.base").read_file("docs/fields.md"),
      "fields have changed: moonreel help fields --markdown > docs/fields.md")
  end)

  it("explains a field under any spelling", function()
    assert.matches("^optim%.lr: learning rate", (moonreel("help lr")))
    assert.matches("also +lr, learning_rate", (moonreel("help optim.lr")))
    -- one path under two types
    local both = moonreel("help model.patch_size")
    assert.matches("of +STDiT3.-expects +a list of 3 integer", both)
    assert.matches("of +flux\n  expects +integer of at least 1", both)
    assert.matches("^env.NCCL_IB_HCA: InfiniBand", (moonreel("help env.NCCL_IB_HCA")))
    -- a record under either name, with its fields only
    local record = moonreel("help optim_discriminator")
    assert.matches("\ndiscriminator_optim%.lr ", record)
    assert.is_nil(record:find("\noptim.lr", 1, true))
  end)

  it("prints what a recipe can use, and which recipes exist", function()
    assert.matches("recipe%.replace{}.*math%.abs, .*string%.upper", (moonreel("help recipe")))
    local recipes = moonreel("help recipes")
    assert.matches("\nopensora%-2%.0/train/stage2 +Stage 2: clips at 768px, tokens shared by 4 "
      .. "ranks%. *\n", recipes)
    -- files that recipes share are no recipes
    for _, helper in ipairs { "lib/masks", "lib/tiny_vae", "mixins/bump", "opensora-1.2/base",
        "opensora-1.2/buckets", "opensora-2.0/parts", "opensora-2.0/inference/plugins/tp" } do
      assert.is_nil(recipes:find("\n" .. helper .. " ", 1, true), helper)
    end
    for _, row in ipairs(json.decode((moonreel("help recipes --json")))) do
      assert.is_true(#row.about > 10, row.name)
    end
  end)

  it("prints the fields of a record for a type, with its defaults", function()
    assert.matches("\nmodel%.depth +integer +by type .*\nmoonreel help model TYPE: .*\n"
      .. "STDiT3%-3B/2 +3B parameters", (moonreel("help model")))
    local large = moonreel("help model STDiT3-3B/2")
    assert.matches("\nmodel%.hidden_size +integer +1872 ", large)
    assert.is_nil(large:find("model.depth_single_blocks", 1, true))
    assert.matches("\nmodel%.hidden_size +integer +3072 ", (moonreel("help model flux")))
    local _, err, code = moonreel("help model foo")
    assert.equal(2, code)
    assert.matches("help model: there is no model.type 'foo'; there are .*STDiT3%-XL/2, ", err)
  end)

  it("answers an unknown word with exit 2", function()
    local _, err, code = moonreel("help epoch")
    assert.equal(2, code)
    assert.matches("'epoch' is no command, topic or field, did you mean 'epochs'", err)
  end)
end)
