--- Learning rates of Open-Sora 2.0 in a JSON file.
-- @module spec.golden.runner.rates
local json = require "moonreel.core.json"
local schedule = require "moonreel.optim.schedule"

local LR = 1e-6

local kinds = { linear = "constant", cosine_warmup = "cosine" }

local function rates(text, result)
  local file = json.decode(text)
  for name, kind in pairs(kinds) do
    for _, row in ipairs(file[name]) do
      local at, got = schedule.new { kind = kind, lr = row.lr, warmup_steps = row.warmup_steps,
        initial_lr = row.initial_lr, total_steps = row.total_steps, compat = true }, {}
      for k = 1, #row.lrs do
        got[k] = at(k - 1) / row.lr
        row.lrs[k] = row.lrs[k] / row.lr
      end
      result:absolute(name, got, row.lrs, LR)
    end
  end
end

return { { "^lr_schedules", rates } }
