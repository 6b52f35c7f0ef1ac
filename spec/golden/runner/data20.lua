--- Kinds of JSON reference files about the data of Open-Sora 2.0: {pattern over the stem,
-- function(text, check, folder)}.
-- @module spec.golden.runner.data20
local base = require "moonreel.core.base"
local aspects = require "moonreel.data.aspects"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local epochs = require "spec.golden.runner.epochs"
local generators = require "moonreel.data.generators"
local json = require "moonreel.core.json"
local names = require "moonreel.sample.names"
local opensora20 = require "moonreel.data.opensora20"

local function given(value) return value ~= json.null and value or nil end

local function differing(got, want)
  local n = #got == #want and 0 or 1
  for i, value in ipairs(want) do
    n = n + (got[i] == value and 0 or 1)
  end
  return n
end

local function aspect_fps(text, result)
  local file, sizes, rates, nearest = json.decode(text), 0, 0, 0
  for name, wanted in pairs(file.tables) do
    local grid, of, use = name:match("^D(%d+)/([^/]+)/(%l+)$")
    local pixels = aspects.resolution(of).pixels
    sizes = sizes + (pixels == wanted.pixels and 0 or 1)
    local rows, count = aspects.sizes(pixels, math.tointeger(grid), use == "train"), 0
    for _, row in ipairs(rows) do
      local want = wanted.table[row.name]
      sizes = sizes + (want and want[1] == row.height and want[2] == row.width and 0 or 1)
    end
    for _ in pairs(wanted.table) do
      count = count + 1
    end
    sizes = sizes + (count == #rows and 0 or 1)
  end
  local train = aspects.resolution("256px").aspects
  for _, case in ipairs(file.closest_ratio_256px_train) do
    nearest = nearest + (aspects.nearest(train, case[1], case[2]).name == case[3] and 0 or 1)
  end
  for _, row in ipairs(file.fps_map.rows) do
    local fps, interval = opensora20.rate(given(row[1]), given(row[2]))
    rates = rates + (fps == row[3] and interval == row[4] and 0 or 1)
  end
  result:exact("sizes", sizes)
  result:exact("nearest ratio", nearest)
  result:exact("rates", rates)
end

local function rng(text, result)
  local file, n = json.decode(text), 0
  for _, case in ipairs(file.cases) do
    local generator = generators.torch(case.seed)
    n = n + differing(generator:permutation(case.n), case.perm)
      + differing(generator:permutation(case.next_n), case.next_perm)
  end
  result:exact("torch permutations", n)
  for name, make in pairs { python_random = generators.python,
    numpy_default_rng = generators.numpy } do
    n = 0
    for _, case in ipairs(file[name]) do
      local generator = make(case.seed)
      for _, value in ipairs(case.uniform) do
        n = n + (generator:random() == value and 0 or 1)
      end
    end
    result:exact(name, n)
  end
  n = 0
  for _, case in ipairs(file.torch_rand) do
    n = n + differing(generators.torch(case.seed):uniform(case.n), case.values)
  end
  result:exact("torch uniform", n)
  -- libraries differ in the last place of logarithms and cosines
  for _, case in ipairs(file.torch_randn) do
    local got = generators.torch(case.seed):normal(case.n)
    for i, value in ipairs(case.values) do
      result:add("torch normal", math.abs(got[i] - value), 1e-6)
    end
  end
end

local function samples_of(file)
  local samples = {}
  for i, row in ipairs(file.samples) do
    samples[i] = { frames = row[1], height = row[2], width = row[3], fps = given(row[4]) }
  end
  return samples
end

-- the rule of a file in the core's form; its resolutions of equal pixels keep their order
local function rule_of(file)
  local config, resolutions = {}, {}
  for place, entry in ipairs(file.bucket_config) do
    local lengths = {}
    for _, row in ipairs(entry[2]) do
      lengths[row[1]] = row[2]
    end
    config[entry[1]], resolutions[entry[1]] = lengths, place
  end
  local list = buckets.resolve(config, nil, nil, "opensora-2.0")
  table.sort(list, function(a, b)
    if a.pixels ~= b.pixels then
      return a.pixels > b.pixels
    end
    return resolutions[a.name] < resolutions[b.name]
  end)
  return list
end

local function assign(text, result)
  local file = json.decode(text)
  local list, samples, sizes, taken, draws = rule_of(file), samples_of(file), 0, 0, 0
  local rule = core.rule { buckets = list, reference = "opensora-2.0", fps_max = file.fps_max }
  local aspect_of, count = {}, 0
  for i, wanted in ipairs(file.bucket_order) do
    local got = list[i]
    table.sort(got.lengths, function(a, b) return a[1] > b[1] end)
    sizes = sizes + (got.name == wanted[1] and 0 or 1)
    for k, frames in ipairs(wanted[2]) do
      sizes = sizes + (got.lengths[k][1] == frames and 0 or 1)
    end
    for _, row in ipairs(aspects.resolution(got.name).aspects) do
      local want = file.aspect_tables[got.name][row.name]
      sizes = sizes + (want and want[1] == row.height and want[2] == row.width and 0 or 1)
      aspect_of[("%s %d %d"):format(got.name, row.height, row.width)] = row.name
    end
    count = count + #got.lengths * #got.aspects
  end
  sizes = sizes + (count == file.num_buckets and 0 or 1)
  for _, epoch in ipairs(file.epochs) do
    for i, wanted in ipairs(epoch.assignment) do
      local s, drawn = samples[i], {}
      local sample = { frames = s.frames, height = s.height, width = s.width, fps = s.fps, row = i,
        seed = file.seed, epoch = epoch.epoch }
      local got, want = rule:assign(sample), given(wanted)
      local same = not got and not want or got and want and got.resolution == want[1]
        and got.frames == want[2]
        and aspect_of[("%s %d %d"):format(got.resolution, got.height, got.width)] == want[3]
      taken = taken + (same and 0 or 1)
      for _, one in ipairs(rule:ask(sample)) do
        table.move(one.draws, 1, #one.draws, #drawn + 1, drawn)
      end
      draws = draws + differing(drawn, given(epoch.draws[i]) or {})
    end
  end
  result:exact("resolutions", sizes)
  result:exact("buckets", taken)
  result:exact("draws", draws)
end

-- a batch as the file writes it
local function named(batch)
  local out = {}
  for i, row in ipairs(batch and batch.rows or {}) do
    out[i] = ("%d-%d-%d-%d"):format(row, batch.frames, batch.height, batch.width)
  end
  return out
end

-- What ranks had, as our order says it and, where the file is of training, as the loaders of all
-- ranks give it.
local function sampler(text, result, folder)
  local file = json.decode(text)
  local data = json.decode(base.read_file(folder .. "/" .. file.dataset))
  local list, whole, loaded = rule_of(data), 0, 0
  epochs.with(samples_of(data), function(index)
    for _, run in ipairs(file.sampler) do
      local ranks = run.world
      local o = { buckets = list, reference = "opensora-2.0", fps_max = data.fps_max,
        seed = data.seed, epoch = run.epoch, ranks = ranks, fill = not file.drop_last,
        unshuffled = not file.shuffle }
      local got, start = epochs.of_order(index, o), given(run.start_step)
      local from = (start or 0) * ranks
      for rank, batches in ipairs(run.ranks) do
        local own = file.drop_last and file.shuffle
          and epochs.of_loader(index, o, rank - 1, start and from)
        for i, batch in ipairs(batches) do
          whole = whole + differing(named(got[from + (i - 1) * ranks + rank]), batch)
          loaded = loaded + (own and differing(named(own[i]), batch) or 0)
        end
        if not start then
          local left, plain = #got // ranks, o.fill
          o.fill, o.ranks = false, 1
          whole = whole + (#batches == left and left == run.num_batches_yielded[rank]
            and #epochs.of_order(index, o) // ranks == run.len and 0 or 1)
          o.fill, o.ranks = plain, ranks
          loaded = loaded + (own and #own ~= #batches and 1 or 0)
        end
      end
    end
  end)
  result:exact("batches", whole)
  result:exact("batches of loaders", loaded)
end

local function data_rules(text, result)
  local file, texts, frames = json.decode(text), 0, 0
  for _, case in ipairs(file.train_text) do
    local row = { text = case.row.text, fps = given(case.row.fps),
      score_vmafmotion = given(case.row.score_vmafmotion) }
    local fps_max = given(case.fps_max)
    local _, interval = opensora20.rate(row.fps, fps_max)
    local said = opensora20.suffix(row, fps_max, case.vmaf, true)
    texts = texts + (row.text .. said == case.text
      and interval == case.sampling_interval and 0 or 1)
  end
  for _, case in ipairs(file.temporal_crop.cases) do
    local last = opensora20.last_start(case.frames, case.num_frames, case.interval)
    local start = generators.python(case.python_seed):randint(0, last)
    local got = opensora20.frames(case.frames, case.num_frames, case.interval, start)
    frames = frames + (case.error and (got and 1 or 0) or differing(got or {}, case.indices))
  end
  for _, case in ipairs(file.inference_text) do
    local plain = opensora20.prompt(case.text, case.fps)
    local whole = opensora20.prompt(case.text, case.fps, case.motion)
    texts = texts + (plain == case.out_fps_only and whole == case.out and 0 or 1)
  end
  local paths = 0
  for _, case in ipairs(file.save_names) do
    local path = names.path20(case.save_dir .. "/" .. case.sub_dir, { prefix = case.save_prefix,
      name = given(case.name), stem = case.fallback_name, index = case.index,
      k = case.num_sample_pos, prompt = case.prompt_as_path and case.prompt or nil })
    paths = paths + (path == case.out and 0 or 1)
  end
  result:exact("texts", texts)
  result:exact("frames", frames)
  result:exact("names", paths)
end

return { { "^aspect_fps", aspect_fps }, { "^rng", rng }, { "^bucket_.*_assign$", assign },
  { "^bucket_.*_sampler$", sampler }, { "^data_rules", data_rules } }
