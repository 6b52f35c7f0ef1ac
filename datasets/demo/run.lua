--- The demonstration: `moonreel datasets/demo/run.lua [--recipe NAME] [--out DIR] [--run RUN]
-- [--json] [key=value ...]`. Trains recipes/tiny/demo or NAME (or takes --run), sends fresh clips
-- through a learned autoencoder, renders held-out and seen prompts, or continues first frames if
-- the model gets them, measures the clips, prints tables and the verdict, and leaves clips,
-- sheet.png and result.json in DIR. Exit code 1 when a promise is broken. With --json the
-- last line is the content of result.json, in place of the tables.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local given = require "datasets.demo.given"
local held_out = require "datasets.demo.held_out"
local json = require "moonreel.core.json"
local measure = require "datasets.demo.measure"
local reconstruct = require "datasets.demo.reconstruct"
local report = require "datasets.demo.report"
local sheet = require "datasets.demo.sheet"
local world = require "datasets.demo.world"

local ENLARGE = 4

local function say(...)
  io.stdout:write(string.format(...), "\n")
  io.stdout:flush()
end

-- {recipe, out, run, json, overrides} from the command line
local function read_arguments(words)
  local o = { recipe = "tiny/demo", out = "build/demo/result", overrides = {} }
  local i = 1
  while i <= #words do
    local word = words[i]
    if word == "--out" or word == "--run" or word == "--recipe" then
      o[word:sub(3)] = words[i + 1] or base.raise("MR_E_USAGE", ("%s: expected a %s, got nothing")
        :format(word, word == "--recipe" and "recipe" or "folder"))
      i = i + 1
    elseif word == "--json" then
      o.json = true
    else
      o.overrides[#o.overrides + 1] = word
    end
    i = i + 1
  end
  return o
end

-- the word of a list of rows or names that a caption holds
local function word_in(text, list)
  for _, row in ipairs(list) do
    local name = type(row) == "table" and row[1] or row
    if text:find("%f[%a]" .. name .. "%f[%A]") then
      return name
    end
  end
end

-- run the measuring program over every training clip, as decoded
local function check_measure(d)
  local index <close> = data.open(d.settings.dataset.data_path)
  local n = { clips = #index, colour = 0, direction = 0 }
  for i = 1, #index do
    local row = index:row(i)
    local pixels, facts = data.decode(row.file)
    local found = measure.find(pixels, facts.frames, facts.height, facts.width) or {}
    -- captions of motion alone name no colour
    local colour = word_in(row.text, world.colours)
    if not colour or found.colour == colour then
      n.colour = n.colour + 1
    end
    if found.direction == word_in(row.text, world.directions) then
      n.direction = n.direction + 1
    end
  end
  d.measured = n
  say("measuring program on the training clips: colour right in %d of %d, direction in %d",
    n.colour, n.clips, n.direction)
end

-- settings of the recipe, or of the last of its stages; those come in `stages`
local function bake(d)
  local settings = require "moonreel.settings"
  local whole = settings.bake(d.recipe, d.overrides)
  d.settings = whole
  for i, stage in ipairs(whole.stages and whole:plain("stages") or {}) do
    d.stages = d.stages or { whole = whole }
    d.settings = settings.bake(d.recipe, d.overrides, { stage = stage.name })
    d.stages[i] = { name = stage.name, settings = d.settings }
  end
end

local function train_recipe(d)
  if d.stages then
    local code = require("moonreel.trainer.stages").run(d.stages.whole, d.stages)
    return code, "latest"
  end
  local code, facts = require("moonreel.trainer").run(d.settings)
  return code, facts.dir
end

local function train(d)
  local name = require("moonreel.trainer.check").name(d.settings)
  if not d.run then
    local code, dir = train_recipe(d)
    if code ~= 0 then
      return code
    end
    d.run = dir
  end
  d.run = require("moonreel.ckpt").resolve(d.run, d.settings.outputs, name).run
  local losses, first_wall, last_wall = {}, nil, nil
  for entry in require("moonreel.run").entries(d.run) do
    if entry.kind == "step" then
      losses[entry.step] = entry.loss
      first_wall, last_wall = first_wall or entry.wall, entry.wall
    end
  end
  d.steps, d.train_s = #losses, last_wall - first_wall
  d.loss_first, d.loss_last = report.loss_ends(losses, 50)
  say("loss: %.4f over the first 50 steps, %.4f over the last 50 of %d (%.0f s)",
    d.loss_first, d.loss_last, d.steps, d.train_s)
end

-- is the model given a first frame?
local function is_given(d) return d.settings.condition_config ~= nil end

-- {set, prompt, asked} for both sets of triples
local function questions(d)
  if is_given(d) then
    local s = d.settings.sampling
    return given.questions(d.out .. "/frames", s.height, s.width)
  end
  local out = {}
  for _, set in ipairs { { "held-out", world.held_out }, { "seen", world.seen } } do
    for i, triple in ipairs(set[2]) do
      local scene = { colour = triple[1], shape = triple[2], direction = triple[3],
        background = world.backgrounds[(i - 1) % #world.backgrounds + 1][1] }
      out[#out + 1] = { set = set[1], prompt = world.caption(scene, 1), asked = scene,
        found = {}, clips = {} }
    end
  end
  return out
end

local function render(d)
  local started = base.now_s()
  d.rows = questions(d)
  local prompts, references = {}, is_given(d) and {} or nil
  for i, row in ipairs(d.rows) do
    prompts[i] = row.prompt
    if references then
      references[i] = row.reference
    end
  end
  local sampler <close> = require("moonreel.sample").open(d.run, { threads = d.settings.threads })
  -- one that is learned has weights of its own
  if d.settings.vae.from_pretrained then
    local s = d.settings.sampling
    d.reconstructed = reconstruct.measure(sampler.codec,
      { frames = s.frames, height = s.height, width = s.width })
  end
  -- captions of the training had neither rate nor motion
  local clips = sampler:render { prompts = prompts, references = references,
    plain = references and true or nil }
  local per_prompt = #clips // #prompts
  for i, clip in ipairs(clips) do
    local row = d.rows[(i - 1) // per_prompt + 1]
    row.clips[#row.clips + 1] = clip
  end
  d.render_s = base.now_s() - started
end

local function measure_all(d)
  for _, row in ipairs(d.rows) do
    for k, clip in ipairs(row.clips) do
      row.found[k] = measure.find(clip.pixels, clip.frames, clip.height, clip.width) or false
      clip.mark = report.mark(row.asked, row.found[k] or nil)
    end
  end
end

local function write_files(d)
  base.make_dir(d.out)
  local lines = {}
  for i, row in ipairs(d.rows) do
    lines[i] = row.clips
    for _, clip in ipairs(row.clips) do
      local a = row.asked
      data.encode(("%s/%s-%s-%s-%s-%d.mp4"):format(d.out, (row.set:gsub(" ", "-")), a.colour,
        a.shape, a.direction, clip.seed),
        sheet.enlarge(clip.pixels, clip.width, ENLARGE),
          { frames = clip.frames, height = clip.height * ENLARGE,
          width = clip.width * ENLARGE, fps = clip.fps })
    end
  end
  local clip = lines[1][1]
  local pixels, height, width = sheet.compose(lines, clip.frames, clip.height, clip.width)
  data.png(d.out .. "/sheet.png", pixels, { height = height, width = width })
end

-- the loss on clips that show what training does not
local function measure_loss(d)
  if not is_given(d) then
    d.held_out_loss = held_out.measure(d.run, d.out .. "/held-out", d.settings)
    say("\n%s", report.loss_table(d.held_out_loss))
  end
end

-- tables, verdict, result.json
local function conclude(d)
  local sets, result = is_given(d) and given.sets or { "held-out", "seen" },
    { run = d.run, steps = d.steps, loss_first = d.loss_first,
    loss_last = d.loss_last, train_s = d.train_s, render_s = d.render_s,
      measure_on_training = d.measured,
      reconstructed = d.reconstructed, held_out_loss = d.held_out_loss, prompts = {} }
  for _, set in ipairs(sets) do
    local rows = {}
    for _, row in ipairs(d.rows) do
      if row.set == set then
        rows[#rows + 1] = row
      end
    end
    result[set] = report.count(rows)
    say("\n%s", report.table(set, rows))
  end
  for i, row in ipairs(d.rows) do
    local found = {}
    for k, f in ipairs(row.found) do
      found[k] = f and { colour = f.colour, direction = f.direction, dx = f.dx, dy = f.dy }
        or json.null
    end
    result.prompts[i] = { set = row.set, prompt = row.prompt, colour = row.asked.colour,
      direction = row.asked.direction, found = found }
  end
  local ok, sentences
  if is_given(d) then
    ok, sentences = report.verdict_given(d.loss_first, d.loss_last, result)
  else
    ok, sentences = report.verdict(d.loss_first, d.loss_last, result["held-out"],
      d.held_out_loss, d.reconstructed)
  end
  result.ok = ok
  base.replace_file(d.out .. "/result.json", json.encode(result) .. "\n")
  say("\n%s", table.concat(sentences, "\n"))
  say("trained %.0f s, rendered %.0f s; clips, sheet.png and result.json are in %s",
    d.train_s, d.render_s, d.out)
  if d.json then
    print(json.encode(result))
  end
  return ok and 0 or 1
end

local d = read_arguments(arg)
-- the tables are in the JSON too
if d.json then
  say = function() end
end
for _, step in ipairs { bake, check_measure, train, render, measure_all, write_files,
    measure_loss, conclude } do
  local code = step(d)
  if code and code ~= 0 then
    return code
  end
end
return 0
