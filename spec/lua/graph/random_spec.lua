--- Random graphs compute the same bits for all placements, on one queue or five, from run to run,
-- and gradients that agree with finite differences.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/finish.c core/graph/recompute.c core/graph/backward.c core/graph/fresh.c
-- core/layout/region.c
local T = require "moonreel.core.tensor"
local E = require "moonreel.core.exec"
local regions = require "moonreel.optim.regions"
local random_graph = dofile "spec/support/random_graph.lua"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"
local EMULATED = device == "cudaemu" -- an emulated GPU is slow
local FRESH = { fresh_gradients = true }
local SEEDS, DIFFERENCES, STEP = EMULATED and 20 or 120, EMULATED and 10 or 60, 2e-3

--- Graph `seed` under options, run at least twice: all outputs and the gradients as one text, and
-- the printed graph. `side`: on five queues.
local function bits(dev, params, seed, graph_options, recompute, exec_options, side)
  local g <close> = random_graph.build(params, seed, graph_options, recompute, side)
  local exec <close> = E.new(dev, params, exec_options)
  exec:init(7)
  local prog <close> = exec:compile(g)
  prog:set("x", random_graph.input "x")
  prog:set("z", random_graph.input "z")
  local runs = {}
  for run = 1, side and 4 or 2 do
    -- fresh gradients start from zero, whatever the region holds
    exec:write("grad", 0, T.new("f32", { params:elements() })
      + (graph_options.fresh_gradients and 0 / 0 or 0))
    prog:run()
    local out = {}
    for _, name in ipairs(g:outputs()) do
      out[#out + 1] = name .. prog:get(name):bytes()
    end
    out[#out + 1] = exec:read("grad", "f32", 0, { params:elements() }):bytes()
    runs[run] = table.concat(out)
  end
  local where = ("seed %d on %s:\n%s"):format(seed, device, g:print())
  for run = 2, #runs do
    assert(runs[run] == runs[1], ("run %d differs, %s"):format(run, where))
  end
  return runs[1], where
end

describe("a random graph", function()
  it(("gives the same bits under every option, seeds 1 to %d"):format(SEEDS), function()
    local dev <close> = E.device(device, 1)
    local params <close> = random_graph.params()
    for seed = 1, SEEDS do
      local plain = bits(dev, params, seed, { no_inplace = true, no_cheap = true }, false,
        { regions = regions.adamw(), no_reuse = true })
      for i, case in ipairs {
        { {}, false, { regions = regions.adamw(), poison = true } },
        { { no_cheap = true }, true, { regions = regions.adamw(), poison = true } },
        { { no_inplace = true }, true, { regions = regions.adamw() } },
        { {}, true, { regions = regions.adamw(), no_reuse = true, poison = true } },
        { {}, true, { regions = regions.adamw() } },
        { FRESH, false, { regions = regions.adamw() } },
        { FRESH, false, { regions = regions.adamw { fresh = true }, poison = true } },
        { FRESH, true, { regions = regions.adamw { fresh = true } } },
        { FRESH, true, { regions = regions.adamw { fresh = true }, no_reuse = true,
          poison = true } },
      } do
        local other, where = bits(dev, params, seed, case[1], case[2], case[3])
        assert(other == plain, ("option set %d differs from the plain build, %s"):format(i, where))
      end
    end
  end)

  it(("gives the same bits on five queues in any order, seeds 1 to %d"):format(SEEDS), function()
    local dev <close> = E.device(device, 1)
    -- kernels of another device have other bits: only the CPU is compared with the shadow device
    local shadow <close> = E.device(EMULATED and device or "shadow", 1)
    local params <close> = random_graph.params()
    local options = { regions = regions.adamw() }
    for seed = 1, SEEDS do
      local again = seed % 2 == 0
      local plain = bits(dev, params, seed, {}, again, options)
      assert(bits(dev, params, seed, {}, again, options, true) == plain, "seed " .. seed)
      local late, where = bits(shadow, params, seed, {}, again, options, true)
      assert(late == plain, "the shadow device differs, " .. where)
      for _, transient in ipairs { false, true } do
        local fresh = bits(shadow, params, seed, FRESH, again,
          { regions = regions.adamw { fresh = transient } }, true)
        assert(fresh == plain, "fresh gradients differ on the shadow device, " .. where)
      end
    end
  end)

  it(("has the gradient of its loss, seeds 101 to %d"):format(100 + DIFFERENCES), function()
    local dev <close> = E.device(device, 1)
    local params <close> = random_graph.params()
    local n = params:elements()
    for seed = 101, 100 + DIFFERENCES do
      local g <close>, asked = random_graph.build(params, seed, {}, true)
      local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
      exec:init(7)
      local prog <close> = exec:compile(g)
      prog:set("x", random_graph.input "x")
      prog:set("z", random_graph.input "z")
      prog:run()
      local region = exec:read("grad", "f32", 0, { n }):totable()
      local has = {}
      for _, name in ipairs(g:outputs()) do
        has[name] = true
      end
      local dw = has.dw and prog:get("dw"):reshape({ -1 }):totable() or {}
      local dx = has.dx and prog:get("dx"):reshape({ -1 }):totable() or {}

      -- along a random direction, along which `set` moves `value`, the loss rises as the gradient
      -- says
      local function check(what, value, grad, set)
        local at = value:reshape({ -1 }):totable()
        local direction = T.new("f32", { #at }):fill_normal(seed, "direction"):totable()
        local slope, size = 0, 0
        for i = 1, #at do
          slope = slope + direction[i] * (grad[i] or 0)
          size = size + (grad[i] or 0) ^ 2
        end
        local function loss(length)
          local moved = {}
          for i, v in ipairs(at) do
            moved[i] = v + length * direction[i]
          end
          set(T.from(value.shape, moved))
          prog:run()
          return prog:get("loss"):item()
        end
        local function rise(h)
          return loss(h) - loss(-h)
        end
        local numeric = (8 * rise(STEP) - rise(2 * STEP)) / (12 * STEP)
        local slack = 0.01 * math.abs(slope) + 0.01 * size ^ 0.5 + 1e-3 * math.max(1, loss(0))
        assert(math.abs(numeric - slope) <= slack,
          ("seed %d on %s: along %s the loss rises by %g, the gradient says %g\n%s")
          :format(seed, device, what, numeric, slope, g:print()))
      end

      check("x", random_graph.input "x", dx, function(x) prog:set("x", x) end)
      -- each parameter by itself, so that a wrong one is not hidden by others
      for _, row in ipairs(params:list()) do
        local grad = table.move(region, row.offset + 1, row.offset + row.count, 1, {})
        if row.name == asked and not row.frozen and has.dw then
          assert.are.same(grad, dw)
        end
        if row.name == asked or not row.frozen then
          check(row.name, exec:param("w", row.name), row.frozen and dw or grad,
            function(w) exec:set_param("w", row.name, w) end)
        end
      end
    end
  end)
end)
