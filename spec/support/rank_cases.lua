--- Cases that ranks run together, for specs of what they share. The list is a file with a line for
-- each case: its name, a colon, its words. A script of the ranks defines what a case does and
-- returns numbers of each rank; the spec gets them by the name of the case.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local cut = require "moonreel.ckpt.cut"
local ops = require "moonreel.core.op"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"
local shares = require "moonreel.plan.shares"

local rank_cases = {}

-- ---- in the ranks

--- The length of all elements as one vector.
function rank_cases.norm(t) return ops.sum_squares(t:to("f32"):reshape { -1 }):item() ^ 0.5 end

--- Normal random numbers that depend on the name.
function rank_cases.filled(name, shape) return T.new("f32", shape):fill_normal(1, name) end

local norm, filled = rank_cases.norm, rank_cases.filled

--- Errors of gradients. Those near zero are compared with all.
---@param got table<string, mr.Tensor>   by name; of a divided parameter, this rank's part
---@param want table<string, mr.Tensor>  of whole parameters
---@param list table[]      {name, shape, cut} of parameters
---@param least number|nil  share of the mean square that counts as near zero; absent: 1e-4
---@return number worst, number all  relative errors: the largest of one gradient, that of all
function rank_cases.errors(got, want, list, least)
  local own, squares, errors, n, worst = {}, 0, 0, 0, 0
  for _, p in ipairs(list) do
    if want[p.name] then
      local w = cut.take(p, want[p.name]:reshape(p.shape))
      own[p.name], squares, n = w, squares + norm(w) ^ 2, n + T.count(w.shape)
      errors = errors + norm(got[p.name]:to "f32":reshape { -1 } - w:to "f32") ^ 2
    end
  end
  for name, w in pairs(own) do
    local floor = (least or 1e-4) * (squares / n) ^ 0.5 * T.count(w.shape) ^ 0.5
    worst = math.max(worst, norm(got[name]:to "f32":reshape { -1 } - w:to "f32")
      / math.max(norm(w), floor))
  end
  return worst, n > 0 and (errors / squares) ^ 0.5 or 0
end

--- Declares a small STDiT3: returns it, its inputs other than latents, time and text, and fields of
-- its pass.
---@param linear string|nil  of its fields
---@return fun(params: mr.Params, H: integer, W: integer, by: mr.Split|nil)
function rank_cases.stdit(linear)
  return function(params, H, W, by)
    return require("moonreel.models.stdit3").new(params, { depth = 1, hidden_size = 32,
      num_heads = 4, in_channels = 4, caption_channels = 8, model_max_length = 6, linear = linear },
      { split = by }),
      { fps = T.from({ 2 }, { 24, 8 }), text_len = T.from({ 2 }, { 3, 6 }, "i32"),
        x_mask = T.from({ 2, 3 }, { 1, 0, 1, 1, 1, 0 }, "bool") }, { height = H * 8, width = W * 8 }
  end
end

--- The same for a small MMDiT.
---@param fields table  depth, fused_qkv, linear
function rank_cases.mmdit(fields)
  return function(params, H, W, by)
    return require("moonreel.models.mmdit").new(params, { in_channels = 16, vec_in_dim = 6,
      context_in_dim = 8, hidden_size = 32, mlp_ratio = 2, num_heads = 4, depth = fields.depth,
      depth_single_blocks = 2, axes_dim = { 2, 2, 4 }, theta = 10000, qkv_bias = true,
      guidance_embed = true, cond_embed = true, fused_qkv = fields.fused_qkv,
      use_liger_rope = true, patch_size = 2, linear = fields.linear }, { split = by }),
      { vector = filled("vector", { 2, 1, 6 }), guidance = T.from({ 2 }, { 4, 1 }),
        cond = filled("cond", { 2, 5, 3, H, W }) }, {}
  end
end

--- Runs a program that computes `out`, and the gradients of a weighted sum of it.
---@param device mr.Device
---@param params mr.Params  sealed
---@param g mr.Graph        with the inputs of `given`
---@param out mr.Value
---@param given table<string, mr.Tensor>
---@param weight_of fun(p: table): mr.Tensor  of a whole parameter
---@return mr.Tensor out
---@return table<string, mr.Tensor> grads  by name, [n] each
---@return number sent  bytes that a plan counts
function rank_cases.pass(device, params, g, out, loss, given, weight_of)
  g:output("out", out)
  g:backward(loss, {})
  g:finish()
  local run <close> = E.new(device, params, { regions = regions.gradients() })
  for _, p in ipairs(params:list()) do
    local region = p.frozen and "frozen" or "w"
    run:set_param(region, p.name, cut.take(p, weight_of(p)):reshape(
      run:param(region, p.name).shape))
  end
  local prog, grads = run:compile(g), {}
  for name, value in pairs(given) do
    prog:set(name, value)
  end
  prog:run()
  for _, p in ipairs(params:list()) do
    grads[p.name] = not p.frozen and run:param("grad", p.name):clone():reshape { -1 } or nil
  end
  return prog:get "out", grads, shares.sent(prog:times())
end

--- The sum of a value's elements, each with a weight of the input `weight`.
function rank_cases.weighted(g, given, out)
  given.weight = filled("weight", out.shape)
  local axes = {}
  for i = 1, #out.shape do
    axes[i] = i - 1
  end
  return (ops.sum(out * g:input("weight", "f32", out.shape), { axes = axes }))
end

--- A small model over latents of a size, by ranks or by this one alone.
---@param device mr.Device
---@param declare function  of stdit or mmdit
---@param how table         height, width; split, sequence, recompute
---@return mr.Tensor out
---@return table<string, mr.Tensor> grads
---@return table[] list     of parameters
---@return number sent      bytes that a plan counts
function rank_cases.model(device, declare, how)
  local params, H, W = G.params "f32", how.height, how.width
  local net, given, io = declare(params, H, W, how.split)
  params:seal()
  local g = G.graph(params)
  given.x, given.y, given.t = filled("x", { 2, 4, 3, H, W }), filled("y", { 2, 6, 8 }),
    T.from({ 2 }, { 700, 30.5 })
  io.sequence, io.recompute = how.sequence, how.recompute and function() return true end or nil
  for name, value in pairs(given) do
    io[name] = g:input(name, value.dtype, value.shape)
  end
  local out = net:forward(g, io)
  local y, grads, sent = rank_cases.pass(device, params, g, out, rank_cases.weighted(g, given, out),
    given, function(p) return filled(p.name, p.shape) * 0.2 + (p.name:find "norm" and 1 or 0) end)
  return y, grads, params:list(), sent
end

--- Bytes that this rank sent by an operation since they were counted from nothing.
function rank_cases.sent(counts, ...)
  local bytes = 0
  for _, op in ipairs { ... } do
    bytes = bytes + (counts[op] and counts[op].bytes or 0)
  end
  return bytes
end

--- Runs the cases of the list that is the script's argument.
---@param size fun(...): integer  the number of ranks of a case, by its words
---@param f fun(at: table, ...): number[]  at: world, group (its ranks), device, name; the words of
---   the case, those that are numbers as such. What it returns of this rank
function rank_cases.run(size, f)
  local world = require("moonreel.comm").world { deadline_s = 100, check = true }
  for line in io.lines(arg[1]) do
    local name, rest = line:match "^(.-): (.*)$"
    local words = {}
    for word in rest:gmatch "%S+" do
      words[#words + 1] = math.tointeger(tonumber(word)) or word
    end
    local own = world:rank() < size(table.unpack(words))
    local group <close> = world:split(own and 0 or nil)
    if group then
      -- one of its own: the shadow device's runs are in the order of their numbers, on all ranks
      local device <close> = E.device(os.getenv "MOONREEL_DEVICE" or "cpu", 1)
      local numbers = f({ world = world, group = group, device = device, name = name },
        table.unpack(words))
      local all = group:all_gather(T.from({ 1, #numbers }, numbers, "f64")):totable()
      if group:rank() == 0 then
        print(name .. ": " .. table.concat(all, " "))
        io.stdout:flush()
      end
    end
    world:barrier()
  end
end

-- ---- in the spec

--- Lets four ranks run cases.
---@param dir table           of spec.support.folder
---@param script string       their script
---@param list string         of cases
---@param device string|nil   that they run on; absent: as MOONREEL_DEVICE says
---@param more string|nil     further arguments of the script
---@return table done         of process.run
---@return table<string, number[]> rows  of all ranks, one after another, by the name of a case
function rank_cases.start(dir, script, list, device, more)
  local words = { process.program(), "-n", "4", dir:write("cases.lua", script),
    dir:write("cases", list), more }
  if device then
    table.move({ "/usr/bin/env", "MOONREEL_DEVICE=" .. device, "MOONREEL_CUDAEMU=seed=2" }, 1, 3, 1,
      table.move(words, 1, #words, 4))
  end
  local done, rows = process.run(words, "", { deadline_s = 600 }), {}
  for name, rest in done.output:gmatch "([^\n]+): ([^\n]+)\n" do
    rows[name] = {}
    for number in rest:gmatch "%S+" do
      table.insert(rows[name], tonumber(number))
    end
  end
  return done, rows
end

--- Lines of a list for which a function is true, of their names.
---@param list string
---@param wanted fun(name: string): any
---@return string, integer  the list of them, how many
function rank_cases.some(list, wanted)
  local lines = {}
  for line in list:gmatch "[^\n]+" do
    lines[#lines + 1] = wanted(line) and line or nil
  end
  return table.concat(lines, "\n") .. "\n", #lines
end

return rank_cases
