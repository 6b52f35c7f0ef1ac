--- moonreel.data.loader: batches, their order for all numbers of threads, plans and errors.
-- Covers: core/bind/loader.c
local base = require "moonreel.core.base"
local core_index = require "moonreel.core.index"
local data = require "moonreel.data"
local fails = require "spec.support.fails"

local folder, index
local resolutions = { tiny = { pixels = 32 * 32,
  aspects = { ["1.00"] = { 32, 32 }, ["0.50"] = { 24, 48 } } } }
local bucket_config = { tiny = { [1] = { 1.0, 3 }, [4] = { { 1.0, 0.8 }, 2 } } }

setup(function()
  folder = os.tmpname()
  os.remove(folder)
  base.make_dir(folder)
  for i = 1, 9 do
    local wide, frames = i % 3 == 0, i % 4 == 0 and 1 or 3 + i
    local h, w = wide and 32 or 48, wide and 64 or 48
    data.encode(("%s/%d.%s"):format(folder, i, frames == 1 and "png" or "mp4"),
      string.char(20 * i):rep(frames * 3 * h * w),
      { frames = frames, height = h, width = w, fps = 24 })
    base.replace_file(("%s/%d.txt"):format(folder, i), "number " .. i)
  end
  data.ingest(folder, folder .. "/i.mrx")
  index = data.open(folder .. "/i.mrx")
end)
teardown(function()
  index:close()
  os.execute("rm -rf '" .. folder .. "'")
end)

local function options(more)
  local o = { index = index, bucket_config = bucket_config, resolutions = resolutions,
    seed = 3, threads = 2, epochs = 2 }
  for k, v in pairs(more or {}) do
    o[k] = v
  end
  return o
end

describe("loader", function()
  it("returns the same sample ids with 1, 2, 4 and 8 threads", function()
    local first
    for _, threads in ipairs { 1, 2, 4, 8 } do
      local loader <close> = data.loader(options { threads = threads })
      local coming, ids = loader:order(1000), {}
      for batch in function() return loader:next() end do
        for i = 1, batch.n do
          ids[#ids + 1] = batch.ids[i]
        end
        loader:release(batch)
      end
      assert.same(coming, ids)
      first = first or ids
      assert.same(first, ids)
    end
    assert.is_true(#first > 8)
  end)

  it("counts the batches that were ready when requested: after the start, all of them", function()
    local loader <close> = data.loader(options { epochs = 1 })
    local batches, bytes = loader:plan().batches, 0
    for n = 1, batches do
      -- a consumer that is slower than decoding never waits
      while loader:stats().ready == 0 do
        base.sleep(0.001)
      end
      local batch = loader:next()
      bytes = bytes + select(2, batch:pixels())
      loader:release(batch)
      local stats = loader:stats()
      assert.same({ n, 0, bytes }, { stats.hits, stats.waits, stats.bytes })
    end
  end)

  it("refuses slabs above a quarter of a rank's memory, with the bucket and what fits", function()
    local large = { tiny = { [1] = { 1.0, 3 }, [4] = { 1.0, 20000 } } }
    local function open(more)
      more.bucket_config = more.bucket_config or large
      more.local_ranks = 1000
      return pcall(data.loader, options(more))
    end
    local opened, problem = open {}
    assert.is_false(opened)
    local text = tostring(problem)
    assert.matches("bucket_config%.tiny%[4%]: 4 slabs for 20000 clips of 4 x %d+ x %d+, the "
      .. "largest micro%-batch, are 1%.1 GB; expected at most ", text)
    assert.matches("ranks: 1000%); try: a batch of at most %d+ there$", text)
    opened, problem = open { prefetch = 9 }
    assert.is_false(opened)
    assert.matches("11 slabs .* there, or a smaller prefetch", tostring(problem))
    -- a slab that fits is accepted
    local fits = tonumber(text:match "at most (%d+) there")
    for more = 0, 1 do
      opened, problem = open { bucket_config = { tiny = { [4] = { 1.0, fits + more } } },
        allow_empty_buckets = true }
      assert.equal(more == 0, opened)
      if opened then
        problem:close()
      end
    end
    -- no clip is decoded into the slabs, so they take no memory
    opened, problem = open { blind = true }
    assert.is_true(opened, problem)
    problem:close()
  end)

  it("returns pixels, captions and metadata", function()
    local loader <close> = data.loader(options { epochs = 1 })
    local pictures, moving = 0, 0
    for batch in function() return loader:next() end do
      local pointer, bytes = batch:pixels()
      assert.equal("userdata", type(pointer))
      assert.equal(batch.size * batch.frames * 3 * batch.height * batch.width, bytes)
      local t = batch:tensor()
      for i = 1, batch.n do
        local row = index:row(batch.ids[i] + 1)
        assert.equal(row.text, batch.captions[i])
        assert.equal(row.key_lo, batch.keys[i])
        assert.equal(1.0, batch.weights[i])
        assert.equal(batch.frames == 1 and 120.0 or 24.0, batch.fps[i])
        assert.equal(row.width, batch.native_widths[i])
      end
      for i = batch.n + 1, batch.size do
        assert.equal(0.0, batch.weights[i])
      end
      local number = tonumber(batch.captions[1]:match("%d+"))
      assert.is_true(math.abs(t:bytes():byte(1) - 20 * number) < 8)
      if batch.frames == 1 then
        pictures = pictures + batch.n
      else
        moving = moving + batch.n
      end
      loader:release(batch)
      fails("MR_E_USAGE", "was released", batch.pixels, batch)
    end
    assert.equal(2, pictures)
    assert.is_true(moving >= 4)
  end)

  it("continues from its state", function()
    local ids, state = {}, nil
    local loader <close> = data.loader(options())
    for i = 1, 6 do
      local batch = loader:next()
      if i > 3 then
        ids[#ids + 1] = table.concat(batch.ids, " ")
      end
      loader:release(batch)
      if i == 3 then
        state = loader:state()
      end
    end
    assert.is_true(#state < 4096)
    local again <close> = data.loader(options { state = state, threads = 3 })
    for i = 1, 3 do
      local batch = again:next()
      assert.equal(ids[i], table.concat(batch.ids, " "))
      again:release(batch)
    end
    fails("MR_E_DATA", "seed is 4", data.loader, options { state = state, seed = 4 })
    fails("MR_E_FORMAT", "sampler state", data.loader, options { state = "nonsense" })
    fails("MR_E_DATA", "bucket rule", data.loader, options { state = state, frame_interval = 2 })
  end)

  it("reports its plan", function()
    local loader <close> = data.loader(options())
    local plan = loader:plan()
    local samples, batches = 0, 0
    for _, b in ipairs(plan.buckets) do
      samples, batches = samples + b.samples, batches + b.batches
    end
    assert.equal(plan.samples, samples)
    assert.equal(plan.batches, batches)
    local dropped = 0
    for _, n in pairs(plan.dropped) do
      dropped = dropped + n
    end
    assert.equal(9, samples + dropped)
  end)

  it("names the rule that removed the rows when no sample fits", function()
    fails("MR_E_DATA", "9 rows: below 0.8 of the pixels", data.loader,
      options { bucket_config = { ["720p"] = { [1] = { 1.0, 1 } } } })
    fails("MR_E_DATA", "7 rows: shorter than every length", data.loader,
      options { bucket_config = { tiny = { [51] = { 1.0, 1 } } } })
  end)

  it("names the entry of a bucket table that is wrong", function()
    fails("MR_E_RECIPE", "there is no resolution '9p'; expected one of 1024, 1080p", data.loader,
      options { bucket_config = { ["9p"] = { [1] = { 1.0, 1 } } } })
    fails("MR_E_RECIPE", "bucket_config.tiny%[4%]", data.loader,
      options { bucket_config = { tiny = { [4] = 3 } } })
    fails("MR_E_RECIPE", "'many' is not a number of frames", data.loader,
      options { bucket_config = { tiny = { many = { 1.0, 3 } } } })
    fails("MR_E_RECIPE", "batch size 0", data.loader,
      options { bucket_config = { tiny = { [4] = { 1.0, 0 } } } })
    fails("MR_E_RECIPE", "resolutions.odd", data.loader,
      options { bucket_config = { odd = { [4] = { 1.0, 1 } } },
      resolutions = { odd = { pixels = 9, aspects = { ["1.00"] = { 3 } } } } })
    fails("MR_E_RECIPE", "bucket_config is empty", data.loader, options { bucket_config = {} })
    fails("MR_E_USAGE", "index is missing", data.loader, { bucket_config = bucket_config })
  end)

  it("may be closed twice, also while batches are in use", function()
    local loader = data.loader(options())
    loader:next()
    loader:close()
    loader:close()
    fails("MR_E_USAGE", "closed", loader.next, loader)
  end)

  it("continues from a short state after an epoch that left many samples over", function()
    local path = folder .. "/many.mrx"
    core_index.synthetic(path, 6000, 1)
    local many <close> = data.open(path)
    local lengths = {}
    for frames = 20, 60, 2 do
      lengths[frames] = { { 1.0, 0.2 }, 20 + frames }
    end
    local function open(state, excluded)
      return data.loader { index = many, seed = 4, blind = true, threads = 2, tail = "carry",
        bucket_config = { ["240p"] = lengths }, state = state, excluded = excluded,
        allow_empty_buckets = true }
    end
    local function ids_of(batch) return table.move(batch.ids, 1, batch.n, 1, {}) end
    local first <close> = open()
    local state, excluded
    repeat
      local batch = first:next()
      local epoch = batch.epoch
      first:release(batch)
    until epoch == 1
    state = first:state()
    local rest = {}
    for i = 1, 20 do
      local batch = first:next()
      rest[i] = ids_of(batch)
      first:release(batch)
    end
    -- a reported state is complete, wherever the loader has got to since
    repeat
      local batch = first:next()
      local epoch = batch.epoch
      first:release(batch)
    until epoch == 2
    excluded = first:excluded()
    assert.is_true(#state < 4096)
    assert.matches("\ntail @%x+ %d%d%d+\n", state)
    local again <close> = open(state, excluded)
    for i = 1, 20 do
      local batch = again:next()
      assert.same(rest[i], ids_of(batch))
      again:release(batch)
    end
    fails("MR_E_DATA", "the list of them is not there", open, state)
  end)
end)
