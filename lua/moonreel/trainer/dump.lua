--- Writes the data of a step as files of tensors, for a program that reproduces the run step by
-- step. `trainer.run` calls the function that dump.steps returns as its `watch`.
-- @module moonreel.trainer.dump
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local core = require "moonreel.core.ckpt"
local state = require "moonreel.trainer.state"

local dump = {}

-- lists of a batch with one value for each sample
local LISTS <const> = {{"t", "f32"}, {"fps", "f32"}, {"weight", "f32"}, {"keys", "i64"},
  {"drop", "bool"}}

-- puts the tensors of a table, in the order of their names
local function put_all(put, prefix, tensors)
  local names = {}
  for name in pairs(tensors or {}) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    put(prefix .. name, tensors[name])
  end
end

--- The inputs and outputs of a micro-step: of its batch and of its graph.
---@param batch table         for Step:start of moonreel.trainer.program
---@param program mr.MicroStep  the one that has just run the batch
---@return table[] rows       {name, tensor}: t, fps, weight, keys, drop, mask [B, T], epoch, seed,
---   size (frames, height, width), text.NAME of the captions, pixels if the step encodes them;
---   loss, per_sample, latents and noise [B, C, T, H, W]; of an autoencoder its terms and draws
function dump.micro_step(batch, program)
  local rows, B, shape = {}, program.shape.batch, program.shape
  local function put(name, tensor) rows[#rows + 1] = {name = name, tensor = tensor} end
  for _, row in ipairs(LISTS) do
    local name, dtype = table.unpack(row)
    if batch[name] then
      put(name, T.from({B}, batch[name], dtype))
    end
  end
  if batch.mask then
    put("mask", T.from({B, #batch.mask // B}, batch.mask, "bool"))
  end
  put("epoch", T.from({1}, {batch.epoch}, "i32"))
  put("seed", T.from({1}, {batch.seed}, "i64"))
  put("size", T.from({3}, {shape.frames, shape.height, shape.width}, "i32"))
  if batch.pixels then
    put("pixels", batch.pixels)
  end
  put_all(put, "text.", batch.tokens)
  for _, name in ipairs(program.graph:outputs()) do
    put(name, program.prog:get(name))
  end
  return rows
end

--- Writes tensors to a safetensors file; booleans become bytes.
---@param path string
---@param rows table[]  {name, tensor}
function dump.write(path, rows)
  local list = {}
  for i, row in ipairs(rows) do
    local t = row.tensor.dtype == "bool" and row.tensor:to "u8" or row.tensor
    local bytes = t:clone():bytes()
    list[i] = {name = row.name, dtype = t.dtype, shape = t.shape, ptr = bytes, bytes = #bytes}
  end
  core.write(path, list)
end

-- the regions that a checkpoint contains, or those that it does not
local function regions_of(exec, saved)
  local list = {}
  for _, r in ipairs(exec:regions()) do
    if (r.prefix ~= nil) == saved and not r.shared and r.bytes > 0 then
      list[#list + 1] = r
    end
  end
  return list
end

-- turns a box of a tensor that ranks share into a tensor of its own
local function box_as_tensor(row)
  local parts, shape = {}, {}
  for axis, bounds in ipairs(row.box or {}) do
    parts[axis], shape[axis] = ("%d:%d"):format(bounds[1], bounds[2]), bounds[2] - bounds[1]
  end
  if row.box then
    row.name = ("%s[%s]"):format(row.name, table.concat(parts, ","))
    row.shape, row.box = shape, nil
  end
end

--- Writes the state of a run between two steps: under the names of a checkpoint, or the gradients
-- as grad.NAME. The part of a tensor that ranks share is called NAME[from:to], or
-- NAME[from:to,from:to] for rows and columns.
---@param path string
---@param program mr.MicroStep  a program of the run
---@param gradients boolean|nil
function dump.state(path, program, gradients)
  local list = regions_of(program.exec, not gradients)
  local rows = state.rows_of(program.exec, list, program.pipe.params)
  for _, row in ipairs(rows) do
    if row.range then
      local from, to = table.unpack(row.range)
      row.name, row.shape, row.range = ("%s[%d:%d]"):format(row.name, from, to), {to - from}, nil
    end
    box_as_tensor(row)
  end
  core.write(path, rows)
end

--- The steps of a list such as 1,50.
---@param text string
---@return table<integer, boolean>
function dump.parse(text)
  local set = {}
  for word in (text .. ","):gmatch "([^,]*)," do
    local n = math.tointeger(tonumber(word))
    if not n or n < 1 then
      base.raise("MR_E_USAGE", ("--dump-steps: expected steps from 1 on, as 1,50, got '%s'"):format(
        text))
    end
    set[n] = true
  end
  return set
end

--- A `watch` for trainer.run that writes the data of some steps into DIR/step-N/, with several
-- ranks into DIR/step-N/rank-R/: before.safetensors and after.safetensors (state),
-- micro-M.safetensors (dump.micro_step), gradients.safetensors (after the last micro-batch of this
-- rank, before the clip and before the division by the samples' weights).
---@param steps table<integer, boolean>  from dump.parse
---@param dir string
---@param team mr.Team
---@return fun(step: integer, micro: integer, batch: table|nil, program: mr.MicroStep)
function dump.steps(steps, dir, team)
  local function path(step, name)
    local folder = ("%s/step-%d"):format(dir, step)
    folder = team.size > 1 and ("%s/rank-%d"):format(folder, team.rank) or folder
    base.make_dir(folder)
    return ("%s/%s.safetensors"):format(folder, name)
  end
  return function(step, micro, batch, program)
    if micro == 0 then
      if steps[step] then
        dump.state(path(step, "after"), program)
      end
      if steps[step + 1] then
        dump.state(path(step + 1, "before"), program)
      end
    elseif steps[step] then
      dump.write(path(step, "micro-" .. micro), dump.micro_step(batch, program))
      dump.state(path(step, "gradients"), program, true)
    end
  end
end

return dump
